package landlock

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
)

// isRefused asks the broker around this sandbox whether it keeps a name from
// being made or written. To make a directory by mknod is possible nowhere, so
// nothing comes of the call: the broker answers EACCES if it would refuse the
// name, and everybody else EPERM.
func isRefused(path string) bool {
	return errors.Is(unix.Mknod(path, unix.S_IFDIR|0o700, 0), unix.EACCES)
}

// lendsNoTerminal asks the broker whether it opens no terminals for this process. To
// make a directory by mknod without a name is possible for nobody either.
func lendsNoTerminal() bool { return isRefused("") }

// powerless runs f on a thread to which Landlock leaves no file, if a broker
// answers calls of this process. What f can still open, that broker opens for it.
// It reports false, and f does not run, if there is no broker: then Landlock
// judges everything.
func powerless(abi int, f func()) (brokered bool, err error) {
	return onOwnThread(func() (bool, error) {
		if err := noNewPrivileges(); err != nil {
			return false, err
		}
		brokered, err := hasListener()
		if err != nil || !brokered {
			return brokered, err
		}
		if err := restrict(&Walls{ABI: abi, Scopes: scopes}, [3]uint64{}); err != nil {
			return true, err
		}
		f()
		return true, nil
	})
}

// onOwnThread runs f on a thread that ends with it, so that it can confine that
// thread.
func onOwnThread(f func() (bool, error)) (bool, error) {
	type result struct {
		yes bool
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		yes, err := f()
		done <- result{yes, err}
	}()
	r := <-done
	return r.yes, r.err
}

// hasListener says whether somebody answers calls of this thread. Only one can,
// so whoever wants to be a second is refused. If there is none the thread has one
// more filter afterwards, which allows everything.
func hasListener() (bool, error) {
	all := [1]seccomp.Instruction{{Code: 0x06, K: uint32(seccomp.Allow)}} // BPF_RET | BPF_K
	prog := unix.SockFprog{Len: 1, Filter: (*unix.SockFilter)(unsafe.Pointer(&all[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&prog)))
	switch errno {
	case 0:
		_ = unix.Close(int(fd))
		return false, nil
	case unix.EBUSY:
		return true, nil
	}
	return false, &native.LaunchError{Step: "look for a broker", Errno: errno, Wall: native.WallSeccomp}
}

// canRead says whether a file can be opened for reading.
func canRead(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// tryWrite opens a file for writing without changing it, or makes one without a
// name in a directory, which is gone at once.
func (p *point) tryWrite() error {
	const flags = unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	var fd int
	var err error
	if p.file {
		fd, err = unix.Open(p.path, flags, 0)
	} else {
		fd, err = unix.Open(p.path, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// ownProgram is a file that this process surely can read, since it runs it.
func ownProgram() string {
	name, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return name
}
