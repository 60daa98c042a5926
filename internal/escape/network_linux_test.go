package escape

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// listeners are the host's services: whatever reaches one is counted.
type listeners struct {
	mu   sync.Mutex
	hits map[string]int
	port int // the same for TCP and UDP, over IPv4 and IPv6
}

func (l *listeners) hit(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hits[name]++
}

func (l *listeners) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.hits
	l.hits = map[string]int{}
	return got
}

// expectSilence fails if anything reached the host. A connection is counted
// after it was made, so the host connects to itself, and what came before that
// has been counted then.
func (l *listeners) expectSilence(t *testing.T) {
	t.Helper()
	l.fence(t)
	if got := l.take(); len(got) > 0 {
		t.Errorf("the sandbox reached the host: %v", got)
	}
}

func (l *listeners) fence(t *testing.T) {
	t.Helper()
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", l.port))
	must(t, err)
	c.Close()
	u, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", l.port))
	must(t, err)
	_, _ = u.Write([]byte("fence"))
	u.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		done := l.hits["tcp"] > 0 && l.hits["fence"] > 0
		if done {
			l.hits["tcp"]--
			delete(l.hits, "fence")
			if l.hits["tcp"] == 0 {
				delete(l.hits, "tcp")
			}
		}
		l.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the host does not reach itself")
		}
	}
}

// listen serves TCP and UDP on every address of the host.
func listen(t *testing.T) *listeners {
	t.Helper()
	l := &listeners{hits: map[string]int{}}
	tcp, err := net.Listen("tcp", ":0")
	must(t, err)
	l.port = tcp.Addr().(*net.TCPAddr).Port
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", l.port))
	must(t, err)
	t.Cleanup(func() {
		tcp.Close()
		udp.Close()
	})
	go accept(l, "tcp", tcp)
	go receive(l, "udp", udp)
	return l
}

func accept(l *listeners, name string, from net.Listener) {
	for {
		c, err := from.Accept()
		if err != nil {
			return
		}
		l.hit(name)
		c.Close()
	}
}

func receive(l *listeners, name string, from net.PacketConn) {
	for buf := make([]byte, 64); ; {
		n, _, err := from.ReadFrom(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == "fence" {
			l.hit("fence")
		} else {
			l.hit(name)
		}
	}
}

func init() {
	attacks["connect"] = func(args []string) {
		port, _ := strconv.Atoi(args[0])
		for _, arg := range args[1:] {
			connectAll(netip.MustParseAddr(arg), port)
		}
	}
}

const ipprotoMPTCP = 262

// connectAll tries every transport a connection or a message can leave by.
func connectAll(addr netip.Addr, port int) {
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: port, Addr: addr.As16()}
	family := unix.AF_INET6
	if addr.Is4() {
		to, family = &unix.SockaddrInet4{Port: port, Addr: addr.As4()}, unix.AF_INET
	}
	for _, way := range []struct {
		name        string
		kind, proto int
		send        bool
	}{
		{"tcp", unix.SOCK_STREAM, 0, false},
		{"mptcp", unix.SOCK_STREAM, ipprotoMPTCP, false},
		{"fast open", unix.SOCK_STREAM, 0, true},
		{"udp", unix.SOCK_DGRAM, 0, true},
		{"udplite", unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, true},
		{"raw udp", unix.SOCK_RAW, unix.IPPROTO_UDP, true},
		{"raw icmp", unix.SOCK_RAW, unix.IPPROTO_ICMP, true},
		{"ping", unix.SOCK_DGRAM, unix.IPPROTO_ICMP, true},
	} {
		name := fmt.Sprintf("%s to %s", way.name, addr)
		fd, err := unix.Socket(family, way.kind|unix.SOCK_NONBLOCK, way.proto)
		if err != nil {
			report(name, err)
			continue
		}
		if way.send {
			flags := 0
			if way.kind == unix.SOCK_STREAM {
				flags = unix.MSG_FASTOPEN
			}
			err = unix.Sendto(fd, []byte("evil"), flags, to)
		} else {
			err = unix.Connect(fd, to)
		}
		if errors.Is(err, unix.EINPROGRESS) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 200)
			_, err = unix.Getpeername(fd)
		}
		report(name, err)
		unix.Close(fd)
	}
}

