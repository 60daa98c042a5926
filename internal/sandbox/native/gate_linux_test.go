package native

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// gated is a sandbox whose network leads to a gate, which the test plays.
func gated(t *testing.T, program string, local ...config.Ports) *spec.Spec {
	t.Helper()
	requireSandbox(t)
	testenv.Requires(t, testenv.Program("python3"))
	s := newSpec(t, t.TempDir(), "python3", "-c", "import socket, sys\n"+program)
	s.Exec = []string{"/usr/bin/python3"}
	s.Network, s.Gate = spec.NetworkGate, &spec.Gate{Transparent: true, Must: true, Local: local}
	return s
}

// startGated starts it, and returns the listeners by role and what it prints.
func startGated(t *testing.T, s *spec.Spec) (p *Process, listeners map[config.Role][]*os.File, collect func() string) {
	t.Helper()
	streams, collect := outputTo(t)
	p = start(t, s, Options{Streams: streams})
	closeStreams(streams)
	listeners = make(map[config.Role][]*os.File)
	for _, l := range p.Listeners {
		listeners[l.Role] = append(listeners[l.Role], l.File)
		t.Cleanup(func() { l.File.Close() })
	}
	return p, listeners, collect
}

// original asks where a connection was meant to go.
func original(t *testing.T, c net.Conn) netip.AddrPort {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const originalDst = 80
	var addr netip.AddrPort
	_ = raw.Control(func(fd uintptr) {
		var sa unix.RawSockaddrInet6
		size := uint32(unsafe.Sizeof(sa))
		level := unix.SOL_IP
		if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
			level = unix.SOL_IPV6
		}
		if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), originalDst, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
			t.Errorf("SO_ORIGINAL_DST: %v", errno)
			return
		}
		if sa.Family == unix.AF_INET {
			v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&sa))
			addr = netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swapped(v4.Port))
		} else {
			addr = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), swapped(sa.Port))
		}
	})
	return addr
}

func listener(t *testing.T, f *os.File) net.Listener {
	t.Helper()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEveryConnectionArrivesAtTheGate(t *testing.T) {
	s := gated(t, `
for family, host, port in [(socket.AF_INET, "192.0.2.7", 443), (socket.AF_INET, "10.1.2.3", 65535), (socket.AF_INET, "127.0.0.1", 7777)]:
    s = socket.socket(family)
    s.connect((host, port))
    print(s.recv(100).decode(), flush=True)
`, config.Ports{From: 7000, To: 8000})
	p, listeners, collect := startGated(t, s)
	l := listener(t, listeners[config.RoleTCP][0])
	for _, want := range []string{"192.0.2.7:443", "10.1.2.3:65535", "127.0.0.1:7777"} {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := original(t, c).String(); got != want {
			t.Errorf("it was for %s, want %s", got, want)
		}
		fmt.Fprint(c, "gate for "+want)
		c.Close()
	}
	p.Wait()
	if got := collect(); got != "gate for 192.0.2.7:443\ngate for 10.1.2.3:65535\ngate for 127.0.0.1:7777\n" {
		t.Errorf("inside: %q", got)
	}
}

func TestIPv6ConnectionsArriveAtTheGate(t *testing.T) {
	if !hasIPv6() {
		testenv.Requires(t, testenv.File("/proc/net/if_inet6"))
	}
	s := gated(t, `
s = socket.socket(socket.AF_INET6)
s.connect(("2001:db8::5", 8443))
print(s.recv(100).decode())
`)
	p, listeners, collect := startGated(t, s)
	l := listener(t, listeners[config.RoleTCP][1])
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := original(t, c).String(); got != "[2001:db8::5]:8443" {
		t.Errorf("it was for %s", got)
	}
	fmt.Fprint(c, "six")
	c.Close()
	p.Wait()
	if got := collect(); got != "six\n" {
		t.Errorf("inside: %q", got)
	}
}

func TestQuestionsForNamesArriveAtTheGate(t *testing.T) {
	s := gated(t, `
for host in ["192.0.2.53", "127.0.0.53"]:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.sendto(b"question", (host, 53))
    data, sender = s.recvfrom(100)
    print(data.decode(), sender[0], flush=True)
`)
	p, listeners, collect := startGated(t, s)
	conn, err := net.FilePacketConn(listeners[config.RoleDNSUDP][0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	for range 2 {
		buf := make([]byte, 100)
		n, from, err := conn.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "question" {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
		if _, err := conn.WriteTo([]byte("answer"), from); err != nil {
			t.Fatal(err)
		}
	}
	p.Wait()
	if got := collect(); got != "answer 192.0.2.53\nanswer 127.0.0.53\n" {
		t.Errorf("inside: %q", got)
	}
}

func TestTheSandboxKeepsItsOwnLoopback(t *testing.T) {
	s := gated(t, `
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
s = socket.socket(); s.connect(server.getsockname())
c, _ = server.accept(); c.send(b"own"); print(s.recv(10).decode())
for port in [940, 941, 942]:
    try: socket.socket().bind(("127.0.0.1", port)); print("bound", port)
    except OSError as e: print(e.errno)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("192.0.2.1", 9999)); s.send(b"x")
try: s.settimeout(5); s.recv(10)
except OSError as e: print(type(e).__name__)
try: socket.create_connection(("127.0.0.1", 1234), 5)
except OSError as e: print(type(e).__name__)
`)
	p, _, collect := startGated(t, s)
	p.Wait()
	if got := strings.Fields(collect()); strings.Join(got, " ") != "own 13 13 13 ConnectionRefusedError ConnectionRefusedError" {
		t.Errorf("inside: %q", got)
	}
}

func TestWithoutCaptureThereIsOnlyTheProxy(t *testing.T) {
	s := gated(t, `
s = socket.create_connection(("127.0.0.1", 940)); print(s.recv(10).decode())
try: socket.create_connection(("192.0.2.1", 80), 5)
except OSError as e: print(e.strerror)
`)
	s.Gate.Transparent = false
	p, listeners, collect := startGated(t, s)
	for _, role := range []config.Role{config.RoleTCP, config.RoleDNSTCP, config.RoleDNSUDP} {
		if listeners[role] != nil {
			t.Errorf("there is a listener for %s", role)
		}
	}
	c, err := listener(t, listeners[config.RoleMixed][0]).Accept()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "proxy")
	c.Close()
	p.Wait()
	if got := collect(); got != "proxy\nNetwork is unreachable\n" {
		t.Errorf("inside: %q", got)
	}
}

// A kernel that refuses a part says which error it was.
func TestRefusedCaptureIsNamed(t *testing.T) {
	s := gated(t, "")
	s.Gate.Local = []config.Ports{{From: 1, To: 2}}
	for range 4000 { // more than a message can hold
		s.Gate.Local = append(s.Gate.Local, config.Ports{From: 1, To: 2})
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := Start(s, Options{Streams: nulls(t)})
	var launch *LaunchError
	if !errors.As(err, &launch) || launch.Wall != WallCapture || !strings.Contains(launch.Step, "capture") {
		t.Errorf("got %v", err)
	}
}
