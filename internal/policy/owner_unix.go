//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package policy

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

func fileOwner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// lockFile waits until no other process holds the lock. It ends with the
// descriptor.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
