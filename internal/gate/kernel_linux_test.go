package gate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const insideVariable = "BAILEY_TEST_INSIDE"

// TestRedirectedByTheKernel has the kernel of a network namespace redirect what
// programs in it do, and the gate, outside of it, serve the listeners.
func TestRedirectedByTheKernel(t *testing.T) {
	if os.Getenv(insideVariable) != "" {
		if err := inside(); err != nil {
			t.Fatal(err)
		}
		return
	}
	testenv.Requires(t, testenv.UserNamespaces, testenv.NoRace)
	secure, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed, func(w *world) { w.options.Destination = nil })
	w.place(80, addressOf(echo(t)))
	w.place(443, addressOf(secure))

	ours, theirs := socketPair(t)
	child := exec.Command(os.Args[0], "-test.run=^TestRedirectedByTheKernel$")
	child.Env = append(os.Environ(), insideVariable+"=1")
	child.ExtraFiles = []*os.File{theirs}
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var output strings.Builder
	child.Stdout, child.Stderr = &output, &output
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	w.takeListeners(ours)
	if _, err := ours.Write([]byte("go")); err != nil {
		t.Fatal(err)
	}
	var report map[string]string
	if err := json.NewDecoder(ours).Decode(&report); err != nil {
		t.Errorf("the report: %v", err)
	}
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	for what, want := range map[string]string{
		"http4":      "200 GET www.allowed.example /four",
		"http6":      "200 GET www.allowed.example /six",
		"https":      "200 GET www.allowed.example /tls",
		"wrong SNI":  "access denied",
		"wrong Host": "400 ",
		"denied":     "no such host",
		"address":    "403 ",
		"address6":   "403 ",
		"loopback":   "403 ",
		"metadata":   "403 ",
		"mapped":     "403 ",
		"zero":       "403 ",
		"udp":        "no answer",
	} {
		if !strings.Contains(report[what], want) {
			t.Errorf("%s: got %q, want %q", what, report[what], want)
		}
	}
	asked, dialed := w.traces()
	for _, name := range asked {
		if name != "www.allowed.example." {
			t.Errorf("asked for %q", name)
		}
	}
	for _, to := range dialed {
		if to.Addr() != public {
			t.Errorf("dialed %v", to)
		}
	}
}

func socketPair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "ours")
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "theirs")
}

// takeListeners serves sockets that were made in the namespace.
func (w *world) takeListeners(c *net.UnixConn) {
	w.t.Helper()
	control := make([]byte, 256)
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		w.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		w.t.Fatalf("got %v, %v", messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != len(insideRoles) {
		w.t.Fatalf("got %v, %v", fds, err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), string(insideRoles[i]))
		if insideRoles[i] == config.RoleDNSUDP {
			c, err := net.FilePacketConn(f)
			if err != nil {
				w.t.Fatal(err)
			}
			go w.ServePacket(c.(*net.UDPConn))
		} else {
			l, err := net.FileListener(f)
			if err != nil {
				w.t.Fatal(err)
			}
			go w.Serve(insideRoles[i], l)
		}
		f.Close()
	}
}

var insideRoles = []config.Role{config.RoleTCP, config.RoleTCP, config.RoleDNSUDP, config.RoleDNSTCP}

// inside sets the namespace up, hands its listeners out, and then does what
// programs in a sandbox do.
func inside() error {
	file := os.NewFile(3, "control")
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	c := conn.(*net.UnixConn)
	if err := handOut(c); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
		return err
	}
	report := map[string]string{}
	for what, f := range insidePrograms {
		report[what] = f()
	}
	return json.NewEncoder(c).Encode(report)
}

func handOut(c *net.UnixConn) error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := everythingLocal(family); err != nil {
			return fmt.Errorf("route: %w", err)
		}
	}
	const dns, tcp = 5353, 8080
	four, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", tcp))
	if err != nil {
		return err
	}
	six, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", tcp))
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", dns))
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", fmt.Sprintf(":%d", dns))
	if err != nil {
		return err
	}
	if err := redirect(dns, tcp); err != nil {
		return err
	}
	var fds []int
	for _, s := range []interface{ File() (*os.File, error) }{four.(*net.TCPListener), six.(*net.TCPListener), packets.(*net.UDPConn), streams.(*net.TCPListener)} {
		f, err := s.File()
		if err != nil {
			return err
		}
		fds = append(fds, int(f.Fd()))
	}
	_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

// insideResolver asks a name server somewhere in the world.
var insideResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, "9.9.9.9:53")
}}

// fetch is a program that knows of no proxy.
func fetch(network, url, host string) string { return fetchAs(network, url, host, "") }

func fetchAs(network, url, host, sni string) string {
	dialer := &net.Dialer{Resolver: insideResolver, Timeout: 10 * time.Second}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: sni}, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	r.Host = host
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

var insidePrograms = map[string]func() string{
	"http4":      func() string { return fetch("tcp4", "http://www.allowed.example/four", "") },
	"http6":      func() string { return fetch("tcp6", "http://www.allowed.example/six", "") },
	"https":      func() string { return fetch("tcp", "https://www.allowed.example/tls", "") },
	"wrong Host": func() string { return fetch("tcp", "http://www.allowed.example/", "evil.com") },
	"denied":     func() string { return fetch("tcp", "http://secret.evil.com/", "") },
	"address":    func() string { return fetch("tcp", "http://93.184.215.14/", "") },
	"address6":   func() string { return fetch("tcp", "http://[2606:4700::1111]/", "") },
	"loopback":   func() string { return fetch("tcp", "http://127.0.0.1:9999/", "") },
	"metadata":   func() string { return fetch("tcp", "http://169.254.169.254/", "") },
	"mapped":     func() string { return fetch("tcp", "http://[::ffff:93.184.215.14]/", "") },
	"zero":       func() string { return fetch("tcp", "http://0.0.0.0:9999/", "") },
	"wrong SNI": func() string {
		addrs, err := insideResolver.LookupNetIP(context.Background(), "ip4", "www.allowed.example")
		if err != nil {
			return err.Error()
		}
		return fetchAs("tcp", "https://"+addrs[0].String()+"/", "", "evil.com")
	},
	"udp": func() string {
		c, err := net.Dial("udp", "93.184.215.14:443")
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		c.Write([]byte("quic"))
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := c.Read(make([]byte, 10)); err == nil {
			return fmt.Sprintf("%d bytes", n)
		}
		return "no answer"
	},
}
