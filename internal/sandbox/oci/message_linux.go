package oci

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Receive takes a message from a socket, and what comes with it.
func Receive(fd int, text, rights []byte) (n, rn int, err error) {
	for {
		n, rn, _, _, err = unix.Recvmsg(fd, text, rights, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, rn, os.NewSyscallError("recvmsg", err)
		}
	}
}

// Descriptors are those that came with a message.
func Descriptors(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("no descriptors came")
	}
	return unix.ParseUnixRights(&messages[0])
}

// Umask returns the file mode mask, which can only be read by setting it.
func Umask() int {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return mask
}
