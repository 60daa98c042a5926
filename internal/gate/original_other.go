//go:build !linux

package gate

import (
	"errors"
	"net"
	"net/netip"
)

// originalDestination does not exist: connections are redirected on Linux only.
func originalDestination(*net.TCPConn) (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.ErrUnsupported
}
