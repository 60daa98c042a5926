package native

import (
	"errors"
	"os"
	"strings"
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
	g := l.spec.Gate
	if g == nil {
		return
	}
	msg := newRightsMessage(len(l.sockets))
	l.keep = append(l.keep, msg)
	for i, s := range l.sockets {
		l.listen(s, msg.descriptor(i))
	}
	l.begin(WallNetwork, "hand out the gate's sockets", "", "")
	l.send(msg, 0)
	l.call(unix.SYS_CLOSE_RANGE, num(fdSpare), num(uint32(1<<32-1)), num(0))
	if !g.Transparent {
		return
	}
	routes := everywhereRoute(unix.AF_INET)
	if l.hasIPv6() {
		routes = append(routes, everywhereRoute(unix.AF_INET6)...)
	}
	l.netlink("lead every address to the gate", unix.NETLINK_ROUTE, routes)
	l.netlink("capture connections", unix.NETLINK_NETFILTER, captureRules(g))
}

func (l *launcher) hasIPv6() bool { return l.sockets[len(l.sockets)-1].family == unix.AF_INET6 }

// listen makes a listening socket on the sandbox's loopback.
func (l *launcher) listen(s gateSocket, fd *uintptr) {
	l.begin(WallNetwork, "open a socket for the gate", string(s.role), "")
	l.call(unix.SYS_SOCKET, num(s.family), num(s.kind|unix.SOCK_CLOEXEC), num(0)).out = uintptr(unsafe.Pointer(fd))
	if s.family == unix.AF_INET {
		addr := (*unix.RawSockaddrInet4)(l.alloc(unix.SizeofSockaddrInet4))
		*addr = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swapped(s.port), Addr: [4]byte{127, 0, 0, 1}}
		l.call(unix.SYS_BIND, from(fd), l.ptr(unsafe.Pointer(addr)), num(unix.SizeofSockaddrInet4))
	} else {
		addr := (*unix.RawSockaddrInet6)(l.alloc(unix.SizeofSockaddrInet6))
		*addr = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swapped(s.port), Addr: [16]byte{15: 1}}
		l.call(unix.SYS_BIND, from(fd), l.ptr(unsafe.Pointer(addr)), num(unix.SizeofSockaddrInet6))
	}
	if s.kind == unix.SOCK_STREAM {
		l.call(unix.SYS_LISTEN, from(fd), num(unix.SOMAXCONN))
	}
}

func swapped(port uint16) uint16 { return port<<8 | port>>8 }

// netlink sends messages to the kernel and insists on a good answer to the last.
// The answer says 0 where an error has its number. There is no system call that
// fails for a number in memory; this one of futex comes close: it does nothing,
// and that only if the number is the expected one.
func (l *launcher) netlink(verb string, family int, messages []byte) {
	const answerSize, errorAt = 4096, 16
	l.begin(WallCapture, verb, "", "")
	fd := l.result(l.call(unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(family)))
	l.call(unix.SYS_SENDTO, from(fd), l.ptr(unsafe.Pointer(&messages[0])), num(len(messages)), num(0), num(0), num(0))
	l.keep = append(l.keep, messages)
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
	return errors.As(err, &launch) && launch.Wall == WallCapture && s.Gate != nil && s.Gate.Transparent && !s.Gate.Must
}

// startUncaptured starts again where the kernel cannot capture connections.
func startUncaptured(s *spec.Spec, o Options) (*Process, error) {
	without, gate := *s, *s.Gate
	gate.Transparent = false
	without.Gate = &gate
	p, err := Start(&without, o)
	if err == nil {
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

// hasIPv6 says whether new network namespaces have IPv6.
func hasIPv6() bool {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return false
	}
	for _, name := range []string{"all", "default"} {
		text, err := readFile("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6")
		if err != nil || strings.TrimSpace(text) != "0" {
			return false
		}
	}
	return true
}

// needsGateSockets returns what a Spec's gate listens on.
func needsGateSockets(s *spec.Spec) []gateSocket {
	if s.Gate == nil {
		return nil
	}
	return gateSockets(s.Gate, s.Gate.Transparent && hasIPv6())
}
