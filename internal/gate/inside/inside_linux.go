package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dialer connects to ports on the loopback of one sandbox. It may be used by
// several goroutines at once.
type Dialer struct {
	mints []*mint
}

// Add takes over two sockets of TCP of one family: one that listens on loopback,
// and one that is not connected. What is added first is tried first.
func (d *Dialer) Add(listener, seed int) error {
	at, err := unix.Getsockname(listener)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	for _, fd := range []int{listener, seed} {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	d.mints = append(d.mints, &mint{listener: listener, seed: seed, at: at})
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
		c, err := m.dial(port, patience)
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

// mint makes sockets of one family.
type mint struct {
	mu       sync.Mutex // one connection between the two at a time
	listener int
	seed     int
	at       unix.Sockaddr // of the listener
}

func (m *mint) dial(port uint16, patience time.Duration) (*net.TCPConn, error) {
	deadline := time.Now().Add(patience)
	fd, err := m.socket(deadline)
	if err != nil {
		return nil, fmt.Errorf("make a socket inside: %w", err)
	}
	err = unix.Connect(fd, withPort(m.at, port))
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

// socket returns a new socket that is not connected.
func (m *mint) socket(deadline time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := unix.Connect(m.seed, m.at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, os.NewSyscallError("connect", err)
	}
	defer func() { _ = disconnect(m.seed) }() // if it fails, so does the next connect
	own, err := unix.Getsockname(m.seed)
	if err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	}
	fd, err := m.acceptFrom(own, deadline)
	if err != nil {
		return -1, err
	}
	if err := disconnect(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// acceptFrom accepts the connection from an address. Programs of the sandbox can
// connect to the listener too; they are turned away.
func (m *mint) acceptFrom(own unix.Sockaddr, deadline time.Time) (int, error) {
	for {
		fd, from, err := unix.Accept4(m.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == nil && isSame(from, own):
			return fd, nil
		case err == nil:
			_ = unix.Close(fd)
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return -1, os.NewSyscallError("accept", err)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return -1, os.ErrDeadlineExceeded
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(m.listener), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return -1, os.NewSyscallError("poll", err)
		}
	}
}

// disconnect ends a connection and keeps the socket.
func disconnect(fd int) error {
	to := unix.RawSockaddr{Family: unix.AF_UNSPEC} // package unix has no form for it
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to))
	if errno != 0 {
		return os.NewSyscallError("disconnect", errno)
	}
	return nil
}

func withPort(at unix.Sockaddr, port uint16) unix.Sockaddr {
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		return &unix.SockaddrInet4{Port: int(port), Addr: a.Addr}
	case *unix.SockaddrInet6:
		return &unix.SockaddrInet6{Port: int(port), Addr: a.Addr}
	}
	return at
}

func isSame(a, b unix.Sockaddr) bool {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		b, ok := b.(*unix.SockaddrInet4)
		return ok && a.Addr == b.Addr && a.Port == b.Port
	case *unix.SockaddrInet6:
		b, ok := b.(*unix.SockaddrInet6)
		return ok && a.Addr == b.Addr && a.Port == b.Port
	}
	return false
}
