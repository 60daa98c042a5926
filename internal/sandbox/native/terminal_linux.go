package native

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Terminal asks for a pseudo-terminal of the sandbox's own.
type Terminal struct {
	// Streams says which of stdin, stdout and stderr it replaces.
	Streams [3]bool
	// Termios and Size are its first settings, if not nil.
	Termios *unix.Termios
	Size    *unix.Winsize
}

// stream returns the first descriptor that is the terminal, or -1.
func (t *Terminal) stream() int {
	if t != nil {
		for i, use := range t.Streams {
			if use {
				return i
			}
		}
	}
	return -1
}

// rightsMessage is a message of one byte that carries descriptors, laid out so
// that the child can fill in their numbers.
type rightsMessage struct {
	hdr  unix.Msghdr
	iov  unix.Iovec
	data byte
	cmsg unix.Cmsghdr
	fds  [maxGateSockets + 2]int32 // the last call writes eight bytes
}

const maxGateSockets = 16

// message makes one for n descriptors in the plan's memory.
func (p *plan) message(n int) *rightsMessage {
	m := (*rightsMessage)(p.alloc(int(unsafe.Sizeof(rightsMessage{}))))
	m.iov.Base = &m.data
	m.iov.SetLen(1)
	m.hdr.Iov = &m.iov
	m.hdr.SetIovlen(1)
	m.hdr.Control = (*byte)(unsafe.Pointer(&m.cmsg))
	m.hdr.SetControllen(unix.CmsgSpace(4 * n))
	m.cmsg.Level = unix.SOL_SOCKET
	m.cmsg.Type = unix.SCM_RIGHTS
	m.cmsg.SetLen(unix.CmsgLen(4 * n))
	for _, address := range []unsafe.Pointer{unsafe.Pointer(&m.iov.Base), unsafe.Pointer(&m.hdr.Iov), unsafe.Pointer(&m.hdr.Control)} {
		p.inner = append(p.inner, (*uintptr)(address))
	}
	return m
}

// pointer is the message as system calls want it.
func (m *rightsMessage) pointer() unsafe.Pointer { return unsafe.Pointer(&m.hdr) }

// descriptor is where the number of a descriptor goes, in order. Of the 64 bits
// the upper half is that of the next one, which is zero until that is there.
func (m *rightsMessage) descriptor(i int) *uintptr { return (*uintptr)(unsafe.Pointer(&m.fds[i])) }

// receiveDescriptor takes the descriptor the child sent, or -1 if it never did.
func receiveDescriptor(sock int) int {
	if fds := receiveDescriptors(sock, 1); fds != nil {
		return fds[0]
	}
	return -1
}

// receiveDescriptors takes descriptors that the child sent in one message, or
// nil if it never did.
func receiveDescriptors(sock, count int) []int {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4*count))
	for {
		_, n, _, _, err := unix.Recvmsg(sock, data[:], control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil
		}
		msgs, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(msgs) != 1 {
			return nil
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != count {
			return nil
		}
		return fds
	}
}
