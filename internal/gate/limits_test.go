package gate

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

func TestConnectionsAreLimited(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"connections": 2}}}`)
	w.place(80, addressOf(echo(t)))
	held := []net.Conn{dialGate(t, w.http), dialGate(t, w.http)}
	for _, c := range held {
		io.WriteString(c, "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
		readAnswer(t, bufio.NewReader(c), "GET")
	}
	const request = "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n"
	for _, l := range []net.Listener{w.http, w.mixed, w.unix} {
		contains(t, "one too many", say(t, l, request), "HTTP/1.1 503", "network.limits.connections")
	}
	if got := say(t, w.mixed, "\x05\x01\x00\x05\x01\x00\x03\x0fallowed.example\x00\x50"); got != "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("SOCKS: got %q", got)
	}
	if err := handshake(w.redirected(netip.AddrPortFrom(public, 443).String()), "allowed.example"); err == nil || !strings.Contains(err.Error(), "tls: internal error") {
		t.Errorf("TLS: got %v", err)
	}
	w.event("the limit", func(e *event.Event) bool { return e.Kind == event.Limit && e.Limit == "network.limits.connections" })
	for _, c := range held {
		c.Close()
	}
	for range 200 {
		if status, _ := get(t, w.client(w.http, nil), "http://allowed.example/"); status == 200 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("there is no room although nobody is connected")
}

func TestHeadIsLimited(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"headerBytes": 1000}}}`)
	w.place(80, addressOf(echo(t)))
	const begin = "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\nX: "
	if got := say(t, w.http, begin+strings.Repeat("x", 500)+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("got %q", got)
	}
	if got := say(t, w.http, begin+strings.Repeat("x", 1500)+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Errorf("got %q", got)
	}
}

func TestBandwidthIsLimitedInHTTPToo(t *testing.T) {
	const size = 200_000
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chunks" {
			w.(http.Flusher).Flush()
		} else {
			w.Header().Set("Content-Length", "200000")
		}
		w.Write(bytes.Repeat([]byte("x"), size))
	}))
	defer s.Close()
	for _, path := range []string{"/length", "/chunks"} {
		w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"bandwidth": 400000}}}`)
		w.place(80, addressOf(s))
		begin := time.Now()
		if status, body := get(t, w.client(w.http, nil), "http://allowed.example"+path); status != 200 || len(body) != size {
			t.Errorf("%s: got %d, %d bytes", path, status, len(body))
		}
		if took := time.Since(begin); took < 350*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s: half a second's worth took %v", path, took)
		}
	}
}

func TestIdleExchangeIsEnded(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "only this")
			w.(http.Flusher).Flush()
		}
		<-stop
	}))
	defer s.Close()
	defer close(stop)
	for _, path := range []string{"/head", "/body"} {
		w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"idle": 1}}}`)
		w.place(80, addressOf(s))
		begin := time.Now()
		got := say(t, w.http, "GET http://allowed.example"+path+" HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
		if took := time.Since(begin); took < 900*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s: it took %v, and got %q", path, took, got)
		}
		if path == "/head" {
			contains(t, path, got, "HTTP/1.1 504", "network.limits.idle")
		}
		w.event("the limit", func(e *event.Event) bool { return e.Limit == "network.limits.idle" })
	}
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"total": "500ms"}}}`)
	w.place(80, addressOf(s))
	got := say(t, w.http, "GET http://allowed.example/head HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	contains(t, "total", got, "HTTP/1.1 504", "network.limits.total")
	w.event("the limit", func(e *event.Event) bool { return e.Limit == "network.limits.total" })
}

func TestReloadHoldsForNewConnections(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	old := w.client(w.http, nil)
	if status, _ := get(t, old, "http://allowed.example/"); status != 200 {
		t.Fatalf("got %d", status)
	}
	if err := w.Reload(w.translate(`{"network": {"allowedDomains": ["www.allowed.example"]}}`)); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{"http://allowed.example/": 403, "http://www.allowed.example/": 200} {
		if status, _ := get(t, w.client(w.http, nil), url); status != want {
			t.Errorf("%s: got %d, want %d", url, status, want)
		}
	}
	if status, _ := get(t, old, "http://allowed.example/"); status != 200 {
		t.Errorf("a connection that was there before got %d", status)
	}
	// What cannot be used changes nothing.
	bad := w.config
	bad.Rules = append(bad.Rules, config.Rule{Host: "a b", Action: config.Allow, Name: "bad"})
	if err := w.Reload(bad); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("got %v", err)
	}
	if status, _ := get(t, w.client(w.http, nil), "http://www.allowed.example/"); status != 200 {
		t.Errorf("got %d", status)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer s.Close()
	defer close(stop)
	secure, roots := tlsServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }), true)
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = roots })
	w.place(80, addressOf(s))
	w.place(443, addressOf(secure))
	ended := make(chan struct{})
	begin := func(f func()) {
		go func() {
			f()
			ended <- struct{}{}
		}()
	}
	visit := func(c *http.Client) {
		if answer, err := c.Get("https://allowed.example/"); err == nil {
			answer.Body.Close()
		}
	}
	begin(func() { say(t, w.http, "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n") })
	begin(func() { say(t, w.http, "GET http://allow") })
	begin(func() { visit(w.insider(true)) })
	begin(func() { visit(w.insider(false)) })
	for range 500 {
		if _, dialed := w.traces(); len(dialed) == 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	closed := make(chan struct{})
	go func() {
		w.Close()
		close(closed)
	}()
	for range 4 {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatal("a connection goes on")
		}
	}
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("the gate does not close")
	}
	if c, err := net.Dial("tcp", w.http.Addr().String()); err == nil {
		c.Close()
		t.Error("the gate still listens")
	}
}
