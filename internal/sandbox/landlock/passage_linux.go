package landlock

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/mint"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// passage leads the command's connections to the network gate; see the comment of
// the package.
type passage struct {
	near *os.File // where connections are handed to the gate
	far  *os.File // where the gate takes them
	gate *spec.Gate
}

func newPassage(gate *spec.Gate) (*passage, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return &passage{os.NewFile(uintptr(pair[0]), "passage"), os.NewFile(uintptr(pair[1]), "passage"), gate}, nil
}

// listeners are what the gate is to take over.
func (p *passage) listeners() []native.Listener {
	if p == nil {
		return nil
	}
	return []native.Listener{{Role: config.RoleHanded, File: p.far}}
}

func (p *passage) close() {
	if p != nil {
		_ = p.near.Close()
		_ = p.far.Close() // whoever took it over has closed it already
	}
}

// lead returns a connection that stands for one to the given address: its other
// end is the gate's, which is told what was wanted and decides. What the gate
// could only deny is denied here, since a program that has a connection takes it
// for success. It may be called by several threads at once.
func (p *passage) lead(address []byte, pid int) (int, *broker.Denial, unix.Errno) {
	to, errno := parseAddress(address)
	if errno != 0 {
		return -1, nil, errno
	}
	if !leadsOn(p.gate, to) {
		return -1, deny(p.gate, to), errnoFor(to)
	}
	inside, outside, errno := connectedPair(family(address))
	if errno != 0 {
		return -1, nil, errno
	}
	defer func() { _ = unix.Close(outside) }()
	role := config.RoleTCP
	if to == proxy {
		role = config.RoleMixed
	}
	text := string(role) + " " + to.String() + " " + strconv.Itoa(pid)
	if err := unix.Sendmsg(int(p.near.Fd()), []byte(text), unix.UnixRights(outside), nil, unix.MSG_NOSIGNAL); err != nil {
		_ = unix.Close(inside)
		return -1, nil, unix.ECONNREFUSED // there is no gate any more
	}
	return inside, nil, 0
}

// proxy is where the variables say that the gate is. Nothing listens there.
var proxy = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), spec.GateProxyPort)

func family(address []byte) uint16 { return binary.NativeEndian.Uint16(address) }

// parseAddress reads a struct sockaddr. Nowhere in particular is this machine, as
// the kernel has it.
func parseAddress(address []byte) (to netip.AddrPort, errno unix.Errno) {
	if len(address) < 2 {
		return to, unix.EINVAL
	}
	var at netip.Addr
	switch family(address) {
	case unix.AF_INET:
		if len(address) < unix.SizeofSockaddrInet4 {
			return to, unix.EINVAL
		}
		at = netip.AddrFrom4([4]byte(address[4:8]))
		if at.IsUnspecified() {
			at = proxy.Addr()
		}
	case unix.AF_INET6:
		if len(address) < unix.SizeofSockaddrInet6 {
			return to, unix.EINVAL
		}
		if at = netip.AddrFrom16([16]byte(address[8:24])).Unmap(); at.IsUnspecified() {
			at = netip.IPv6Loopback()
		}
	default:
		return to, unix.EAFNOSUPPORT
	}
	return netip.AddrPortFrom(at, binary.BigEndian.Uint16(address[2:])), 0
}

