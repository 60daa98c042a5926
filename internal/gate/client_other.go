//go:build !linux

package gate

import (
	"net"

	"github.com/bailey-sandbox/bailey/internal/gate/owner"
)

func peerOf(*net.UnixConn) owner.Process { return owner.Process{} }

// whenGone is for systems that tell; elsewhere the question stands until nobody
// waits for it any more.
func whenGone(net.Conn, func()) (stop func()) { return func() {} }
