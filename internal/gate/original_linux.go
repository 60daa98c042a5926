package gate

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is the same number for both families.
const soOriginalDst = 80

// originalDestination asks the kernel where a connection was meant to go before
// it was redirected here.
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var to netip.AddrPort
	var callErr error
	if err := raw.Control(func(fd uintptr) { to, callErr = originalOf(int(fd)) }); err != nil {
		return netip.AddrPort{}, err
	}
	return to, callErr
}

// originalOf tries both families: a socket of IPv6 also takes connections of
// IPv4. The structures are those of package unix that are large enough for the
// address the kernel writes.
func originalOf(fd int) (netip.AddrPort, error) {
	if six, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst); err == nil && six.Addr.Family == unix.AF_INET6 {
		return netip.AddrPortFrom(netip.AddrFrom16(six.Addr.Addr).Unmap(), networkOrder(six.Addr.Port)), nil
	}
	four, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	// A sockaddr_in: family, port, address.
	b := four.Multiaddr
	if binary.NativeEndian.Uint16(b[:]) != unix.AF_INET {
		return netip.AddrPort{}, errors.New("the kernel answers with another family")
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
}

func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}
