package gate

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

// socks5 asks for a connection.
func socks5(t testing.TB, l net.Listener, host string, port uint16) (net.Conn, error) {
	t.Helper()
	h, err := hostname.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	c := dialGate(t, l)
	return c, socks.Connect(c, h, port, "", "")
}

// replyOf is how a proxy said no.
func replyOf(err error) socks.Reply {
	var refused *socks.Error
	if !errors.As(err, &refused) {
		return socks.Succeeded
	}
	return refused.Reply
}

func TestSOCKSConnectsToWhatIsAllowed(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	w.place(443, addressOf(s))
	for _, l := range []net.Listener{w.socks, w.mixed, w.unix} {
		c, err := socks5(t, l, "allowed.example", 80)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET /via-socks HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
		status, body := readAnswer(t, bufio.NewReader(c), "GET")
		if status != 200 {
			t.Errorf("got %d", status)
		}
		contains(t, "body", body, "GET allowed.example /via-socks")
	}
	c, err := socks5(t, w.socks, "www.allowed.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(c, "www.allowed.example"); err != nil {
		t.Error(err)
	}
	// Version 4a, by hand.
	old := dialGate(t, w.socks)
	io.WriteString(old, "\x04\x01\x00\x50\x00\x00\x00\x01\x00allowed.example\x00GET /old HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n\r\n")
	got, _ := io.ReadAll(old)
	contains(t, "version 4a", string(got), "\x00\x5a", "GET allowed.example /old")
}

func TestSOCKSRefusesWithAReason(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, allowed)
	for _, c := range []struct {
		host string
		port uint16
		want socks.Reply
	}{
		{"evil.com", 443, socks.NotAllowed},
		{"bad.allowed.example", 443, socks.NotAllowed},
		{"allowed.example", 22, socks.NotAllowed},
		{"127.0.0.1", 443, socks.NotAllowed},
		{"::1", 443, socks.NotAllowed},
		{"169.254.169.254", 80, socks.NotAllowed},
		{"198.18.3.4", 80, socks.NotAllowed},
	} {
		_, err := socks5(t, w.socks, c.host, c.port)
		if replyOf(err) != c.want {
			t.Errorf("%s:%d: got %v", c.host, c.port, err)
		}
	}
	w.untouched("refused connections")
	if got := say(t, w.socks, "\x04\x01\x01\xbb\x00\x00\x00\x01\x00evil.com\x00"); got != "\x00\x5b\x00\x00\x00\x00\x00\x00" {
		t.Errorf("version 4a: got %q", got)
	}
	w.untouched("a refused name in version 4a")
	w.denied("evil.com")

	w.place(443, dead.Addr().String())
	dead.Close()
	_, err = socks5(t, w.socks, "allowed.example", 443)
	if replyOf(err) != socks.ConnectionRefused {
		t.Errorf("nobody listens: got %v", err)
	}
	w.mu.Lock()
	w.hosts["gone.allowed.example"] = nil
	w.mu.Unlock()
	_, err = socks5(t, w.socks, "gone.allowed.example", 443)
	if replyOf(err) != socks.HostUnreachable {
		t.Errorf("no such name: got %v", err)
	}
}

func TestSOCKSHasNoUDPAndNoListening(t *testing.T) {
	w := newWorld(t, allowed)
	for name, command := range map[string]string{"BIND": "\x02", "UDP ASSOCIATE": "\x03"} {
		got := say(t, w.socks, "\x05\x01\x00\x05"+command+"\x00\x03\x0fallowed.example\x00\x50")
		contains(t, name, got, "\x05\x00\x05\x07")
	}
	w.untouched("other commands")
}
