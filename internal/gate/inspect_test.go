package gate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
)

const inspected = `{"network": {"rules": [
	{"host": "allowed.example", "methods": ["DELETE"], "action": "deny", "inspect": true},
	{"host": "allowed.example", "paths": ["/admin/**"], "action": "deny"},
	{"host": "allowed.example", "action": "allow"},
	{"host": "www.allowed.example", "methods": ["GET"], "paths": ["/pub/**"], "inspect": true, "action": "allow"},
], "allowedDomains": ["other.example"]}}`

// insider is a client that trusts the gate's authority and nobody else.
func (w *world) insider(http2 bool) *http.Client {
	w.t.Helper()
	ca, err := w.authority(w.config.AuthorityDir)
	if err != nil {
		w.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	c := w.client(w.http, roots)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = http2
	return c
}

func do(t testing.TB, c *http.Client, method, url string, body io.Reader, fields ...string) (int, string, *http.Response) {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return answer.StatusCode, string(text), answer
}

func TestMethodsAndPathsHoldInsideTLS(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			s, roots := tlsServer(t, http.HandlerFunc(tell), true)
			w := newWorld(t, inspected, func(w *world) {
				w.options.Roots = roots
				w.hosts["other.example"] = []netip.Addr{public}
			})
			w.place(443, addressOf(s))
			c := w.insider(http2)
			for _, step := range []struct {
				method, url string
				status      int
			}{
				{"GET", "https://allowed.example/x?y=1", 200},
				{"POST", "https://allowed.example/x", 200},
				{"DELETE", "https://allowed.example/x", 403},
				{"GET", "https://allowed.example/admin/x", 403},
				{"GET", "https://allowed.example/Admin/x", 403},
				{"GET", "https://allowed.example//admin/x", 403},
				{"GET", "https://allowed.example/x/..%2fadmin/x", 403},
				{"GET", "https://allowed.example/%61dmin/", 403},
				{"GET", "https://www.allowed.example/pub/a", 200},
				{"GET", "https://www.allowed.example/pub/%2e%2e/x", 403},
				{"GET", "https://www.allowed.example/private", 403},
				{"POST", "https://www.allowed.example/pub/a", 403},
			} {
				status, body, answer := do(t, c, step.method, step.url, nil)
				if status != step.status {
					t.Errorf("%s %s: got %d %q", step.method, step.url, status, body)
				}
				if status == 200 {
					host, path, _ := strings.Cut(strings.TrimPrefix(step.url, "https://"), "/")
					contains(t, step.url, body, step.method+" "+host+" /"+path)
					if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]; answer.Proto != want || answer.Header.Get("X-Proto") != want {
						t.Errorf("%s: %s inside, %s outside", step.url, answer.Proto, answer.Header.Get("X-Proto"))
					}
				}
			}
			// A method in another place.
			status, body, _ := do(t, c, "POST", "https://allowed.example/x", nil, "X-HTTP-Method-Override", "DELETE")
			if status != 403 {
				t.Errorf("overridden method: got %d %q", status, body)
			}
			// Bodies, in both directions.
			big := bytes.Repeat([]byte("z"), 500_000)
			status, body, _ = do(t, c, "PUT", "https://allowed.example/big", bytes.NewReader(big))
			if status != 200 || !strings.HasSuffix(body, string(big)) {
				t.Errorf("got %d, %d bytes", status, len(body))
			}
			e := w.event("a request", func(e *event.Event) bool { return e.Method == http.MethodPut })
			if e.Kind != event.Connection || e.Host != "allowed.example" || e.Port != 443 || e.URLPath != "/big" || e.BytesIn < 500_000 || e.BytesOut < 500_000 || e.Address != public.String() {
				t.Errorf("got %+v", e)
			}
			if e := w.denied("www.allowed.example"); e.Method == "" || e.URLPath == "" {
				t.Errorf("got %+v", e)
			}
			// Where no rule says so TLS stays shut: this client does not trust
			// the server's own certificate.
			if status, body, _ := do(t, c, "GET", "https://other.example/", nil); status != 0 || !strings.Contains(body, "certificate") {
				t.Errorf("TLS to other.example was opened: got %d %q", status, body)
			}
		})
	}
}

func TestServersCertificateIsVerified(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	_, others := certificate(t, "allowed.example")
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = others })
	w.place(443, addressOf(s))
	status, body, _ := do(t, w.insider(false), "GET", "https://allowed.example/", nil)
	if status != 502 {
		t.Errorf("got %d %q", status, body)
	}
	contains(t, "answer", body, "certificate is not trusted")
	// And its name.
	s, roots := tlsServer(t, http.HandlerFunc(tell), false)
	w = newWorld(t, `{"network": {"rules": [{"host": "third.allowed.example", "action": "allow", "inspect": true}]}}`, func(w *world) { w.options.Roots = roots })
	w.place(443, addressOf(s))
	if status, body, _ := do(t, w.insider(false), "GET", "https://third.allowed.example/", nil); status != 502 {
		t.Errorf("got %d %q", status, body)
	}
}

func TestRequestsForOtherHostsOnAnOpenedConnectionAreRefused(t *testing.T) {
	s, roots := tlsServer(t, http.HandlerFunc(tell), true)
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = roots })
	w.place(443, addressOf(s))
	for _, http2 := range []bool{false, true} {
		c := w.insider(http2)
		for _, host := range []string{"www.allowed.example", "evil.com", "allowed.example:80"} {
			r, _ := http.NewRequest(http.MethodGet, "https://allowed.example/", nil)
			r.Host = host
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if want := map[bool]int{false: 400, true: 421}[http2]; answer.StatusCode != want {
				t.Errorf("%s, http2=%v: got %d, want %d", host, http2, answer.StatusCode, want)
			}
		}
	}
}

