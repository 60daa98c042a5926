//go:build !linux

package transport

import "net"

// lookAt knows nothing of peers here, so that every request needs a token.
func lookAt(*net.UnixConn) peer { return peer{unix: true} }
