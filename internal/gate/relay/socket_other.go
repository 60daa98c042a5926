//go:build !linux

package relay

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

func tellsIdle(net.Conn) bool { return false }

func idleTime(net.Conn) (time.Duration, error) { return 0, errors.ErrUnsupported }

func kernelCopies(io.Writer, io.Reader) direction { return nowhere }

func isGone(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, net.ErrClosed)
}
