package nameserver

import (
	"net"

	"golang.org/x/sys/unix"
)

// replyFromSameAddress lets the kernel tell where a packet was sent to. Handed
// back with the answer, this makes it the answer's source, as the client and the
// kernel's connection tracking expect even if the socket is bound to every
// address.
func replyFromSameAddress(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	// One of the two does not apply to the socket's family.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

// answerFrom turns what the kernel told with a packet into what it is to be told
// with the answer: that it comes from the address the packet went to. The kernel
// says so itself, but not of a packet that waited before the socket was asked
// to: the first one, for which the gate was started.
func answerFrom(control []byte) []byte {
	const source, destination, end = 4, 8, 12 // in struct in_pktinfo
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= end {
			copy(m.Data[source:destination], m.Data[destination:end]) // in control itself
		}
	}
	return control
}