// connectedPair makes two sockets of TCP that are connected with each other. The
// listener in between is there for that moment only, on a port that nobody knows,
// and whoever finds it nevertheless is turned away.
func connectedPair(family uint16) (inside, outside int, errno unix.Errno) {
	here := loopback(family)
	listener, err := unix.Socket(int(family), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, -1, native.ErrnoOf(err)
	}
	defer func() { _ = unix.Close(listener) }()
	if err = unix.Bind(listener, here); err == nil {
		err = unix.Listen(listener, 16)
	}
	if err == nil {
		here, err = unix.Getsockname(listener)
	}
	if err == nil {
		inside, err = unix.Socket(int(family), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	}
	if err != nil {
		return -1, -1, native.ErrnoOf(err)
	}
	if err = connectTo(inside, here); err == nil {
		outside, err = acceptFrom(listener, inside)
	}
	if err != nil {
		_ = unix.Close(inside)
		return -1, -1, native.ErrnoOf(err)
	}
	// The command's socket may have had it, and it is too late to ask that one.
	_ = unix.SetsockoptInt(inside, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return inside, outside, 0
}

// connectTo connects, whatever signals come.
func connectTo(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	if !errors.Is(err, unix.EINTR) {
		return err
	}
	for { // it goes on by itself
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// acceptFrom takes connections until the one of our own socket comes.
func acceptFrom(listener, own int) (int, error) {
	name, err := unix.Getsockname(own)
	if err != nil {
		return -1, err
	}
	for {
		fd, from, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return -1, err
		case mint.IsSame(from, name):
			return fd, nil
		}
		_ = unix.Close(fd)
	}
}

// loopback is any port of it. Sockets of IPv6 use that of IPv4, which is there
// where the other is switched off.
func loopback(family uint16) unix.Sockaddr {
	at := proxy.Addr()
	if family == unix.AF_INET6 {
		return &unix.SockaddrInet6{Addr: at.As16()}
	}
	return &unix.SockaddrInet4{Addr: at.As4()}
}

// gateRules are for a command whose connections all go through the gate. It makes
// sockets of TCP and nothing else, asks the broker to connect them, and sends to
// nobody but to whom they are connected. What would lead packets elsewhere than
// to the address that a socket is connected to cannot be set.
func gateRules(rules []seccomp.Rule) []seccomp.Rule {
	fail := func(errno unix.Errno) seccomp.Action { return seccomp.Fail(uint16(errno)) }
	rules = put(rules, seccomp.Rule{Nr: unix.SYS_CONNECT, Else: seccomp.Notify})
	for _, nr := range []uint32{unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4} {
		rules = put(rules, seccomp.Rule{Nr: nr, Else: fail(unix.EACCES)})
	}
	rules = put(rules, seccomp.Rule{
		Nr: unix.SYS_SOCKET,
		Checks: []seccomp.Check{
			{
				Arg: 0, Test: seccomp.NotEqual, Mask: all, Value: seccomp.FamilyInet,
				And:  &seccomp.Check{Arg: 0, Test: seccomp.NotEqual, Mask: all, Value: seccomp.FamilyInet6},
				Then: fail(unix.EAFNOSUPPORT),
			},
			{Arg: 1, Test: seccomp.NotEqual, Mask: 0xf, Value: unix.SOCK_STREAM, Then: fail(unix.EPROTONOSUPPORT)}, // the rest are flags
			{Arg: 2, Mask: all, Value: 0, Then: seccomp.Allow},
			{Arg: 2, Mask: all, Value: unix.IPPROTO_TCP, Then: seccomp.Allow},
		},
		Else: fail(unix.EPROTONOSUPPORT),
	})
	for nr, flags := range map[uint32]int{unix.SYS_SENDTO: 3, unix.SYS_SENDMSG: 2, unix.SYS_SENDMMSG: 3} {
		rules = put(rules, seccomp.Rule{
			Nr:     nr,
			Checks: []seccomp.Check{{Arg: flags, Test: seccomp.AnySet, Mask: unix.MSG_FASTOPEN, Then: fail(unix.EOPNOTSUPP)}},
			Else:   seccomp.Allow,
		})
	}
	return put(rules, optionRule(fail(unix.ENOPROTOOPT)))
}

// optionRule refuses options of sockets by which packets would take another way:
// through a device that is not loopback, by a route of the sender's choice, or
// before a connection stands.
func optionRule(refused seccomp.Action) seccomp.Rule {
	r := seccomp.Rule{Nr: unix.SYS_SETSOCKOPT, Else: refused}
	at := func(level uint32, then seccomp.Action, options ...uint32) {
		for _, o := range options {
			r.Checks = append(r.Checks, seccomp.Check{Arg: 1, Mask: all, Value: level, And: &seccomp.Check{Arg: 2, Mask: all, Value: o}, Then: then})
		}
	}
	at(unix.SOL_SOCKET, refused, unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX, unix.SO_DONTROUTE, unix.SO_MARK)
	at(unix.IPPROTO_TCP, refused, unix.TCP_FASTOPEN, unix.TCP_FASTOPEN_CONNECT, unix.TCP_ULP, unix.TCP_REPAIR)
	at(unix.IPPROTO_IP, seccomp.Allow, unix.IP_TOS, unix.IP_TTL, unix.IP_RECVERR)
	at(unix.IPPROTO_IPV6, seccomp.Allow, unix.IPV6_V6ONLY, unix.IPV6_TCLASS, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR)
	for _, level := range []uint32{unix.SOL_SOCKET, unix.IPPROTO_TCP} {
		r.Checks = append(r.Checks, seccomp.Check{Arg: 1, Mask: all, Value: level, Then: seccomp.Allow})
	}
	return r
}

// refuseGate refuses what the gate cannot do for a command in everybody's network.
func (c *check) refuseGate() {
	const fix = "remove it, or " + Elsewhere
	g := c.spec.Gate
	if g.Must {
		c.refuse("network.transparent", "true", "without a network namespace names are only found by programs that go by the proxy variables", fix)
	}
	if g.Socket != "" {
		c.refuse("network.egress", "socket", "needs a mount namespace", fix)
	}
	if c.allowsUnix() {
		c.refuse("network.allowAllUnixSockets", "", "sockets of the host would be a way around the gate", fix)
	}
}

// refuseSockets refuses streams that the command could connect to a socket of the
// host. Those of other kinds than unix sockets are refused by every runtime.
func (c *check) refuseSockets(streams [3]*os.File) {
	if c.allowsUnix() {
		return
	}
	for i, f := range streams {
		if _, err := unix.Getpeername(int(f.Fd())); errors.Is(err, unix.ENOTCONN) {
			c.refuse([...]string{"stdin", "stdout", "stderr"}[i], "", "is a socket that is not connected, and could be to one of the host's", "give it through a pipe")
		}
	}
}

// netRights are what Landlock knows of TCP.
const netRights = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
