package gate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// names serves the gate's name server on a socket, and returns a resolver that
// asks it.
func (w *world) resolver() *net.Resolver {
	w.t.Helper()
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.ServePacket(packets) }()
	w.t.Cleanup(func() {
		packets.Close()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", packets.LocalAddr().String())
	}}
}

// lookup returns the first address of a name.
func lookup(t testing.TB, r *net.Resolver, network, name string) netip.Addr {
	t.Helper()
	addrs, err := r.LookupNetIP(t.Context(), network, name)
	if err != nil || len(addrs) == 0 {
		t.Fatalf("%s: got %v, %v", name, addrs, err)
	}
	return addrs[0].Unmap()
}

func TestProgramThatKnowsNoProxyIsServedByName(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	w.place(443, addressOf(s))
	r := w.resolver()
	for _, network := range []string{"ip4", "ip6"} {
		addr := lookup(t, r, network, "www.allowed.example")
		c := w.redirected(netip.AddrPortFrom(addr, 80).String())
		io.WriteString(c, "GET /direct HTTP/1.1\r\nHost: www.allowed.example\r\n\r\n")
		status, body := readAnswer(t, bufio.NewReader(c), "GET")
		if status != 200 || !strings.HasPrefix(body, "GET www.allowed.example /direct\n") {
			t.Errorf("%s: got %d %q", network, status, body)
		}
		c = w.redirected(netip.AddrPortFrom(addr, 443).String())
		if err := handshake(c, "www.allowed.example"); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		// Another name than the one that was looked up.
		for _, name := range []string{"allowed.example", "evil.com"} {
			err := handshake(w.redirected(netip.AddrPortFrom(addr, 443).String()), name)
			contains(t, name, fmt.Sprint(err), "access denied")
			c = w.redirected(netip.AddrPortFrom(addr, 80).String())
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
			if status, body := readAnswer(t, bufio.NewReader(c), "GET"); status != 400 {
				t.Errorf("%s: got %d %q", name, status, body)
			}
		}
	}
	_, dialed := w.traces()
	for _, to := range dialed {
		if to.Addr() != public {
			t.Errorf("dialed %v", to)
		}
	}
}

func TestProxyClientMayUseAddressesOfTheNameServer(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	addr := lookup(t, w.resolver(), "ip4", "allowed.example")
	c, err := socks5(t, w.socks, addr.String(), 80)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	if status, body := readAnswer(t, bufio.NewReader(c), "GET"); status != 200 {
		t.Errorf("got %d %q", status, body)
	}
}

func TestAddressThatWasNotGivenOutIsRefused(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	lookup(t, w.resolver(), "ip4", "allowed.example")
	w.mu.Lock()
	w.asked = nil
	w.mu.Unlock()
	for _, to := range []string{
		"93.184.215.14:80", "127.0.0.1:80", "[::1]:80", "169.254.169.254:80", "10.0.0.1:80", "198.18.0.9:80", "[fd62:6169:6c65:79::9]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80",
	} {
		c := w.redirected(to)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
		if status, body := readAnswer(t, bufio.NewReader(c), "GET"); status != 403 {
			t.Errorf("%s: got %d %q", to, status, body)
		}
		c = w.redirected(strings.Replace(to, ":80", ":443", 1))
		contains(t, to, fmt.Sprint(handshake(c, "allowed.example")), "access denied")
		c = w.redirected(strings.Replace(to, ":80", ":22", 1))
		io.WriteString(c, "SSH-2.0-x\r\n")
		if got, err := io.ReadAll(c); err == nil || len(got) > 0 {
			t.Errorf("%s: got %q, %v, want a reset", to, got, err)
		}
	}
	w.untouched("addresses")
}

func TestAllowedRangeIsReachedDirectly(t *testing.T) {
	s := echo(t)
	w := newWorld(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"]}}`)
	c := w.redirected(addressOf(s))
	_, port, _ := net.SplitHostPort(addressOf(s))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", port)
	if status, body := readAnswer(t, bufio.NewReader(c), "GET"); status != 200 {
		t.Errorf("got %d %q", status, body)
	}
}

func TestConnectionThatWasNotRedirectedIsReset(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"]}}`)
	for _, meant := range []string{"", w.tcp.Addr().String()} { // nowhere, or the gate itself
		w.mu.Lock()
		w.always = meant
		w.mu.Unlock()
		c, err := net.Dial("tcp", w.tcp.Addr().String())
		if err != nil {
			continue // that was quick
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if got, err := io.ReadAll(c); err == nil || isTimeout(err) || len(got) > 0 {
			t.Errorf("meant for %q: got %q, %v", meant, got, err)
		}
		c.Close()
	}
	w.untouched("the gate itself")
}

func TestNameServerAsksNobodyAboutDeniedNames(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example", "gone.example"], "rules": [{"host": "asked.example", "action": "ask"}], "deniedDomains": ["bad.allowed.example"]}}`)
	r := w.resolver()
	for _, name := range []string{"evil.com", "secret-message.evil.com", "bad.allowed.example", "allowed.example.evil.com", "notallowed.example"} {
		_, err := r.LookupNetIP(t.Context(), "ip", name)
		if !isMissing(err) {
			t.Errorf("%s: got %v", name, err)
		}
		w.denied(name)
	}
	w.untouched("denied names")
	// A person has the last word, and has not spoken.
	lookup(t, r, "ip4", "asked.example")
	w.untouched("a name that is asked about")
	_, err := r.LookupNetIP(t.Context(), "ip", "gone.example")
	if !isMissing(err) {
		t.Errorf("a name that does not exist: got %v", err)
	}
	// Whole: no search list adds to it.
	asked, _ := w.traces()
	for _, name := range asked {
		if name != "gone.example." {
			t.Errorf("asked for %q", name)
		}
	}
	if _, err := r.LookupTXT(t.Context(), "allowed.example"); err == nil {
		t.Error("TXT records are answered")
	}
}

func TestNamesAreServedOverTCP(t *testing.T) {
	w := newWorld(t, allowed)
	l := w.listen(config.RoleDNSTCP, "tcp")
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}}
	if addr := lookup(t, r, "ip4", "allowed.example"); !w.pool.Contains(addr) {
		t.Errorf("got %v", addr)
	}
}
