package relay

import (
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tellsIdle says whether idleTime works for a connection.
func tellsIdle(c net.Conn) bool {
	_, ok := Raw(c).(*net.TCPConn)
	return ok
}

// idleTime is how long no byte came or went. The kernel knows it for every TCP
// connection, so that nobody has to look at the bytes.
func idleTime(c net.Conn) (time.Duration, error) {
	raw, err := Raw(c).(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var callErr error
	if err := raw.Control(func(fd uintptr) {
		info, callErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil {
		return 0, err
	}
	if callErr != nil {
		return 0, callErr
	}
	return time.Duration(min(info.Last_data_recv, info.Last_data_sent)) * time.Millisecond, nil
}

// kernelCopies says whether the bytes of src can go to dst without passing
// through the process.
func kernelCopies(dst io.Writer, src io.Reader) direction {
	_, fromTCP := src.(*net.TCPConn)
	_, fromUnix := src.(*net.UnixConn)
	switch dst.(type) {
	case *net.TCPConn:
		if fromTCP || fromUnix {
			return intoTCP
		}
	case *net.UnixConn:
		if fromTCP {
			return outOfTCP
		}
	}
	return nowhere
}

func isGone(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, net.ErrClosed)
}
