package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// process is a gate that was started as bailey starts it, with a name server of
// the test's own that knows every name below .example as this machine.
type process struct {
	t         testing.TB
	cmd       *exec.Cmd
	control   *config.Conn
	hangUp    func()
	authority string // its directory
	listeners map[config.Role]net.Addr
	exited    chan error

	mu     sync.Mutex
	extra  string
	asked  []string
	events []event.Event
}

// start starts a gate.
func start(t testing.TB, text string, roles ...config.Role) *process {
	t.Helper()
	return startWith(t, text, nil, roles...)
}

// startWith starts a gate with more variables.
func startWith(t testing.TB, text string, env []string, roles ...config.Role) *process {
	t.Helper()
	p := &process{t: t, listeners: map[config.Role]net.Addr{}, exited: make(chan error, 1)}
	c := p.translate(text)
	p.authority = c.AuthorityDir
	configuration, toGate := pipe(t)
	fromGate, events := pipe(t)
	ours, theirs := socketPair(t)
	p.cmd = exec.Command(testenv.Binary(t, "bailey-gate"), "serve", "--config", "3", "--events", "4", "--control", "5")
	p.cmd.Env = append(append(os.Environ(), "TOKEN=s3cret-value"), env...)
	p.cmd.ExtraFiles = []*os.File{configuration, events, theirs}
	for i, role := range roles {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, p.listen(role))
		p.cmd.Args = append(p.cmd.Args, "--listen", fmt.Sprintf("%s=%d", role, 6+i))
	}
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range p.cmd.ExtraFiles {
		f.Close()
	}
	go p.record(fromGate)
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		ours.Close()
		select {
		case err := <-p.exited:
			if err != nil || stderr.Len() > 0 {
				t.Errorf("the gate ended with %v, stderr %q", err, stderr.String())
			}
		case <-time.After(10 * time.Second):
			t.Error("the gate does not end with its starter")
			p.cmd.Process.Kill()
		}
	})
	p.hangUp = func() { ours.Close() }
	if err := c.Write(toGate); err != nil {
		t.Fatal(err)
	}
	toGate.Close()
	p.control = config.NewConn(ours)
	if m, err := p.control.Receive(); err != nil || m.Type != config.Ready {
		t.Fatalf("got %+v, %v, stderr %q", m, err, stderr.String())
	}
	return p
}

