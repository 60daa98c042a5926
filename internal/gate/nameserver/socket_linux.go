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
