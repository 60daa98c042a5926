package seatbelt

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// truename asks the file system for the path of a file as it is on disk.
func truename(p string) (string, error) {
	fd, err := unix.Open(p, unix.O_EVTONLY|unix.O_CLOEXEC|unix.O_SYMLINK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buf [unix.PathMax]byte
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPATH, uintptr(unsafe.Pointer(&buf))); errno != 0 {
		return "", errno
	}
	name, _, _ := bytes.Cut(buf[:], []byte{0})
	return string(name), nil
}
