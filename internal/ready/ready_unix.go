//go:build unix

package ready

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Copy returns a descriptor once more, as something Wait can wait for. Closing it
// ends the waiting.
func Copy(fd int) (*os.File, error) {
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(copied, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(copied))
	}
	return os.NewFile(uintptr(copied), "copy"), nil
}

// Wait returns true when there is something to read, and false when there never
// will be, or the file was closed.
func Wait(f *os.File) (found bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(fds, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			found = err == nil && fds[0].Revents&unix.POLLIN != 0
			return found || err != nil || fds[0].Revents != 0
		}
	})
	return found && err == nil
}
