package rulefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/rulefs/views"
)

// mountPoint is where the mount is, in a mount namespace that only this process
// is in. Any directory that every host has would do: nothing is looked up by its
// path but descriptors.
const mountPoint = "/tmp"

// maxWrite is the most that is read or written at once.
const maxWrite = 256 << 10

// Descriptors that the process without capabilities is started with.
const (
	fdRequests = 3
	fdOpener   = 4
	fdDevice   = 5
)

// word is what this program is called with, and plainly what it calls itself with
// to get rid of its capabilities.
const (
	word    = "rulefs"
	plainly = "rulefs-plain"
)

// Main is the process that serves views, if the program was called to be one: it
// reports whether, and how that ended. There are two of them. The first has the
// capabilities to mount; it passes on what it is asked, and sees nothing of what
// a sandbox says. The second has none, and serves the files.
func Main(args []string) (is bool, err error) {
	switch {
	case len(args) == 1 && args[0] == word:
		return true, broker()
	case len(args) == 1 && args[0] == plainly:
		return true, servePlain()
	}
	return false, nil
}

// broker mounts, starts the second process, and carries requests and answers
// between it and who started this one, until that closes its socket.
func broker() error {
	unix.CloseOnExec(views.Socket)
	if kind, err := unix.GetsockoptInt(views.Socket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return errors.New("views are served by a process that bailey starts, when the first one is wanted")
	}
	requests, err := startServing()
	answer := views.Answer{}
	if err != nil {
		answer.Error = "show files under path permissions: " + err.Error()
	}
	if send := views.Send(views.Socket, answer, nil); err != nil || send != nil {
		return errors.Join(err, send)
	}
	for {
		var r views.Request
		dir, err := views.Receive(views.Socket, &r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = carry(requests, &r, dir)
		}
		if err != nil {
			return err
		}
	}
}

// startServing mounts and starts the second process, which ends when this one
// does.
func startServing() (requests int, err error) {
	device, err := mount()
	if err != nil {
		return -1, err
	}
	defer device.Close()
	asked, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	opened, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	theirs, opener := os.NewFile(uintptr(asked[1]), "requests"), os.NewFile(uintptr(opened[1]), "opener")
	process, err := startPlain([]string{"baileyd", plainly}, []*os.File{os.Stdin, os.Stdin, os.Stdin, theirs, opener, device}, "/")
	_, _ = theirs.Close(), opener.Close()
	if err != nil {
		return -1, err
	}
	go serveOpener(opened[0])
	go func() {
		_, _ = process.Wait()
		_ = unix.Shutdown(views.Socket, unix.SHUT_RDWR) // nothing is served any more
	}()
	_, err = await(asked[0]) // it serves
	return asked[0], err
}

// carry has a request answered. A view that was opened is cloned here, which the
// second process cannot.
func carry(requests int, r *views.Request, dir int) error {
	var rights []byte
	if dir >= 0 {
		defer unix.Close(dir)
		rights = unix.UnixRights(dir)
	}
	if err := views.Send(requests, *r, rights); err != nil {
		return err
	}
	answer, err := await(requests)
	if err != nil {
		return err
	}
	rights = nil
	if r.Kind == views.KindOpen && answer.Error == "" {
		mount, err := cloneView(r.View)
		if err != nil {
			answer.Error = err.Error()
		} else {
			defer unix.Close(mount)
			rights = unix.UnixRights(mount)
		}
	}
	return views.Send(views.Socket, answer, rights)
}

func await(requests int) (a views.Answer, err error) {
	fd, err := views.Receive(requests, &a)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return a, err
}

// servePlain is the second process.
func servePlain() error {
	for _, fd := range []int{fdRequests, fdOpener, fdDevice} {
		unix.CloseOnExec(fd)
	}
	fs, err := start()
	if err != nil {
		return err
	}
	if err := views.Send(fdRequests, views.Answer{}, nil); err != nil {
		return err
	}
	for {
		var r views.Request
		fd, err := views.Receive(fdRequests, &r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var a views.Answer
		if err == nil {
			if failed := fs.serve(&r, fd); failed != nil {
				a.Error = failed.Error()
			}
			err = views.Send(fdRequests, a, nil)
		}
		if err != nil {
			return err
		}
	}
}

// start serves the file system.
func start() (*FS, error) {
	unix.Umask(0) // the kernel has applied the caller's
	fs := newFS()
	fs.opener.socket = fdOpener
	server, err := fuse.NewServer(fs, "/dev/fd/"+strconv.Itoa(fdDevice), &fuse.MountOptions{
		MaxWrite:      maxWrite,
		MaxBackground: 64,
		// Set-user-id bits and capabilities of files go when they are written,
		// since this process has no right to keep them. Unless it says so the
		// kernel asks for them before every write.
		ExtraCapabilities:    fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_READDIRPLUS_AUTO,
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
		EnableSymlinkCaching: true,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		server.Serve()
		_ = unix.Shutdown(fdRequests, unix.SHUT_RDWR) // the mount has gone
	}()
	return fs, nil
}

// mount mounts the file system, and returns the descriptor it is served by. Only
// processes of the same user and group reach it, which those of a sandbox are,
// although in another namespace.
func mount() (device *os.File, err error) {
	// What the host unmounts at this place must not take the mount along.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,default_permissions,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), maxWrite)
	if err := unix.Mount("bailey", mountPoint, "fuse.bailey", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("mount fuse: %w", err)
	}
	return os.NewFile(uintptr(fd), "/dev/fuse"), nil
}

// serve does what a request asks for.
func (fs *FS) serve(r *views.Request, fd int) (err error) {
	var dir *os.File
	if fd >= 0 {
		dir = os.NewFile(uintptr(fd), "directory")
		defer dir.Close()
	}
	var rules *pathrule.Set
	if r.Kind != views.KindClose {
		if rules, err = pathrule.NewSet(r.Rules...); err != nil {
			return err
		}
	}
	switch {
	case r.Kind == views.KindOpen && dir != nil:
		return fs.show(r.View, dir, rules)
	case r.Kind == views.KindChange:
		return fs.change(r.View, rules)
	case r.Kind == views.KindClose:
		fs.end(r.View)
		return nil
	}
	return unix.EINVAL
}

// cloneView returns a view as a mount of its own that is attached nowhere.
func cloneView(name string) (fd int, err error) {
	fd, err = unix.OpenTree(unix.AT_FDCWD, mountPoint+"/"+name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone the view: %w", err)
	}
	return fd, nil
}