func (p *process) translate(text string) config.Config {
	p.t.Helper()
	parsed, err := policy.Parse("bailey.jsonc", []byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := grants.FromPolicy(*parsed, grants.Options{Sandbox: "b7", AuthorityDir: filepath.Join(p.t.TempDir(), "ca"), Project: "/", CanAsk: true})
	if err != nil {
		p.t.Fatal(err)
	}
	c.Nameservers = []string{p.nameServer()}
	return c
}

func (p *process) listen(role config.Role) *os.File {
	p.t.Helper()
	var socket interface{ File() (*os.File, error) }
	switch role {
	case config.RoleDNSUDP:
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			p.t.Fatal(err)
		}
		defer c.Close()
		socket, p.listeners[role] = c, c.LocalAddr()
	case config.RoleUnix:
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.t.TempDir(), "gate")})
		if err != nil {
			p.t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		socket, p.listeners[role] = l, l.Addr()
	default:
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			p.t.Fatal(err)
		}
		defer l.Close()
		socket, p.listeners[role] = l, l.Addr()
	}
	f, err := socket.File()
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// nameServer answers every name below .example with this machine's address, and
// writes down what it was asked.
func (p *process) nameServer() string {
	p.t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			p.mu.Lock()
			p.asked = append(p.asked, q.Name.String())
			p.mu.Unlock()
			m.Response, m.Additionals = true, nil
			if !p.isHere(q.Name.String()) {
				m.RCode = dnsmessage.RCodeNameError
			} else if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				}}
			}
			if packed, err := m.Pack(); err == nil {
				c.WriteTo(packed, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// here lets one more name be this machine.
func (p *process) here(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extra = name
}

func (p *process) isHere(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.HasSuffix(name, ".example.") || name == p.extra
}

func (p *process) record(r *os.File) {
	defer r.Close()
	s := bufio.NewScanner(r)
	for s.Scan() {
		e, err := event.Decode(s.Bytes())
		if err != nil {
			p.t.Errorf("%v: %s", err, s.Bytes())
			continue
		}
		p.mu.Lock()
		p.events = append(p.events, *e)
		p.mu.Unlock()
	}
}

// waitFor waits for an event.
func (p *process) waitFor(what string, match func(*event.Event) bool) event.Event {
	p.t.Helper()
	for range 500 {
		p.mu.Lock()
		for i := range p.events {
			if match(&p.events[i]) {
				defer p.mu.Unlock()
				return p.events[i]
			}
		}
		p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatalf("no event: %s", what)
	return event.Event{}
}

func (p *process) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

func (p *process) address(role config.Role) string { return p.listeners[role].String() }

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func socketPair(t testing.TB) (net.Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	ours := os.NewFile(uintptr(fds[0]), "ours")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	return c, os.NewFile(uintptr(fds[1]), "theirs")
}

// page is a web server, and its port.
func page(t testing.TB, handler http.HandlerFunc) string {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return portOf(s)
}

func portOf(s *httptest.Server) string {
	return fmt.Sprint(netip.MustParseAddrPort(s.Listener.Addr().String()).Port())
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.Host) }

// goodOnly is a policy that allows good.example on every port, where it may be on
// this machine.
const goodOnly = `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "good.example", "ports": ["*"], "action": "allow"}]}}`

func (p *process) get(t testing.TB, target string) (int, string) {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.address(config.RoleHTTP)}), DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func TestGateServesWhatItInherits(t *testing.T) {
	port := page(t, hello)
	p := start(t, goodOnly, config.RoleHTTP, config.RoleSOCKS, config.RoleMixed, config.RoleUnix, config.RoleDNSUDP, config.RoleDNSTCP, config.RoleTCP)
	if status, body := p.get(t, "http://good.example:"+port+"/x"); status != 200 || body != "hello good.example:"+port {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := p.get(t, "http://secret.evil.example:"+port+"/"); status != 403 || !strings.Contains(body, "secret.evil.example") {
		t.Errorf("got %d %q", status, body)
	}
	e := p.waitFor("the connection", func(e *event.Event) bool { return e.Kind == event.Connection })
	if e.Sandbox != "b7" || e.Host != "good.example" || e.Address != "127.0.0.1" || e.URLPath != "/x" || e.Rule != "network.rules[0] good.example" {
		t.Errorf("got %+v", e)
	}
	p.waitFor("the denial", func(e *event.Event) bool { return e.Kind == event.Deny && e.Host == "secret.evil.example" })

	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		if strings.HasPrefix(network, "tcp") {
			return d.DialContext(ctx, "tcp", p.address(config.RoleDNSTCP))
		}
		return d.DialContext(ctx, "udp", p.address(config.RoleDNSUDP))
	}}
	addrs, err := r.LookupNetIP(t.Context(), "ip4", "good.example")
	if err != nil || len(addrs) != 1 || !netip.MustParsePrefix(config.PoolIPv4).Contains(addrs[0].Unmap()) {
		t.Errorf("got %v, %v", addrs, err)
	}
	if addrs, err := r.LookupNetIP(t.Context(), "ip4", "another.secret.example"); err == nil {
		t.Errorf("got %v", addrs)
	}
	for _, name := range p.names() {
		if name != "good.example." {
			t.Errorf("the name server was asked for %s", name)
		}
	}
}

