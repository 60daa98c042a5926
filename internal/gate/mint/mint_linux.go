package mint

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mint makes sockets of TCP of one family in one network. Several goroutines may
// use it at once, but no two processes.
type Mint struct {
	mu       sync.Mutex // one connection between the two at a time
	listener int
	seed     int
	at       unix.Sockaddr // of the listener
}

// New takes two sockets of TCP of one family: one that listens on loopback, and
// one that is not connected. They stay the caller's to close.
func New(listener, seed int) (*Mint, error) {
	at, err := unix.Getsockname(listener)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	for _, fd := range []int{listener, seed} {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	// Whoever had it before may have been killed in the middle of Socket.
	if err := disconnect(seed); err != nil {
		return nil, err
	}
	return &Mint{listener: listener, seed: seed, at: at}, nil
}

// At is where a port is on the loopback of the sandbox.
func (m *Mint) At(port uint16) unix.Sockaddr {
	switch a := m.at.(type) {
	case *unix.SockaddrInet4:
		return &unix.SockaddrInet4{Port: int(port), Addr: a.Addr}
	case *unix.SockaddrInet6:
		return &unix.SockaddrInet6{Port: int(port), Addr: a.Addr}
	}
	return m.at
}

// Pair makes the two sockets of another Mint, at a free port.
func (m *Mint) Pair(deadline time.Time) (listener, seed int, err error) {
	if listener, err = m.Socket(deadline); err != nil {
		return -1, -1, err
	}
	if err = unix.Bind(listener, m.At(0)); err == nil {
		err = unix.Listen(listener, unix.SOMAXCONN)
	}
	if err == nil {
		seed, err = m.Socket(deadline)
	}
	if err != nil {
		_ = unix.Close(listener)
		return -1, -1, err
	}
	return listener, seed, nil
}

// Socket returns a new socket that is not connected.
func (m *Mint) Socket(deadline time.Time) (int, error) {
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
func (m *Mint) acceptFrom(own unix.Sockaddr, deadline time.Time) (int, error) {
	for {
		fd, from, err := unix.Accept4(m.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == nil && IsSame(from, own):
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

// IsSame compares two ends of connections over loopback.
func IsSame(a, b unix.Sockaddr) bool {
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
