package oci

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// streams are the command's stdin, stdout and stderr.
//
// A file could be opened again inside, by its name in /proc, for more than the
// caller has opened it for: in the native runtime Landlock keeps that from
// happening. Here the command gets a pipe, and this process copies.
type streams struct {
	inner    [3]*os.File
	console  bool // all of them are a terminal that the runtime makes
	stream   int  // the first that is a terminal, or -1
	terminal *os.File

	ours    []*os.File // ends that only the sandbox needs
	outputs sync.WaitGroup
}

func (s *streams) open(o engine.Options) error {
	s.inner, s.stream = o.Streams, -1
	if t := o.Terminal; t != nil {
		s.console = t.Streams == [3]bool{true, true, true}
		if err := s.openTerminal(t); err != nil {
			return err
		}
	}
	for i, f := range s.inner {
		if s.isTerminal(o.Terminal, i) || isHarmless(f) {
			continue
		}
		if err := s.relay(i, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *streams) isTerminal(t *native.Terminal, i int) bool { return t != nil && t.Streams[i] }

// openTerminal makes a terminal for a command of which only some streams are one.
// Runtimes have one for all or for none.
func (s *streams) openTerminal(t *native.Terminal) error {
	var inside *os.File
	if !s.console {
		var err error
		if s.terminal, inside, err = OpenTerminal(t); err != nil {
			return err
		}
	} else {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		inside = null
	}
	s.ours = append(s.ours, inside)
	for i, is := range t.Streams {
		if is {
			s.inner[i] = inside
			if s.stream < 0 {
				s.stream = i
			}
		}
	}
	return nil
}

// OpenTerminal makes a terminal with its first settings. If it fails, the outer end may be
// there nevertheless.
func OpenTerminal(t *native.Terminal) (outside, inside *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open /dev/ptmx", err)
	}
	outside = os.NewFile(uintptr(fd), "terminal")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return outside, nil, os.NewSyscallError("unlock a terminal", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return outside, nil, os.NewSyscallError("open a terminal", errno)
	}
	return outside, os.NewFile(peer, "terminal"), furnishTerminal(outside, t)
}

// furnishTerminal gives a terminal its first settings.
func furnishTerminal(f *os.File, t *native.Terminal) error {
	fd := int(f.Fd())
	if t.Termios != nil {
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, t.Termios); err != nil {
			return os.NewSyscallError("set up a terminal", err)
		}
	}
	if t.Size != nil {
		return os.NewSyscallError("set up a terminal", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, t.Size))
	}
	return nil
}

// isHarmless says whether a stream gives no more when it is opened again: pipes
// without a name, connected sockets, and the device that is nothing.
func isHarmless(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		var fs unix.Statfs_t
		return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.PIPEFS_MAGIC
	case unix.S_IFSOCK:
		return true
	}
	return isNull(f)
}

// relay puts a pipe in the place of a stream.
func (s *streams) relay(i int, f *os.File) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	if i == 0 {
		s.inner[0] = read
		s.ours = append(s.ours, read)
		go func() {
			_, _ = io.Copy(write, f) // the command need not read to the end
			_ = write.Close()
		}()
		return nil
	}
	s.inner[i] = write
	s.ours = append(s.ours, write)
	s.outputs.Go(func() {
		_, _ = io.Copy(f, read)
		_ = read.Close()
	})
	return nil
}

// started closes what the sandbox has now.
func (s *streams) started() {
	for _, f := range s.ours {
		_ = f.Close()
	}
	s.ours = nil
}

// finish waits for what the command has still written.
func (s *streams) finish() {
	s.started()
	s.outputs.Wait()
}
