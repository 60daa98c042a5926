package probe

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// answerMillis is how long a connection may take that should fail at once.
const answerMillis = 150

// sockaddr returns an address in the kernel's form, and its family.
func sockaddr(host string, port int) (int, unix.Sockaddr, error) {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return 0, nil, unix.EINVAL
	case addr.Is4():
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: addr.As4()}, nil
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: addr.As16()}, nil
}

func connectTCP(host string, port int) error {
	family, addr, err := sockaddr(host, port)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, addr); err != unix.EINPROGRESS {
		return err
	}
	if !ready(fd, unix.POLLOUT, answerMillis) {
		return unix.ETIMEDOUT
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || errno == 0 {
		return err
	}
	return unix.Errno(errno)
}

// ready waits until a descriptor can be used.
func ready(fd int, events int16, millis int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds, millis)
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

// sendUDP sends one byte, both ways a datagram can be addressed.
func sendUDP(host string, port int) error {
	family, addr, err := sockaddr(host, port)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, []byte{0}, 0, addr); err == nil {
		return nil
	}
	if err := unix.Connect(fd, addr); err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte{0})
	return err
}

// connectUnix connects to a path, or to an abstract name if it begins with @.
func connectUnix(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

// ownTCP connects to a listener of the prober's own.
func ownTCP() error {
	fd, port, err := listen("127.0.0.1", unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := connectTCP("127.0.0.1", port); err != nil {
		return err
	}
	return arrived(fd, unix.SOCK_STREAM)
}

func ownUnix(name string) error {
	fd, err := listenUnix(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if name[0] != '@' {
		defer func() { _ = unix.Unlink(name) }()
	}
	if err := connectUnix(name); err != nil {
		return err
	}
	return arrived(fd, unix.SOCK_STREAM)
}

// listen opens a socket on a free port, and says which.
func listen(host string, kind int) (fd, port int, err error) {
	family, addr, err := sockaddr(host, 0)
	if err != nil {
		return -1, 0, err
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, 0, err
	}
	if err = unix.Bind(fd, addr); err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 4)
	}
	if err == nil {
		addr, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	switch a := addr.(type) {
	case *unix.SockaddrInet4:
		port = a.Port
	case *unix.SockaddrInet6:
		port = a.Port
	}
	return fd, port, nil
}

func listenUnix(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// arrived returns nil if somebody has reached the socket.
func arrived(fd, kind int) error {
	if kind == unix.SOCK_STREAM {
		peer, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		return closing(peer, err)
	}
	_, _, err := unix.Recvfrom(fd, make([]byte, 1), 0)
	return err
}
