package gate

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// recorded is a client that has said all it will ever say.
type recorded struct {
	io.Reader
}

func (r *recorded) Read(b []byte) (int, error)       { return r.Reader.Read(b) }
func (r *recorded) Write(b []byte) (int, error)      { return len(b), nil }
func (r *recorded) Close() error                     { return nil }
func (r *recorded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (r *recorded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *recorded) SetDeadline(time.Time) error      { return nil }
func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }

// FuzzNothingReachesAnotherHost gives the gate what a client might say, as a
// proxy for HTTP and SOCKS, and looks at what comes out on the other side.
func FuzzNothingReachesAnotherHost(f *testing.F) {
	for _, s := range []string{
		"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\nGET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"POST http://allowed.example/x HTTP/1.1\r\nHost: allowed.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET http://allowed.example/y HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"POST http://allowed.example/x HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 3\r\n\r\nabcGET http://allowed.example/y HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"CONNECT allowed.example:80 HTTP/1.1\r\nHost: allowed.example:80\r\n\r\nGET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n" + string(rawHello(serverName("allowed.example"))),
		"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nxyz",
		"\x05\x01\x00\x05\x01\x00\x03\x0fallowed.example\x00\x50GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"\x04\x01\x00\x50\x00\x00\x00\x01\x00allowed.example\x00GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := &outside{t: t, input: b}
		g, err := New(Options{
			Config: config.Config{Default: config.Deny, Rules: []config.Rule{{
				Host: "allowed.example", Ports: []config.Ports{{From: 80, To: 80}, {From: 443, To: 443}}, Schemes: []string{"http", "https"}, Action: config.Allow,
			}}},
			Events: event.Multi(nil), Resolver: o, Dial: o.dial,
		})
		if err != nil {
			t.Fatal(err)
		}
		g.serve(&recorded{Reader: bytes.NewReader(b)}, (*session).serveMixed)
		g.Close()
		o.wait.Wait()
	})
}

// outside is a world with one host.
type outside struct {
	t     *testing.T
	input []byte
	wait  sync.WaitGroup
}

func (o *outside) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	if name != "allowed.example." {
		o.t.Errorf("%q: asked for %q", o.input, name)
	}
	return []netip.Addr{public}, nil
}

func (o *outside) dial(_ context.Context, to netip.AddrPort) (net.Conn, error) {
	if to != netip.AddrPortFrom(public, 80) && to != netip.AddrPortFrom(public, 443) {
		o.t.Errorf("%q: dialed %v", o.input, to)
	}
	near, far := net.Pipe()
	o.wait.Go(func() { o.serve(far, to.Port()) })
	return near, nil
}

// serve is a server that reads in its own, lenient way.
func (o *outside) serve(c net.Conn, port uint16) {
	defer c.Close()
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 22 {
		_, _ = io.Copy(io.Discard, r)
		return
	}
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		host, named, err := hostname.ParseHostPort(q.Host, port)
		if err != nil || host.Name() != "allowed.example" || named != port || strings.Contains(q.RequestURI, "://") && !strings.HasPrefix(q.RequestURI, "/") {
			o.t.Errorf("%q: the server was asked for %q of %q", o.input, q.RequestURI, q.Host)
		}
		_, _ = io.Copy(io.Discard, q.Body)
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}