func TestAddressMayBeOpenedUnderTheNameInTLS(t *testing.T) {
	s, roots := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, `{"network": {"rules": [{"host": "127.0.0.1", "ports": ["*"], "methods": ["GET"], "action": "allow", "inspect": true}]}}`, func(w *world) { w.options.Roots = roots })
	config := w.insider(false).Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "allowed.example"
	_, port, _ := net.SplitHostPort(addressOf(s))
	for method, want := range map[string]int{"GET": 200, "POST": 403} {
		c, _, _, _ := w.connect(addressOf(s))
		secure := tls.Client(c, config)
		fmt.Fprintf(secure, "%s / HTTP/1.1\r\nHost: allowed.example:%s\r\n\r\n", method, port)
		if status, body := readAnswer(t, bufio.NewReader(secure), method); status != want {
			t.Errorf("%s: got %d %q", method, status, body)
		}
	}
}

func TestECHDoesNotMatterWhereTLSIsOpened(t *testing.T) {
	s, roots := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = roots })
	w.place(443, addressOf(s))
	c, r, _, _ := w.connect("allowed.example:443")
	c.Write(rawHello(append(serverName("allowed.example"), 0xfe, 0x0d, 0, 1, 0)))
	// This hello is no good for a handshake, but that is another alert.
	if got, _ := io.ReadAll(r); string(got) == string(accessDenied) {
		t.Errorf("got %q", got)
	}
}

func TestWebSocketPassesInsideTLS(t *testing.T) {
	plain := webSocket(t)
	s, roots := tlsServer(t, plain.Config.Handler, false)
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = roots })
	w.place(443, addressOf(s))
	c, _, _, _ := w.connect("allowed.example:443")
	config := w.insider(false).Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "allowed.example"
	secure := tls.Client(c, config)
	io.WriteString(secure, "GET /chat HTTP/1.1\r\nHost: allowed.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(secure)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v, %v", answer, err)
	}
	io.WriteString(secure, "hello\n")
	for _, want := range []string{"welcome\n", "echo hello\n"} {
		if line, err := r.ReadString('\n'); err != nil || line != want {
			t.Errorf("got %q, %v", line, err)
		}
	}
}

// grpc answers as gRPC servers do: a stream of messages, and the status in a
// trailer.
func grpc(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.(http.Flusher).Flush()
	buffer := make([]byte, 100)
	for {
		n, err := r.Body.Read(buffer)
		if n > 0 {
			fmt.Fprintf(w, "got %s", buffer[:n])
			w.(http.Flusher).Flush()
		}
		if err != nil {
			break
		}
	}
	w.Header().Set("Grpc-Status", "0")
}

func TestStreamsOfHTTP2PassInBothDirectionsAtOnce(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(grpc), Protocols: &protocols}
	go server.Serve(plain)
	defer server.Close()
	secure, roots := tlsServer(t, http.HandlerFunc(grpc), true)
	w := newWorld(t, inspected, func(w *world) { w.options.Roots = roots })
	w.place(443, addressOf(secure))
	w.place(80, plain.Addr().String())

	inTheClear := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return socks5(t, w.socks, "allowed.example", 80)
	}}
	defer inTheClear.CloseIdleConnections()
	for url, c := range map[string]*http.Client{
		"https://allowed.example/s": w.insider(true),
		"http://allowed.example/s":  {Transport: inTheClear, Timeout: 10 * time.Second},
	} {
		in, out := io.Pipe()
		r, _ := http.NewRequest(http.MethodPost, url, in)
		r.Header.Set("Te", "trailers")
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		for i := range 3 {
			fmt.Fprintf(out, "message %d", i)
			want := fmt.Sprintf("got message %d", i)
			if n, err := io.ReadAtLeast(answer.Body, buffer, len(want)); err != nil || string(buffer[:n]) != want {
				t.Fatalf("%s: got %q, %v", url, buffer[:n], err)
			}
		}
		out.Close()
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%s: trailer %v", url, answer.Trailer)
		}
	}
	// The same, to somebody else.
	r, _ := http.NewRequest(http.MethodGet, "http://allowed.example/x", nil)
	r.Host = "evil.com"
	answer, err := (&http.Client{Transport: inTheClear, Timeout: 10 * time.Second}).Do(r)
	if err != nil || answer.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("got %+v, %v", answer, err)
	}
	if status, _, _ := do(t, &http.Client{Transport: inTheClear}, "DELETE", "http://allowed.example/x", nil); status != 403 {
		t.Errorf("DELETE got %d", status)
	}
}

func TestHiddenMethodsAreDeniedWithTheWayOut(t *testing.T) {
	s, roots := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, `{"network": {"rules": [{"host": "allowed.example", "methods": ["GET"], "action": "allow"}]}}`)
	w.place(443, addressOf(s))
	w.place(80, addressOf(echo(t)))
	c := w.client(w.http, roots)
	if status, body := get(t, c, "https://allowed.example/"); status != 0 || !strings.Contains(body, "access denied") {
		t.Errorf("got %d %q", status, body)
	}
	contains(t, "fix", w.denied("allowed.example").Fix, `"inspect": true`)
	if status, body := get(t, c, "http://allowed.example/"); status != 200 {
		t.Errorf("in the clear: got %d %q", status, body)
	}
	if status, body, _ := do(t, c, "POST", "http://allowed.example/", nil); status != 403 || !strings.Contains(body, `"methods": ["POST"]`) {
		t.Errorf("in the clear: got %d %q", status, body)
	}
}
