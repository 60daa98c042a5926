package gate

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestRequestIsDecidedAsWhateverAServerMayTakeItFor(t *testing.T) {
	w := newWorld(t, `{"network": {"rules": [
		{"host": "allowed.example", "methods": ["DELETE"], "action": "deny"},
		{"host": "allowed.example", "paths": ["/open/**"], "action": "allow"}]}}`)
	w.place(80, addressOf(echo(t)))
	for _, c := range []struct {
		fields string
		status int
	}{
		{"", 200},
		{"X-HTTP-Method-Override: PUT\r\n", 200},
		{"X-HTTP-Method-Override: DELETE\r\n", 403},
		{"X-HTTP-Method: PUT\r\nX-HTTP-Method: delete\r\n", 403},
		{"X-Original-URL: /open/y?z\r\n", 200},
		{"X-Original-URL: /closed\r\n", 403},
		{"x-rewrite-url: closed?/open/\r\n", 403},
		{"X-Rewrite-URL: https://allowed.example/closed\r\n", 403},
		{"X-Rewrite-URL: https://allowed.example/open/y\r\n", 200},
		{"X-Rewrite-URL: https://allowed.example\r\n", 403},
		{"X-Original-URL: /open/../closed\r\n", 403},
		{"X-Original-URL: /open/y\r\nX-Original-URL: /closed\r\n", 403},
		{"X-Original-URL: /open/y\r\nX-HTTP-Method-Override: DELETE\r\n", 403},
		{"X-Original-URL: /open/%zz\r\n", 400},
		{string(bytes.Repeat([]byte("X-HTTP-Method: PUT\r\n"), maxReadings)), 400},
	} {
		c0 := dialGate(t, w.http)
		_, _ = io.WriteString(c0, "GET http://allowed.example/open/x HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n"+c.fields+"\r\n")
		answer, _ := io.ReadAll(c0)
		if len(answer) < 12 || string(answer[9:12]) != map[int]string{200: "200", 400: "400", 403: "403"}[c.status] {
			t.Errorf("%q: got %.100q, want %d", c.fields, answer, c.status)
		}
	}
}

// A client that asks for much on one connection and reads nothing must not have
// the gate hold it all.
func TestStreamsThatNobodyReadsAreHeldBack(t *testing.T) {
	var sent atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 64<<10); ; {
			n, err := rw.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	w := newWorld(t, allowed)
	w.place(80, l.Addr().String())

	c, err := socks5(t, w.socks, "allowed.example", 80)
	if err != nil {
		t.Fatal(err)
	}
	const streams = 50
	greedy(t, c, streams)
	// When nothing more is sent, as much is held as ever will be.
	for last := int64(-1); last != sent.Load() || last == 0; time.Sleep(200 * time.Millisecond) {
		last = sent.Load()
	}
	// Sockets hold some of it, and each stream of the server has a buffer.
	if got, most := sent.Load(), int64(streamLimits.MaxReceiveBufferPerConnection+streams<<16+(16<<20)); got > most {
		t.Errorf("%d MB were taken from the server, want at most %d", got>>20, most>>20)
	}
}

// greedy asks for one answer after the other.
func greedy(t *testing.T, c net.Conn, streams int) {
	t.Helper()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range streams {
		block.Reset()
		for _, h := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "allowed.example"}, {Name: ":path", Value: "/"}} {
			if err := e.WriteField(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// The query of a URL may hold another one.
func TestRequestToAUnixSocketGoesWhereItsHostSays(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	for _, target := range []string{"/login?next=http://evil.example/", "/http://evil.example/", "http://allowed.example/login?next=http://evil.example/"} {
		c := dialGate(t, w.unix)
		_, _ = io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(c)
		contains(t, target, string(answer), "GET allowed.example /")
	}
}
