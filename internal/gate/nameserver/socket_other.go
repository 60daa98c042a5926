//go:build !linux

package nameserver

import "net"

// replyFromSameAddress does nothing: packets are redirected on Linux only.
func replyFromSameAddress(*net.UDPConn) {}
