package gate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// world is a gate with everything around it made by the test: name servers, an
// internet in which addresses lead to servers of the test, and a record of all
// that the gate did there.
type world struct {
	*Gate
	t       testing.TB
	config  config.Config
	options Options

	mu       sync.Mutex
	hosts    map[string][]netip.Addr           // what names resolve to
	servers  map[netip.AddrPort]string         // where addresses really lead
	meant    map[netip.AddrPort]netip.AddrPort // of redirected connections, by the client's address
	always   string                            // where all other redirected connections were meant to go
	asked    []string                          // names that were resolved
	dialed   []netip.AddrPort
	events   []event.Event
	eventsAt *sync.Cond

	http, socks, mixed, unix, tcp net.Listener
}

// public is an address of the test's internet.
var public = netip.MustParseAddr("93.184.215.14")

// newWorld makes a gate for a policy. Names below allowed.example resolve to the
// public address.
func newWorld(t testing.TB, text string, change ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, hosts: map[string][]netip.Addr{}, servers: map[netip.AddrPort]string{}, meant: map[netip.AddrPort]netip.AddrPort{}}
	w.eventsAt = sync.NewCond(&w.mu)
	w.config = w.translate(text)
	w.options = Options{
		Events: w, Resolver: w, Dial: w.dial, Destination: w.destination,
		Getenv: func(name string) string { return map[string]string{"TOKEN": "s3cret-value"}[name] },
	}
	for _, c := range change {
		c(w)
	}
	w.options.Config = w.config
	g, err := New(w.options)
	if err != nil {
		t.Fatal(err)
	}
	w.Gate = g
	t.Cleanup(g.Close)
	w.http = w.listen(config.RoleHTTP, "tcp")
	w.socks = w.listen(config.RoleSOCKS, "tcp")
	w.mixed = w.listen(config.RoleMixed, "tcp")
	w.unix = w.listen(config.RoleUnix, "unix")
	w.tcp = w.listen(config.RoleTCP, "tcp")
	return w
}

func (w *world) translate(text string) config.Config {
	w.t.Helper()
	p, err := policy.Parse("bailey.jsonc", []byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := grants.FromPolicy(*p, grants.Options{Sandbox: "b7", AuthorityDir: filepath.Join(w.t.TempDir(), "ca"), CanAsk: true, Project: "/"})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) listen(role config.Role, network string) net.Listener {
	w.t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(w.t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Serve(role, l) }()
	w.t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", role, err)
		}
	})
	return l
}

// LookupNetIP implements Resolver.
func (w *world) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	name = strings.TrimSuffix(name, ".")
	if addrs, ok := w.hosts[name]; ok {
		return addrs, nil
	}
	if strings.HasSuffix("."+name, ".allowed.example") {
		return []netip.Addr{public}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, to)
	address, ok := w.servers[to]
	w.mu.Unlock()
	if !ok && to.Addr().IsLoopback() {
		address, ok = to.String(), true
	}
	if !ok {
		return nil, errors.New("nobody is there")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func (w *world) destination(c *net.TCPConn) (netip.AddrPort, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.always != "" {
		return netip.ParseAddrPort(w.always)
	}
	to, ok := w.meant[c.RemoteAddr().(*net.TCPAddr).AddrPort()]
	if !ok {
		return netip.AddrPort{}, errors.New("not redirected")
	}
	return to, nil
}

// Emit implements event.Sink.
func (w *world) Emit(e *event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, *e)
	w.eventsAt.Broadcast()
}

// place puts a server at the public address.
func (w *world) place(port uint16, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[netip.AddrPortFrom(public, port)] = address
}

// event waits for one that match accepts.
func (w *world) event(what string, match func(*event.Event) bool) event.Event {
	w.t.Helper()
	expired := time.AfterFunc(5*time.Second, w.eventsAt.Broadcast)
	defer expired.Stop()
	deadline := time.Now().Add(5 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for i := range w.events {
			if match(&w.events[i]) {
				return w.events[i]
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no event: %s; there are %+v", what, w.events)
		}
		w.eventsAt.Wait()
	}
}

func (w *world) denied(host string) event.Event {
	w.t.Helper()
	return w.event("denial of "+host, func(e *event.Event) bool { return e.Kind == event.Deny && e.Host == host })
}

func (w *world) connection(host string) event.Event {
	w.t.Helper()
	return w.event("connection to "+host, func(e *event.Event) bool { return e.Kind == event.Connection && e.Host == host })
}

// untouched checks that nothing went out: no question to a name server and no
// packet.
func (w *world) untouched(what string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) > 0 || len(w.dialed) > 0 {
		w.t.Errorf("%s: asked for %q, dialed %v", what, w.asked, w.dialed)
	}
	w.asked, w.dialed = nil, nil
}

// traces returns the names that were resolved and the addresses that were dialed.
func (w *world) traces() (asked []string, dialed []netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), slices.Clone(w.dialed)
}

// echo is a web server that tells what it was asked.
func echo(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(tell))
	t.Cleanup(s.Close)
	return s
}

func tell(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Proto", r.Proto)
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.RequestURI)
	for _, name := range slices.Sorted(mapsKeys(r.Header)) {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
	}
	fmt.Fprintf(w, "\n%s", body)
}

func mapsKeys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range h {
			if !yield(k) {
				return
			}
		}
	}
}

func addressOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// client uses the gate as a proxy.
func (w *world) client(l net.Listener, roots *x509.CertPool) *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "gate"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial(l.Addr().Network(), l.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: roots},
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func get(t testing.TB, c *http.Client, url string) (int, string) {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("%s: %v", url, err)
	}
	return r.StatusCode, string(body)
}

// dial connects to a listener of the gate.
func dialGate(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// say sends text and returns all that comes back.
func say(t testing.TB, l net.Listener, text string) string {
	t.Helper()
	c := dialGate(t, l)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(c)
	return string(got)
}

// redirected connects as a program does that knows of no proxy.
func (w *world) redirected(to string) net.Conn {
	w.t.Helper()
	var d net.Dialer
	// The destination has to be known before the connection is.
	from, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	local := from.Addr().(*net.TCPAddr)
	from.Close()
	w.mu.Lock()
	w.meant[local.AddrPort()] = netip.MustParseAddrPort(to)
	w.mu.Unlock()
	d.LocalAddr = local
	c, err := d.Dial("tcp", w.tcp.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// readAnswer reads one answer from a connection that is used on.
func readAnswer(t testing.TB, r *bufio.Reader, method string) (int, string) {
	t.Helper()
	answer, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// tlsServer is a server with a certificate that the returned pool trusts.
func tlsServer(t testing.TB, handler http.Handler, http2 bool) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = http2
	cert, pool := certificate(t, "allowed.example", "www.allowed.example", "other.example")
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = silence
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pool
}

func contains(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: %q is not in %q", what, part, text)
		}
	}
}

func lacks(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%s: %q is in %q", what, part, text)
		}
	}
}

// noSecrets checks that a credential is in no event.
func (w *world) noSecrets(secret string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.events {
		if line := w.events[i].AppendLine(nil); bytes.Contains(line, []byte(secret)) {
			w.t.Errorf("the credential is in %s", line)
		}
	}
}
