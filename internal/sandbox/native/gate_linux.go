package native

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Listener is a socket in the sandbox's network that the gate is to serve.
type Listener struct {
	Role config.Role
	File *os.File
}

// gateway makes the sockets that lead to the gate, hands them out, and leads the
// sandbox's connections there. The sandbox itself has none of them.
func (l *launcher) gateway() {
	if len(l.sockets) == 0 {
		return
	}
	msg := l.message(len(l.sockets))
	for i, s := range l.sockets {
		l.listen(s, msg.descriptor(i))
	}
	l.begin(WallNetwork, "hand out the gate's sockets", "", "")
	l.send(msg, 0)
	l.call(unix.SYS_CLOSE_RANGE, num(fdSpare), num(uint32(1<<32-1)), num(0))
	l.lowPorts()
	g := l.spec.Gate
	if g == nil || !g.Transparent {
		return
	}
	routes := everywhereRoute(unix.AF_INET)
	if l.hasIPv6() {
		routes = append(routes, everywhereRoute(unix.AF_INET6)...)
	}
	l.netlink("lead every address to the gate", unix.NETLINK_ROUTE, routes)
	l.netlink("capture connections", unix.NETLINK_NETFILTER, captureRules(g))
}

func (l *launcher) hasIPv6() bool {
	return slices.ContainsFunc(l.sockets, func(s gateSocket) bool { return s.family == unix.AF_INET6 })
}

// listen makes a socket of the gate's in the sandbox, on loopback or at a path.
func (l *launcher) listen(s gateSocket, fd *uintptr) {
	wall := WallNetwork
	switch s.family {
	case unix.AF_INET6:
		wall = wallIPv6
	case unix.AF_NETLINK:
		wall = WallCapture
	}
	l.begin(wall, "open a socket for the gate", string(s.role), "")
	l.call(unix.SYS_SOCKET, num(s.family), num(s.kind|unix.SOCK_CLOEXEC), num(s.proto)).out = uintptr(unsafe.Pointer(fd))
	switch s.role {
	case config.RoleRejected:
		message := wantLog()
		l.call(unix.SYS_SENDTO, from(fd), l.bytes(message), num(len(message)), num(0), num(0), num(0))
		return
	case config.RoleSeed, config.RolePeers:
		return
	}
	addr, size := l.addressOf(s)
	l.call(unix.SYS_BIND, from(fd), addr, num(size))
	if s.kind == unix.SOCK_STREAM {
		l.call(unix.SYS_LISTEN, from(fd), num(unix.SOMAXCONN))
	}
}

// addressOf is where a socket is bound to.
func (l *launcher) addressOf(s gateSocket) (at arg, size int) {
	switch s.family {
	case unix.AF_UNIX:
		l.ensureDir(path.Dir(s.path))
		addr := (*unix.RawSockaddrUnix)(l.alloc(unix.SizeofSockaddrUnix))
		addr.Family = unix.AF_UNIX
		for i := range len(s.path) {
			addr.Path[i] = int8(s.path[i])
		}
		return l.ptr(unsafe.Pointer(addr)), unix.SizeofSockaddrUnix
	case unix.AF_INET6:
		addr := (*unix.RawSockaddrInet6)(l.alloc(unix.SizeofSockaddrInet6))
		*addr = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swapped(s.port), Addr: [16]byte{15: 1}}
		return l.ptr(unsafe.Pointer(addr)), unix.SizeofSockaddrInet6
	}
	addr := (*unix.RawSockaddrInet4)(l.alloc(unix.SizeofSockaddrInet4))
	*addr = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swapped(s.port), Addr: [4]byte{127, 0, 0, 1}}
	return l.ptr(unsafe.Pointer(addr)), unix.SizeofSockaddrInet4
}

// firstFreePort is the lowest that a program without privileges may have, unless
// something else is said.
const firstFreePort = 1024

// lowPorts lets the command have the ports that are exposed, which without
// capabilities it could not if they are low. The kernel keeps this for each
// network by itself, under the host's name for it.
func (l *launcher) lowPorts() {
	lowest := uint16(firstFreePort)
	for _, e := range l.spec.Expose {
		lowest = min(lowest, e.Inside)
	}
	if lowest == firstFreePort {
		return
	}
	const name = "proc/sys/net/ipv4/ip_unprivileged_port_start"
	l.begin(WallNetwork, "let the command listen on port", strconv.Itoa(int(lowest)), "")
	text := strconv.Itoa(int(lowest))
	fd := l.result(l.call(unix.SYS_OPENAT, num(fdOld), l.str(name), num(unix.O_WRONLY|unix.O_CLOEXEC), num(0)))
	l.call(unix.SYS_WRITE, from(fd), l.str(text), num(len(text)))
	l.call(unix.SYS_CLOSE, from(fd))
}

