package gate

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

// corporate is a proxy that every name leads through to one server.
type corporate struct {
	mu     sync.Mutex
	log    []string
	server string // for connections
}

func (p *corporate) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, text)
}

func (p *corporate) seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

func (p *corporate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.note(fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, r.Header.Get("Proxy-Authorization")))
	if r.Method != http.MethodConnect {
		fmt.Fprintf(w, "proxied %s", r.RequestURI)
		return
	}
	if strings.HasPrefix(r.Host, "no.") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	up, err := net.Dial("tcp", p.server)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer up.Close()
	c, _, _ := w.(http.Hijacker).Hijack()
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	go io.Copy(up, c)
	io.Copy(c, up)
}

func (p *corporate) serveSOCKS(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			// With a password: what a client of ours never needs, a proxy may.
			r := bufio.NewReader(c)
			greeting := make([]byte, 4)
			io.ReadFull(r, greeting)
			c.Write([]byte{5, 2})
			auth := make([]byte, 2+1+1+1)
			io.ReadFull(r, auth)
			p.note(fmt.Sprintf("password %q", auth))
			c.Write([]byte{1, 0})
			// From here on as for a client without one.
			q, err := socks.Accept(bufio.NewReader(io.MultiReader(strings.NewReader("\x05\x01\x00"), r)), &skip{c, 2})
			if err != nil {
				p.note(err.Error())
				return
			}
			p.note("connect " + q.Host.Join(q.Port))
			up, err := net.Dial("tcp", p.server)
			if err != nil {
				return
			}
			defer up.Close()
			q.Answer(c, socks.Succeeded)
			go io.Copy(up, r)
			io.Copy(c, up)
		}()
	}
}

// skip drops the first bytes that are written.
type skip struct {
	io.Writer
	n int
}

func (s *skip) Write(b []byte) (int, error) {
	if s.n > 0 {
		s.n -= len(b)
		return len(b), nil
	}
	return s.Writer.Write(b)
}

func TestConnectionsLeaveThroughTheUpstreamProxy(t *testing.T) {
	secure, roots := tlsServer(t, http.HandlerFunc(tell), false)
	basic := base64.StdEncoding.EncodeToString([]byte("u:p"))
	for _, scheme := range []string{"http", "https", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			p := &corporate{server: addressOf(secure)}
			proxy := httptest.NewUnstartedServer(p)
			switch scheme {
			case "http":
				proxy.Start()
			case "https":
				cert, pool := certificate(t)
				roots.AddCert(cert.Leaf)
				_ = pool
				proxy.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
				proxy.StartTLS()
			default:
				go p.serveSOCKS(proxy.Listener)
			}
			t.Cleanup(func() { proxy.Listener.Close() })
			w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example", "no.allowed.example"], "upstreamProxy": "`+scheme+`://u:p@`+proxy.Listener.Addr().String()+`"}}`,
				func(w *world) { w.options.Roots = roots })
			c := w.client(w.http, roots)
			status, body := get(t, c, "https://allowed.example/secure")
			if status != 200 || !strings.HasPrefix(body, "GET allowed.example /secure") {
				t.Errorf("got %d %q", status, body)
			}
			if scheme == "socks5" {
				contains(t, "proxy", p.seen(), `password "\x01\x01u\x01p"`, "connect allowed.example:443")
			} else {
				contains(t, "proxy", p.seen(), "CONNECT allowed.example:443 Basic "+basic)
				// Plain requests are asked for by their URL, as such proxies want.
				if status, body := get(t, c, "http://allowed.example/plain?x"); status != 200 || body != "proxied http://allowed.example/plain?x" {
					t.Errorf("got %d %q", status, body)
				}
				tunnel, r, _, _ := w.connect("allowed.example:80")
				io.WriteString(tunnel, "GET /tunnelled HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
				if status, body := readAnswer(t, r, "GET"); status != 200 || body != "proxied http://allowed.example/tunnelled" {
					t.Errorf("got %d %q", status, body)
				}
				if _, _, status, body := w.connect("no.allowed.example:443"); status != 502 || !strings.Contains(body, "403") {
					t.Errorf("got %d %q", status, body)
				}
			}
			// Rules hold as ever, and no name is resolved here.
			if status, _ := get(t, c, "http://evil.com/"); status != 403 {
				t.Errorf("evil.com got %d", status)
			}
			lacks(t, "proxy", p.seen(), "evil.com")
			w.untouched("names that the proxy resolves")
			// The password is for the proxy only.
			w.noSecrets(basic)
			w.noSecrets("u:p")
		})
	}
}

func TestDefaultActionProxyLeavesUnnamedHostsToTheProxy(t *testing.T) {
	p := &corporate{server: addressOf(echo(t))}
	proxy := httptest.NewServer(p)
	defer proxy.Close()
	w := newWorld(t, `{"network": {"deniedDomains": ["evil.com"], "defaultAction": "proxy", "upstreamProxy": "`+proxy.URL+`"}}`)
	c := w.client(w.http, nil)
	if status, body := get(t, c, "http://anything.example/"); status != 200 || body != "proxied http://anything.example/" {
		t.Errorf("got %d %q", status, body)
	}
	if e := w.connection("anything.example"); e.Rule != "network.defaultAction proxy" {
		t.Errorf("got %+v", e)
	}
	for _, url := range []string{"http://evil.com/", "http://169.254.169.254/", "http://10.0.0.1/", "http://127.0.0.1/"} {
		if status, body := get(t, c, url); status != 403 {
			t.Errorf("%s: got %d %q", url, status, body)
		}
	}
	lacks(t, "proxy", p.seen(), "evil.com", "169.254", "10.0.0.1", "127.0.0.1")
	w.untouched("names that the proxy resolves")
}

func TestProxyOfTheEnvironmentHasExceptions(t *testing.T) {
	p := &corporate{server: addressOf(echo(t))}
	proxy := httptest.NewServer(p)
	defer proxy.Close()
	w := newWorld(t, allowed, func(w *world) {
		w.config.Upstream = config.Upstream{All: proxy.URL, NoProxy: "direct.allowed.example"}
	})
	w.place(80, addressOf(echo(t)))
	c := w.client(w.http, nil)
	if _, body := get(t, c, "http://www.allowed.example/"); !strings.HasPrefix(body, "proxied ") {
		t.Errorf("got %q", body)
	}
	if _, body := get(t, c, "http://direct.allowed.example/"); !strings.HasPrefix(body, "GET direct.allowed.example /") {
		t.Errorf("got %q", body)
	}
}

func TestBadProxyIsRefusedWithoutItsPassword(t *testing.T) {
	for _, text := range []string{"ftp://u:hush@p:1", "http://u:hush@[p:1", "u:hush@p", "http://", "http://u:hush@"} {
		_, err := newUpstream(config.Upstream{All: text})
		if err == nil {
			t.Errorf("%s passes", text)
			continue
		}
		lacks(t, text, err.Error(), "hush")
	}
}
