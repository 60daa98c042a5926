package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/mint"
)

// Dialer connects to ports on the loopback of one sandbox. It may be used by
// several goroutines at once.
type Dialer struct {
	mints []*mint.Mint
}

// Add takes over two sockets of TCP of one family: one that listens on loopback,
// and one that is not connected. What is added first is tried first.
func (d *Dialer) Add(listener, seed int) error {
	m, err := mint.New(listener, seed)
	if err != nil {
		return err
	}
	d.mints = append(d.mints, m)
	return nil
}

// Dial connects to a port. Of several families the first is used in which
// somebody listens.
func (d *Dialer) Dial(port uint16, patience time.Duration) (*net.TCPConn, error) {
	if len(d.mints) == 0 {
		return nil, errors.New("there is no way into the sandbox's network")
	}
	var first error
	for _, m := range d.mints {
		c, err := dial(m, port, patience)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	return nil, first
}

func dial(m *mint.Mint, port uint16, patience time.Duration) (*net.TCPConn, error) {
	deadline := time.Now().Add(patience)
	fd, err := m.Socket(deadline)
	if err != nil {
		return nil, fmt.Errorf("make a socket inside: %w", err)
	}
	err = unix.Connect(fd, m.At(port))
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	f := os.NewFile(uintptr(fd), "inside")
	defer f.Close() // package net keeps a descriptor of its own
	if err := awaitConnected(f, deadline); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("not a socket of TCP")
	}
	return tcp, nil
}

// awaitConnected waits until a connection stands or cannot be made, without a
// thread.
func awaitConnected(f *os.File, deadline time.Time) error {
	if err := f.SetWriteDeadline(deadline); err != nil {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			failed = err
			return true
		}
		if code != 0 {
			failed = unix.Errno(code)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(failed, err)
}
