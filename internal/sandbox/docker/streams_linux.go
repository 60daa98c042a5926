package docker

import (
	"io"
	"os"
	"sync"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// streams carries bytes between a guard's own stdin, stdout and stderr and those of a
// container, which the engine has on one connection.
type streams struct {
	conn client.HijackedResponse
	out  sync.WaitGroup
	once sync.Once
}

// relay begins to carry. Broken is called when nobody reads the output any more.
func relay(conn client.HijackedResponse, tty bool, broken func()) *streams {
	s := &streams{conn: conn}
	go func() {
		_, _ = io.Copy(conn.Conn, os.Stdin) // the command need not read to the end
		if !tty {
			_ = conn.CloseWrite()
		}
	}()
	s.out.Go(func() {
		stdout, stderr := &output{file: os.Stdout, broken: broken}, &output{file: os.Stderr, broken: broken}
		if tty {
			_, _ = io.Copy(stdout, conn.Reader)
			return
		}
		_, _ = stdcopy.StdCopy(stdout, stderr, conn.Reader)
	})
	return s
}

// finish carries what is left, once there will be no more.
func (s *streams) finish() {
	s.once.Do(func() {
		s.out.Wait()
		s.conn.Close()
	})
}

// output is a stream that takes everything. When nobody reads it any more the command is
// told, as it would be by the kernel.
type output struct {
	file   *os.File
	broken func()
	gone   bool
}

func (o *output) Write(data []byte) (int, error) {
	if o.gone {
		return len(data), nil
	}
	if _, err := o.file.Write(data); err != nil {
		o.gone = true
		o.broken()
	}
	return len(data), nil
}

// watch sends on a channel whenever a file may have grown, and once for what it has
// already.
func watch(file string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_MODIFY); err != nil {
		_ = events.Close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	grown := make(chan struct{}, 1)
	grown <- struct{}{}
	go func() {
		defer close(grown)
		buf := make([]byte, 4096)
		for {
			if _, err := events.Read(buf); err != nil {
				return
			}
			select {
			case grown <- struct{}{}:
			default: // somebody will look already
			}
		}
	}()
	return grown, nil
}
