package native

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// OpenGate does for a network that somebody else has made, and that the calling thread is
// in, what a launch does in its own: it opens the ports that lead to the gate of a Spec, and
// leads the network's connections there. The thread must have that network's privileges.
// Where the kernel cannot capture connections, a Spec that wants them captured fails.
func OpenGate(s *spec.Spec) (list []Listener, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, l := range list {
			_ = l.File.Close()
		}
		list = nil
	}()
	ipv6 := (s.Gate != nil && s.Gate.Transparent || s.HasInlet()) && hasIPv6()
	for _, g := range gateSockets(s, ipv6) {
		fd, err := g.open()
		if g.family == unix.AF_INET6 && errors.Is(err, unix.EADDRNOTAVAIL) {
			ipv6 = false // this network has none
			continue
		}
		if err != nil {
			return list, &LaunchError{Step: "open a socket for the gate " + string(g.role), Errno: ErrnoOf(err), Wall: WallNetwork}
		}
		list = append(list, Listener{g.role, os.NewFile(uintptr(fd), string(g.role))})
	}
	if err := openLowPorts(s); err != nil {
		return list, err
	}
	return list, capture(s, ipv6)
}

// open makes a socket of the gate's.
func (g *gateSocket) open() (int, error) {
	fd, err := unix.Socket(g.family, g.kind|unix.SOCK_CLOEXEC, g.proto)
	if err != nil {
		return -1, err
	}
	var at unix.Sockaddr = &unix.SockaddrInet4{Port: int(g.port), Addr: [4]byte{127, 0, 0, 1}}
	switch {
	case g.role == config.RoleRejected:
		err = unix.Sendto(fd, wantLog(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		at = nil
	case g.role == config.RoleSeed || g.role == config.RolePeers:
		at = nil
	case g.family == unix.AF_INET6:
		at = &unix.SockaddrInet6{Port: int(g.port), Addr: [16]byte{15: 1}}
	}
	if err == nil && at != nil {
		err = unix.Bind(fd, at)
	}
	if err == nil && at != nil && g.kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openLowPorts lets the command have the ports that are exposed; see lowPorts.
func openLowPorts(s *spec.Spec) error {
	lowest := uint16(firstFreePort)
	for _, e := range s.Expose {
		lowest = min(lowest, e.Inside)
	}
	if lowest == firstFreePort {
		return nil
	}
	err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte(strconv.Itoa(int(lowest))), 0)
	if err != nil {
		return &LaunchError{Step: "let the command listen on port " + strconv.Itoa(int(lowest)), Errno: ErrnoOf(err), Wall: WallNetwork}
	}
	return nil
}

// capture leads connections to anywhere to the gate, if a Spec wants that.
func capture(s *spec.Spec, ipv6 bool) error {
	if s.Gate == nil || !s.Gate.Transparent {
		return nil
	}
	routes := everywhereRoute(unix.AF_INET)
	if ipv6 {
		routes = append(routes, everywhereRoute(unix.AF_INET6)...)
	}
	for _, part := range []struct {
		verb     string
		family   int
		messages []byte
	}{
		{"lead every address to the gate", unix.NETLINK_ROUTE, routes},
		{"capture connections", unix.NETLINK_NETFILTER, captureRules(s.Gate)},
	} {
		if err := askKernel(part.family, part.messages); err != nil {
			return &LaunchError{Step: part.verb, Errno: ErrnoOf(err), Wall: WallCapture}
		}
	}
	return nil
}

// askKernel sends netlink messages, and waits for the answer to each that wants one.
func askKernel(family int, messages []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for range count(messages) {
		answer := make([]byte, 4096)
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return err
		}
		if n < unix.NLMSG_HDRLEN+4 {
			return unix.EBADMSG
		}
		if errno := -int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
			return unix.Errno(errno)
		}
	}
	return nil
}
