package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
)

// insteadOf is a client that takes the unix socket for the server itself.
func (w *world) insteadOf(config *tls.Config) *http.Client {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", w.unix.Addr().String())
	}
	transport := &http.Transport{DialContext: dial, TLSClientConfig: config}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestUnixSocketStandsForTheServerThatIsNamed(t *testing.T) {
	secure, roots := tlsServer(t, http.HandlerFunc(tell), false)
	plain := httptest.NewServer(http.HandlerFunc(tell))
	defer plain.Close()
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"]}}`)
	w.place(443, addressOf(secure))
	w.place(80, addressOf(plain))
	c := w.insteadOf(&tls.Config{RootCAs: roots})
	for _, url := range []string{"http://allowed.example/x", "https://allowed.example/x"} {
		if status, body := get(t, c, url); status != 200 || !strings.HasPrefix(body, "GET allowed.example /x") {
			t.Errorf("%s: got %d %q", url, status, body)
		}
	}
	w.traces()
	if status, body := get(t, c, "http://evil.com/x"); status != 403 || !strings.Contains(body, "evil.com") {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := get(t, c, "https://evil.com/x"); status != 0 || !strings.Contains(body, "access denied") {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := get(t, c, "http://allowed.example:8080/x"); status != 403 {
		t.Errorf("another port: got %d %q", status, body)
	}
}

func TestUnixSocketWantsToKnowTheServer(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["*"]}}`)
	for _, request := range []string{
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET x HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"GET http://allowed.example/ HTTP/1.1\r\nHost: evil.com\r\n\r\n", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
	} {
		if got := say(t, w.unix, request); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%q: got %q", request, got)
		}
	}
	for name, hello := range map[string][]byte{
		"no name":   rawHello(nil),
		"two names": rawHello(append(serverName("allowed.example"), serverName("evil.com")...)),
		"bad name":  rawHello(serverName("allowed.example/evil")),
	} {
		c := dialGate(t, w.unix)
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); !bytes.Equal(got, accessDenied) {
			t.Errorf("TLS, %s: got %q", name, got)
		}
		w.event("the denial", func(e *event.Event) bool { return e.Kind == event.Deny && e.Port == 443 })
	}
	w.untouched("requests to nobody")
}