func TestGateTakesNewRules(t *testing.T) {
	port := page(t, hello)
	p := start(t, goodOnly, config.RoleHTTP)
	better := p.translate(`{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "better.example", "ports": ["*"], "action": "allow"}]}}`)
	worse := better
	worse.Rules = []config.Rule{{Host: "a b", Name: "network.rules[0]", Action: config.Allow}}
	for _, step := range []struct {
		config config.Config
		failed bool
	}{{better, false}, {worse, true}} {
		if err := p.control.Send(config.Message{Type: config.Reload, Config: &step.config}); err != nil {
			t.Fatal(err)
		}
		if m, err := p.control.Receive(); err != nil || m.Type != config.Reloaded || (m.Error != "") != step.failed {
			t.Errorf("got %+v, %v", m, err)
		}
		for host, want := range map[string]int{"good": 403, "better": 200} {
			if status, body := p.get(t, "http://"+host+".example:"+port+"/"); status != want {
				t.Errorf("%s: got %d %q", host, status, body)
			}
		}
	}
}

func TestGateAsksItsStarter(t *testing.T) {
	port := page(t, hello)
	p := start(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "defaultAction": "ask"}}`, config.RoleHTTP)
	for _, step := range []struct {
		decision string
		status   int
	}{{config.Once, 200}, {config.Refusing, 403}} {
		go func() {
			m, err := p.control.Receive()
			if err != nil || m.Type != config.Question || m.Host != "good.example" || fmt.Sprint(m.Port) != port {
				t.Errorf("got %+v, %v", m, err)
			}
			p.control.Send(config.Message{Type: config.Answer, ID: m.ID, Decision: step.decision})
		}()
		if status, body := p.get(t, "http://good.example:"+port+"/"); status != step.status {
			t.Errorf("%s: got %d %q", step.decision, status, body)
		}
	}
}

func TestGateEndsWithItsStarter(t *testing.T) {
	stop := make(chan struct{})
	port := page(t, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	p := start(t, goodOnly, config.RoleHTTP)
	c, err := net.Dial("tcp", p.address(config.RoleHTTP))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET http://good.example:%s/ HTTP/1.1\r\nHost: good.example:%s\r\n\r\n", port, port)
	p.cmd.Process.Signal(os.Interrupt) // for the command in the sandbox, not for the gate
	if status, _ := p.get(t, "http://evil.example/"); status != 403 {
		t.Errorf("got %d", status)
	}
	p.hangUp()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestCredentialIsNowhereToBeSeen(t *testing.T) {
	got := make(chan string, 1)
	port := page(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	p := start(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "good.example", "ports": ["*"], "action": "allow"}],
		"inject": [{"hosts": ["good.example"], "bearer": true, "fromEnv": "TOKEN"}]}}`, config.RoleHTTP)
	if status, body := p.get(t, "http://good.example:"+port+"/"); status != 200 {
		t.Fatalf("got %d %q", status, body)
	}
	if value := <-got; value != "Bearer s3cret-value" {
		t.Errorf("the server got %q", value)
	}
	p.waitFor("the connection", func(e *event.Event) bool { return e.Kind == event.Connection })
	p.mu.Lock()
	events, _ := json.Marshal(p.events)
	p.mu.Unlock()
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
	for _, text := range [][]byte{events, line} {
		if strings.Contains(string(text), "s3cret") {
			t.Errorf("the credential is in %s", text)
		}
	}
}

func TestGateRefusesWhatItCannotServe(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"another release": {`{"version": 99}`, "one release"},
		"not JSON":        {`nonsense`, "configuration"},
		"bad rule":        {`{"version": 1, "default": "deny", "rules": [{"host": "a b", "action": "allow", "name": "network.rules[7]"}]}`, "network.rules[7]"},
		"no socket":       {`{"version": 1, "default": "deny"}`, "http: "},
	} {
		configuration, toGate := pipe(t)
		_, events := pipe(t)
		ours, theirs := socketPair(t)
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(testenv.Binary(t, "bailey-gate"), "serve", "--config", "3", "--events", "4", "--control", "5", "--listen", "http=6")
		cmd.ExtraFiles = []*os.File{configuration, events, theirs, null}
		io.WriteString(toGate, c.config)
		toGate.Close()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: got %v, %q", name, err, out)
		}
		ours.Close()
		for _, f := range cmd.ExtraFiles {
			f.Close()
		}
	}
}
