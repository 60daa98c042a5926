package gate

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
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

// connect asks the HTTP proxy for a tunnel.
func (w *world) connect(to string) (net.Conn, *bufio.Reader, int, string) {
	w.t.Helper()
	c := dialGate(w.t, w.http)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		w.t.Fatal(err)
	}
	var body []byte
	if answer.StatusCode != http.StatusOK {
		body, _ = io.ReadAll(answer.Body)
	}
	return c, r, answer.StatusCode, string(body)
}

func TestTLSPassesUnopened(t *testing.T) {
	s, roots := tlsServer(t, http.HandlerFunc(tell), true)
	w := newWorld(t, allowed)
	w.place(443, addressOf(s))
	status, body := get(t, w.client(w.http, roots), "https://www.allowed.example/x")
	if status != 200 || !strings.HasPrefix(body, "GET www.allowed.example /x\n") {
		t.Errorf("got %d %q", status, body)
	}
	// The server's own certificate was verified by the client, so nobody stood
	// in between. What was said inside cannot be seen.
	w.client(w.http, roots).CloseIdleConnections()
	w.Close()
	if e := w.connection("www.allowed.example"); e.Port != 443 || e.Method != "" || e.BytesIn < 500 || e.BytesOut < 200 || e.Address != public.String() {
		t.Errorf("got %+v", e)
	}
}

func TestTunnelsToOthersAreRefused(t *testing.T) {
	w := newWorld(t, allowed)
	for to, say := range map[string]string{
		"evil.com:443":              `network.allowedDomains: "evil.com"`,
		"bad.allowed.example:443":   "network.deniedDomains",
		"allowed.example:22":        "ssh.allowedHosts",
		"allowed.example:8443":      `"ports": ["8443"]`,
		"127.0.0.1:443":             "no rule",
		"[::1]:443":                 "no rule",
		"169.254.169.254:80":        "no rule",
		"allowed.example.evil:443":  "no rule",
		"198.18.0.77:443":           "not given out",
		"[fd62:6169:6c65:79::5]:80": "not given out",
	} {
		_, _, status, body := w.connect(to)
		if status != 403 {
			t.Errorf("%s: got %d", to, status)
		}
		contains(t, to, body, say)
	}
	w.untouched("refused tunnels")
}

// handshake tries TLS through a tunnel.
func handshake(c net.Conn, name string) error {
	return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
}

func TestNameInTLSMustBeTheOneThatWasAskedFor(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed)
	w.place(443, addressOf(s))
	for name, ok := range map[string]bool{"allowed.example": true, "ALLOWED.example": true, "www.allowed.example": false, "evil.com": false, "": true} {
		c, _, status, _ := w.connect("allowed.example:443")
		if status != 200 {
			t.Fatalf("got %d", status)
		}
		err := handshake(c, name)
		if (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
		if !ok {
			contains(t, name, fmt.Sprint(err), "access denied")
		}
	}
	e := w.denied("allowed.example")
	contains(t, "event", e.Rule, "one connection, one host")
}

// rawHello is a hello with the given extensions, for what Go's client does not
// send.
func rawHello(extensions []byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(extensions))), extensions...)
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(message))), message...)
}

func serverName(name string) []byte {
	b := []byte{0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(name)+5))
	b = binary.BigEndian.AppendUint16(b, uint16(len(name)+3))
	b = append(b, 0)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(name))), name...)
}

func TestHiddenNamesAreRefused(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed)
	w.place(443, addressOf(s))
	for name, hello := range map[string][]byte{
		"ECH":          rawHello(append(serverName("allowed.example"), 0xfe, 0x0d, 0, 1, 0)),
		"ECH, no name": rawHello([]byte{0xfe, 0x0d, 0, 1, 0}),
		"two names":    rawHello(append(serverName("allowed.example"), serverName("evil.com")...)),
		"bad name":     rawHello(serverName("allowed.example/evil")),
	} {
		c, r, _, _ := w.connect("allowed.example:443")
		c.Write(hello)
		if got, _ := io.ReadAll(r); string(got) != string(accessDenied) {
			t.Errorf("%s: got %q", name, got)
		}
	}
	e := w.event("denial for ECH", func(e *event.Event) bool { return e.Kind == event.Deny && strings.Contains(e.Fix, "inspect") })
	contains(t, "event", e.Fix, "ECH")
}

