//go:build unix

package gate

import (
	"net"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/gate/relay"
)

// isOpen says whether the other end has not closed a connection that is kept. It
// may do so at any moment, but mostly has done so long ago.
func isOpen(c net.Conn) bool {
	raw, ok := relay.Raw(c).(syscall.Conn)
	if !ok {
		return true
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = control.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = n > 0 || err == syscall.EAGAIN
		return true // do not wait
	})
	return err == nil && open
}