// addresses of the host, in every way they can be written.
func addresses() []string {
	out := []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "127.1.2.3", "169.254.169.254"}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

func TestHostIsNotReachedByAddress(t *testing.T) {
	b := newBox(t)
	l := listen(t)
	args := append([]string{strconv.Itoa(l.port)}, addresses()...)
	b.attack("connect", args...)
	l.expectSilence(t)

	for _, control := range []struct {
		name string
		run  func()
	}{
		{"without a sandbox", func() { b.free("connect", args[:6]...) }},
		{"with the network granted", func() {
			b.policy = `{"network": {"allowedDomains": ["*"]}}`
			b.attack("connect", args[:6]...)
		}},
	} {
		control.run()
		l.fence(t)
		if got := l.take(); got["tcp"] < 3 || got["udp"] < 2 {
			t.Errorf("control %s: got %v, want several connections and packets", control.name, got)
		}
	}
}

func init() {
	attacks["listen"] = func(args []string) {
		// Everything that can be bound inside stays inside.
		for _, addr := range []string{"0.0.0.0:" + args[0], "[::]:" + args[0], "127.0.0.1:" + args[0]} {
			l, err := net.Listen("tcp", addr)
			report("listen "+addr, err)
			if err == nil {
				defer l.Close()
			}
		}
		keep("listening", nil)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
}

func TestListenerInsideIsNotTheHosts(t *testing.T) {
	b := newBox(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	reached := func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	for _, run := range []struct {
		policy string
		want   bool
	}{{"", false}, {`{"network": {"allowedDomains": ["*"]}}`, true}} {
		b.policy = run.policy
		c := b.command(b.program, "attack", "listen", port)
		in, err := c.StdinPipe()
		must(t, err)
		must(t, c.Start())
		b.await("listening")
		if got := reached(); got != run.want {
			t.Errorf("policy %s: the host reaches the listener: got %v, want %v", run.policy, got, run.want)
		}
		in.Close()
		_ = c.Wait()
		b.looted()
	}
}

func init() {
	attacks["unix"] = func(args []string) {
		for _, name := range args {
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
				fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
				if err != nil {
					report("socket", err)
					continue
				}
				to := &unix.SockaddrUnix{Name: name}
				report(fmt.Sprintf("connect %d %q", kind, name), unix.Connect(fd, to))
				report(fmt.Sprintf("send %d %q", kind, name), unix.Sendto(fd, []byte("evil"), 0, to))
				unix.Close(fd)
			}
		}
	}
}

// listenUnix serves stream and datagram sockets of a name.
func listenUnix(t *testing.T, l *listeners, name string) []string {
	t.Helper()
	stream, err := net.Listen("unix", name)
	must(t, err)
	packets, err := net.ListenPacket("unixgram", name+"d")
	must(t, err)
	t.Cleanup(func() {
		stream.Close()
		packets.Close()
	})
	go accept(l, "unix", stream)
	go receive(l, "unixgram", packets)
	return []string{name, name + "d"}
}

func TestAbstractSocketsOfTheHostAreOutOfReach(t *testing.T) {
	testenv.Requires(t, testenv.Landlock(6))
	b := newBox(t)
	l := listen(t)
	names := listenUnix(t, l, fmt.Sprintf("@bailey-escape-%d", os.Getpid()))
	// With the host's network only Landlock stands between them.
	for _, policy := range []string{"", `{"network": {"allowedDomains": ["*"]}}`} {
		b.policy = policy
		b.attack("unix", names...)
		l.expectSilence(t)
	}
	b.free("unix", names...)
	l.fence(t)
	if got := l.take(); got["unix"] == 0 || got["unixgram"] == 0 {
		t.Errorf("control: got %v, want connections and packets", got)
	}
}

// Sockets of the host that are not visible inside. One in a directory that is
// granted can still be connected to: a mount does not keep it away, and the
// broker that will decide about each connection does not exist yet.
func TestPathnameSocketsOfTheHostAreOutOfReach(t *testing.T) {
	b := newBox(t)
	l := listen(t)
	dir, err := os.MkdirTemp("/tmp", "escape-") // short enough for an address
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	names := listenUnix(t, l, dir+"/agent.sock")
	t.Setenv("SSH_AUTH_SOCK", names[0])
	for _, policy := range []string{"", `{"network": {"allowedDomains": ["*"]}}`, `{"filesystem": {"defaultDenyRead": false}}`} {
		b.policy = policy
		b.attack("unix", append(names, "/proc/self/root"+names[0], "/run/docker.sock", "/var/run/docker.sock")...)
		l.expectSilence(t)
	}
	if out := b.run("sh", "-c", "echo socket=$SSH_AUTH_SOCK"); !strings.Contains(out, "socket=\n") {
		t.Errorf("the agent's address entered")
	}
	b.free("unix", names...)
	l.fence(t)
	if got := l.take(); got["unix"] == 0 || got["unixgram"] == 0 {
		t.Errorf("control: got %v, want connections and packets", got)
	}
}

func init() {
	attacks["families"] = func([]string) {
		var made []string
		for family := range 48 {
			for kind := 1; kind <= 10; kind++ {
				for _, proto := range []int{0, 1, 2, 4, 6, 9, 12, 15, 16, 17, 20, 58, 132, 136, 255, 262, 0x0300} {
					// The upper half of a register is the caller's to fill.
					fd, _, errno := unix.Syscall(unix.SYS_SOCKET, uintptr(family)|1<<32, uintptr(kind), uintptr(proto)|1<<32)
					if errno == 0 {
						made = append(made, fmt.Sprintf("%d/%d/%d", family, kind, proto))
						unix.Close(int(fd))
					}
				}
			}
			for kind := 1; kind <= 5; kind++ {
				if fds, err := unix.Socketpair(family, kind, 0); err == nil {
					made = append(made, fmt.Sprintf("%d/pair", family))
					unix.Close(fds[0])
					unix.Close(fds[1])
				}
			}
		}
		keep("families", []byte(strings.Join(made, " ")))
	}
}

// The kinds of socket a sandbox may have, and nothing else: no packet, vsock,
// alg, xdp or bluetooth, no raw sockets, and of netlink only routing.
func TestOtherSocketFamiliesDoNotExist(t *testing.T) {
	b := newBox(t)
	allowed := func(s string) bool {
		f := strings.Split(s, "/")
		switch f[0] {
		case "1":
			return true
		case "2", "10": // stream and datagram, but not ping
			return f[1] == "1" || f[1] == "2" && f[2] != "1" && f[2] != "58"
		case "16":
			return f[2] == "0"
		}
		return false
	}
	for _, policy := range []string{"", `{"network": {"allowedDomains": ["*"]}}`} {
		b.policy = policy
		b.attack("families")
		made := strings.Fields(b.looted()["families"])
		for _, want := range []string{"1/1/0", "2/1/6", "2/2/17", "10/1/0", "16/3/0", "1/pair"} {
			if !slices.Contains(made, want) {
				t.Errorf("control: %s should exist inside", want)
			}
		}
		made = slices.DeleteFunc(made, allowed)
		if len(made) > 0 {
			t.Errorf("policy %q: sockets that should not exist: %v", policy, made)
		}
	}
	b.free("families")
	made := strings.Fields(b.looted()["families"])
	if made = slices.DeleteFunc(made, allowed); len(made) == 0 {
		t.Errorf("control: no other sockets exist outside either")
	}
	t.Logf("outside there are also %v", made)
}