func swapped(port uint16) uint16 { return port<<8 | port>>8 }

// netlink sends messages to the kernel and insists on a good answer to the last.
// The answer says 0 where an error has its number. There is no system call that
// fails for a number in memory; this one of futex comes close: it does nothing,
// and that only if the number is the expected one.
func (l *launcher) netlink(verb string, family int, messages []byte) {
	const answerSize, errorAt = 64, 16 // what follows is the question
	l.begin(WallCapture, verb, "", "")
	fd := l.result(l.call(unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(family)))
	l.call(unix.SYS_SENDTO, from(fd), l.bytes(messages), num(len(messages)), num(0), num(0), num(0))
	for range count(messages) {
		answer := (*[answerSize]byte)(l.alloc(answerSize))
		l.call(unix.SYS_RECVFROM, from(fd), l.ptr(unsafe.Pointer(answer)), num(answerSize), num(0), num(0), num(0))
		const cmpRequeue = 4 // FUTEX_CMP_REQUEUE
		at := l.ptr(unsafe.Pointer(&answer[errorAt]))
		l.call(unix.SYS_FUTEX, at, num(cmpRequeue), num(0), num(0), at, num(0))
	}
	l.call(unix.SYS_CLOSE, from(fd))
}

// isOptional says whether the sandbox may be built without what failed.
func isOptional(s *spec.Spec, err error) bool {
	var launch *LaunchError
	return errors.As(err, &launch) && launch.Wall == WallCapture && s.Gate != nil && (!s.Gate.Silent || s.Gate.Transparent && !s.Gate.Must)
}

// startUncaptured starts again where the kernel cannot tell what happens in a
// network, and then where it cannot capture connections.
func startUncaptured(s *spec.Spec, o Options) (*Process, error) {
	return withoutCapture(s, func(s *spec.Spec) (*Process, error) { return Start(s, o) })
}

func withoutCapture(s *spec.Spec, start func(*spec.Spec) (*Process, error)) (*Process, error) {
	without, gate := *s, *s.Gate
	gate.Transparent = gate.Transparent && !gate.Silent
	gate.Silent = true
	without.Gate = &gate
	p, err := start(&without)
	if err == nil && s.Gate.Transparent && !gate.Transparent {
		p.Uncaptured = true
	}
	return p, err
}

// refusal is the error in an answer of the kernel.
func refusal(at uintptr) unix.Errno {
	return unix.Errno(-*(*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&at)))) // the plan keeps the memory
}

// count is how many messages want an answer.
func count(messages []byte) (n int) {
	for at := 0; at < len(messages); {
		h := (*unix.NlMsghdr)(unsafe.Pointer(&messages[at]))
		if h.Flags&unix.NLM_F_ACK != 0 {
			n++
		}
		at += int(h.Len)
	}
	return n
}

// receiveListeners takes the gate's sockets.
func receiveListeners(sock int, sockets []gateSocket) []Listener {
	fds := receiveDescriptors(sock, len(sockets))
	var list []Listener
	for i, fd := range fds {
		list = append(list, Listener{sockets[i].role, os.NewFile(uintptr(fd), string(sockets[i].role))})
	}
	return list
}

// hasIPv6 says whether the kernel knows IPv6 at all. Whether a new network has it
// is known when it is there; to read what decides about that would take longer
// than all sockets together.
func hasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// lacksIPv6 says whether a sandbox failed because its network has no IPv6.
func lacksIPv6(err error) bool {
	var launch *LaunchError
	return errors.As(err, &launch) && launch.Wall == wallIPv6
}

// gateSocketsFor returns what a Spec's gate listens on.
func (o *Options) gateSocketsFor(s *spec.Spec) []gateSocket {
	if !s.NeedsGate() {
		return nil
	}
	both := s.Gate != nil && s.Gate.Transparent || s.HasInlet()
	return gateSockets(s, both && !o.onlyIPv4 && hasIPv6())
}