func TestHelloInManyPiecesIsStillChecked(t *testing.T) {
	s, _ := tlsServer(t, http.HandlerFunc(tell), false)
	w := newWorld(t, allowed)
	w.place(443, addressOf(s))
	for name, ok := range map[string]bool{"allowed.example": true, "evil.com": false} {
		c, _, _, _ := w.connect("allowed.example:443")
		if err := handshake(&dripping{Conn: c}, name); (err == nil) != ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// dripping sends its first kilobyte byte by byte.
type dripping struct {
	net.Conn
	sent int
}

func (d *dripping) Write(b []byte) (int, error) {
	for i := range b {
		if d.sent++; d.sent > 1024 {
			n, err := d.Conn.Write(b[i:])
			return i + n, err
		}
		if _, err := d.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func TestHTTPInATunnelStaysWithItsHost(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	for text, status := range map[string]int{
		"GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n":                           200,
		"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n":     200,
		"GET / HTTP/1.1\r\nHost: www.allowed.example\r\n\r\n":                       400,
		"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n":                                  400,
		"GET http://evil.com/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n":            400,
		"CONNECT evil.com:443 HTTP/1.1\r\nHost: allowed.example\r\n\r\n":            400,
		"\r\nGET / HTTP/1.1\r\nHost: evil.com\r\n\r\n":                              400,
		"\nGET / HTTP/1.1\r\nHost: evil.com\r\n\r\n":                                400,
		" GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n":                                 400,
		"GET\t/\tHTTP/1.1\r\nHost: evil.com\r\n\r\n":                                400,
		"get / http/1.1\r\nHost: evil.com\r\n\r\n":                                  400,
		"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: evil.com\r\n\r\n": 400,
	} {
		c, r, _, _ := w.connect("allowed.example:80")
		io.WriteString(c, text)
		if got, body := readAnswer(t, r, "GET"); got != status {
			t.Errorf("%.80q: got %d %q", text, got, body)
		}
	}
	// The second request on the same connection is looked at as well.
	c, r, _, _ := w.connect("allowed.example:80")
	io.WriteString(c, "GET /1 HTTP/1.1\r\nHost: allowed.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.com\r\n\r\n")
	for _, want := range []int{200, 400} {
		if got, body := readAnswer(t, r, "GET"); got != want {
			t.Errorf("got %d %q, want %d", got, body, want)
		}
	}
	if e := w.event("a request", func(e *event.Event) bool { return e.URLPath == "/1" }); e.Kind != event.Connection || e.Method != http.MethodGet {
		t.Errorf("got %+v", e)
	}
}

func TestOtherProtocolsNeedARule(t *testing.T) {
	// A server that greets first, as mail servers do, and repeats lines.
	greeting, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer greeting.Close()
	go func() {
		for {
			c, err := greeting.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "220 hello\r\n")
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					io.WriteString(c, "250 "+line)
				}
			}()
		}
	}()
	w := newWorld(t, `{"network": {
		"allowedDomains": ["allowed.example"],
		"rules": [{"host": "mail.allowed.example", "ports": [25], "action": "allow"}, {"host": "tls.allowed.example", "ports": [25], "schemes": ["https"], "action": "allow"}],
	}}`)
	for _, port := range []uint16{25, 80, 443} {
		w.place(port, greeting.Addr().String())
	}
	c, r, status, _ := w.connect("mail.allowed.example:25")
	if status != 200 {
		t.Fatalf("got %d", status)
	}
	for _, step := range [][2]string{{"", "220 hello\r\n"}, {"EHLO me\r\n", "250 EHLO me\r\n"}, {"QUIT\r\n", "250 QUIT\r\n"}} {
		io.WriteString(c, step[0])
		if line, err := r.ReadString('\n'); err != nil || line != step[1] {
			t.Fatalf("got %q, %v, want %q", line, err, step[1])
		}
	}
	c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if e := w.connection("mail.allowed.example"); e.BytesIn != 11+13+10 || e.BytesOut != 9+6 {
		t.Errorf("got %+v", e)
	}
	// Where rules grant the web only, neither the server's word nor the
	// client's passes.
	for _, to := range []string{"allowed.example:80", "allowed.example:443", "tls.allowed.example:25"} {
		c, r, status, _ = w.connect(to)
		if status != 200 {
			t.Fatalf("%s: got %d", to, status)
		}
		io.WriteString(c, "EHLO me\r\n")
		if got, _ := io.ReadAll(r); len(got) > 0 {
			t.Errorf("%s: got %q", to, got)
		}
	}
	contains(t, "fix", w.denied("allowed.example").Fix, `"schemes": ["tcp"]`)
}

func TestSSHNeedsItsOwnList(t *testing.T) {
	sshd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sshd.Close()
	go func() {
		for {
			c, err := sshd.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "SSH-2.0-server\r\n")
				io.Copy(c, c)
			}()
		}
	}()
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"]}, "ssh": {"allowedHosts": ["git.allowed.example"], "deniedHosts": ["no.allowed.example"]}}`)
	w.place(22, sshd.Addr().String())
	w.place(443, sshd.Addr().String())
	c, r, status, _ := w.connect("git.allowed.example:22")
	if status != 200 {
		t.Fatalf("got %d", status)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "SSH-2.0-server\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	io.WriteString(c, "SSH-2.0-client\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "SSH-2.0-client\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	for _, to := range []string{"allowed.example:22", "no.allowed.example:22", "git.allowed.example:443", "git.allowed.example:80", "evil.com:22"} {
		if _, _, status, _ := w.connect(to); status != 403 {
			t.Errorf("%s: got %d", to, status)
		}
	}
	// Something else than ssh on its port.
	c, r, _, _ = w.connect("git.allowed.example:22")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: git.allowed.example\r\n\r\n")
	got, _ := io.ReadAll(r)
	lacks(t, "the server's answer to HTTP", string(got), "GET /")
	// ssh where only the web is granted.
	c, r, _, _ = w.connect("allowed.example:443")
	io.WriteString(c, "SSH-2.0-client\r\n")
	if got, _ := io.ReadAll(r); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestAddressGrantedByItself(t *testing.T) {
	s := echo(t)
	port := netip.MustParseAddrPort(addressOf(s)).Port()
	w := newWorld(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "deniedDomains": ["evil.com"]}}`)
	c := w.client(w.http, nil)
	if status, body := get(t, c, "http://"+addressOf(s)+"/"); status != 200 {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := get(t, c, fmt.Sprintf("http://localhost:%d/", port)); status != 403 {
		t.Errorf("a name got %d %q from a range", status, body)
	}
	// On a connection to the address the server may be called by any name that
	// is not denied.
	for host, want := range map[string]int{"intranet": 200, "127.0.0.1": 200, "evil.com": 403} {
		tunnel, r, status, _ := w.connect(addressOf(s))
		if status != 200 {
			t.Fatalf("got %d", status)
		}
		fmt.Fprintf(tunnel, "GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port)
		if got, body := readAnswer(t, r, "GET"); got != want {
			t.Errorf("%s: got %d %q", host, got, body)
		}
	}
}

func TestSilentClientIsEnded(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "limits": {"idle": 1}}}`)
	w.place(443, addressOf(echo(t)))
	_, r, _, _ := w.connect("allowed.example:443")
	begin := time.Now()
	if got, err := io.ReadAll(r); len(got) > 0 || isTimeout(err) {
		t.Errorf("got %q, %v", got, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	w.event("the limit", func(e *event.Event) bool { return e.Limit == "network.limits.idle" && e.Host == "allowed.example" })
}
