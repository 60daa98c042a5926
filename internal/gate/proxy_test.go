package gate

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
)

const allowed = `{"network": {"allowedDomains": ["allowed.example", "*.allowed.example"], "deniedDomains": ["bad.allowed.example"]}}`

func TestAllowedRequestPassesTheProxy(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	for _, l := range []net.Listener{w.http, w.mixed, w.unix} {
		c := w.client(l, nil)
		status, body := get(t, c, "http://www.allowed.example/a%2Fb?q=1")
		if status != 200 || !strings.HasPrefix(body, "GET www.allowed.example /a%2Fb?q=1\n") {
			t.Errorf("got %d %q", status, body)
		}
		lacks(t, "fields of the connection", body, "Proxy-", "Connection")
		answer, err := c.Post("http://allowed.example/", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(answer.Body)
		if !bytes.HasSuffix(got, bytes.Repeat([]byte("x"), 100_000)) {
			t.Errorf("a body of %d bytes arrived", len(got))
		}
		answer.Body.Close()
		// Without a length, in chunks.
		answer, err = c.Post("http://allowed.example/", "text/plain", io.MultiReader(strings.NewReader("in "), strings.NewReader("chunks")))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ = io.ReadAll(answer.Body); !bytes.HasSuffix(got, []byte("in chunks")) {
			t.Errorf("got %q", got)
		}
		answer.Body.Close()
	}
	e := w.connection("www.allowed.example")
	if e.Address != public.String() || e.Port != 80 || e.Method != http.MethodGet || e.URLPath != "/a%2Fb" || e.Sandbox != "b7" ||
		e.Rule != "network.allowedDomains *.allowed.example" || !strings.HasPrefix(e.Where, "bailey.jsonc:1:") || e.BytesIn < 50 || e.BytesOut < 50 || e.Duration <= 0 {
		t.Errorf("got %+v", e)
	}
}

func TestDeniedRequestReachesNobody(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	for _, c := range []struct{ url, host, say string }{
		{"http://evil.com/", "evil.com", `network.allowedDomains: "evil.com"`},
		{"http://bad.allowed.example/", "bad.allowed.example", "take back network.deniedDomains bad.allowed.example"},
		{"http://allowed.example.evil.com/", "allowed.example.evil.com", "no rule of the policy allows it"},
		{"http://allowed.example:8080/", "allowed.example", `network.rules: {"host": "allowed.example", "ports": ["8080"], "action": "allow"}`},
		{"http://allowed.example:22/", "allowed.example", `ssh.allowedHosts: "allowed.example"`},
		{"http://93.184.215.14/", "93.184.215.14", "no rule"},
		{"http://127.0.0.1/", "127.0.0.1", "no rule"},
		{"http://2130706433/", "127.0.0.1", "no rule"},
		{"http://[::ffff:7f00:1]/", "127.0.0.1", "no rule"},
		{"http://EVIL.com./", "evil.com", "no rule"},
	} {
		status, body := get(t, w.client(w.http, nil), c.url)
		if status != 403 {
			t.Errorf("%s: got %d %q", c.url, status, body)
		}
		contains(t, c.url, body, c.host, c.say)
		if e := w.denied(c.host); e.Rule == "" || e.Fix == "" || e.Method != http.MethodGet || e.URLPath != "/" {
			t.Errorf("%s: got %+v", c.url, e)
		}
	}
	w.untouched("denied requests")
}

func TestEveryRequestOfAConnectionIsDecided(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	c := dialGate(t, w.http)
	r := bufio.NewReader(c)
	for _, step := range []struct {
		host   string
		status int
	}{{"allowed.example", 200}, {"evil.com", 403}, {"www.allowed.example", 200}, {"allowed.example", 200}} {
		fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", step.host, step.host)
		if status, body := readAnswer(t, r, "GET"); status != step.status {
			t.Errorf("%s: got %d %q", step.host, status, body)
		}
	}
	// At once, as pipelining clients do.
	io.WriteString(c, "GET http://allowed.example/1 HTTP/1.1\r\nHost: allowed.example\r\n\r\nGET http://evil.com/2 HTTP/1.1\r\nHost: evil.com\r\n\r\nGET http://allowed.example/3 HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n\r\n")
	for _, want := range []int{200, 403, 200} {
		if status, body := readAnswer(t, r, "GET"); status != want {
			t.Errorf("got %d %q, want %d", status, body, want)
		}
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after Connection: close there is %v", err)
	}
}

func TestTrickyRequestsAreRefusedBeforeTheyReachAServer(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	const to = "http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n"
	for name, text := range map[string]string{
		"smuggling by two lengths":   "POST " + to + "Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
		"smuggling by chunks":        "POST " + to + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"smuggling by an odd coding": "POST " + to + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"folded line":                "GET " + to + "X: a\r\n b\r\n\r\n",
		"bare LF":                    "GET http://allowed.example/ HTTP/1.1\nHost: allowed.example\n\n",
		"another Host":               "GET http://allowed.example/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"two Hosts":                  "GET " + to + "Host: evil.com\r\n\r\n",
		"user in the URL":            "GET http://allowed.example@evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"encoded host":               "GET http://allowed%2eexample/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"fragment":                   "GET http://evil.com#allowed.example/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"not a proxy request":        "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"https URL":                  "GET https://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"HTTP/2":                     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"binary":                     "\x00\x01\x02\x03\r\n\r\n",
		"endless head":               "GET " + to + strings.Repeat("X: yyyyyyyy\r\n", 8000),
		"CONNECT with a path":        "CONNECT allowed.example:443/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"CONNECT with another Host":  "CONNECT allowed.example:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n",
		"CONNECT with a body":        "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\nContent-Length: 5\r\n\r\nhello",
		"bad escape in the path":     "GET http://allowed.example/%zz HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
	} {
		got := say(t, w.http, text)
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") {
			t.Errorf("%s: got %.200q", name, got)
		}
		contains(t, name, got, "Bailey: ", "Connection: close")
		w.untouched(name)
	}
	w.event("the denial", func(e *event.Event) bool {
		return e.Kind == event.Deny && strings.Contains(e.Rule, "Host names another host")
	})
}

func TestDenialOfHEADHasNoBody(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	c := dialGate(t, w.http)
	r := bufio.NewReader(c)
	io.WriteString(c, "HEAD http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\nGET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	if status, _ := readAnswer(t, r, "HEAD"); status != 403 {
		t.Errorf("got %d", status)
	}
	if status, body := readAnswer(t, r, "GET"); status != 200 {
		t.Errorf("got %d %q", status, body)
	}
}

func TestServerIsToldItsCanonicalName(t *testing.T) {
	w := newWorld(t, `{"network": {"allowedDomains": ["xn--bcher-kva.allowed.example", "allowed.example"]}}`)
	w.place(80, addressOf(echo(t)))
	for host, want := range map[string]string{"bücher.allowed.example": "xn--bcher-kva.allowed.example", "allowed.example.": "allowed.example", "ALLOWED.example": "ALLOWED.example"} {
		got := say(t, w.http, "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		contains(t, host, got, "GET "+want+" /")
	}
}

func TestUpgradeWithABodyIsNone(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(webSocket(t)))
	got := say(t, w.http, "POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\nbody")
	contains(t, "answer", got, "HTTP/1.1 426")
}

func TestMalformedBodyEndsTheRequest(t *testing.T) {
	w := newWorld(t, allowed)
	seen := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		seen <- fmt.Sprintf("%s %q %v", r.URL.Path, body, err)
	}))
	defer s.Close()
	w.place(80, addressOf(s))
	got := say(t, w.http, "POST http://allowed.example/first HTTP/1.1\r\nHost: allowed.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET /second HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("got %q", got)
	}
	s.Close()
	close(seen)
	for line := range seen {
		if !strings.HasPrefix(line, "/first ") || strings.HasSuffix(line, "<nil>") {
			t.Errorf("the server saw %s", line)
		}
	}
}

func TestAnswersOfEveryKindPass(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "300000")
		w.Write(bytes.Repeat([]byte("x"), 300000))
	})
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for range 30 {
			w.Write(bytes.Repeat([]byte("y"), 10000))
			w.(http.Flusher).Flush()
		}
		w.Header().Set("X-Sum", "42")
	})
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/unchanged", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Write([]byte("after hints"))
	})
	mux.HandleFunc("/close", func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nto the end")
		c.Close()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut short")
		c.Close()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	c := w.client(w.http, nil)
	for path, want := range map[string]string{
		"/length": strings.Repeat("x", 300000), "/chunks": strings.Repeat("y", 300000), "/nothing": "", "/unchanged": "", "/hints": "after hints", "/close": "to the end",
	} {
		for range 2 {
			if status, body := get(t, c, "http://allowed.example"+path); status >= 400 || body != want {
				t.Errorf("%s: got %d, %d bytes %.60q", path, status, len(body), body)
			}
		}
	}
	answer, err := c.Get("http://allowed.example/chunks")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, answer.Body)
	if got := answer.Trailer.Get("X-Sum"); got != "42" {
		t.Errorf("the trailer is %q", got)
	}
	if answer, err = c.Head("http://allowed.example/length"); err != nil || answer.ContentLength != 300000 {
		t.Errorf("HEAD: got %+v, %v", answer, err)
	}
	if answer, err = c.Get("http://allowed.example/cut"); err == nil {
		if _, err = io.ReadAll(answer.Body); err == nil {
			t.Error("an answer that was cut short looks whole")
		}
	}
	old := say(t, w.http, "GET http://allowed.example/chunks HTTP/1.0\r\n\r\n")
	if !strings.HasSuffix(old, "\r\n\r\n"+strings.Repeat("y", 300000)) {
		t.Errorf("HTTP/1.0 got %d bytes, %.300q", len(old), old)
	}
	lacks(t, "HTTP/1.0", old[:300], "chunked")
}

func TestAnswerThatIsTornDoesNotLookWhole(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nonly a part")
		// Only once it has arrived: a reset overtakes what is on its way.
		time.Sleep(200 * time.Millisecond)
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}))
	defer s.Close()
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	c := dialGate(t, w.http)
	io.WriteString(c, "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	if got, err := io.ReadAll(c); err == nil || isTimeout(err) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestServerThatHangsUpBetweenRequestsIsCalledAgain(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(tell))
	defer s.Close()
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	c := dialGate(t, w.http)
	r := bufio.NewReader(c)
	for range 3 {
		io.WriteString(c, "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
		if status, body := readAnswer(t, r, "GET"); status != 200 {
			t.Errorf("got %d %q", status, body)
		}
		s.CloseClientConnections()
	}
}

func TestExpectedContinueIsPassedOn(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	c := dialGate(t, w.http)
	io.WriteString(c, "POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("got %q, %v", line, err)
	}
	r.ReadString('\n')
	io.WriteString(c, "body")
	status, body := readAnswer(t, r, "POST")
	if status != 200 || !strings.HasSuffix(body, "\n\nbody") {
		t.Errorf("got %d %q", status, body)
	}
}

func TestRefusedUploadDoesNotBecomeARequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/upload" {
			t.Errorf("the server was asked for %s", r.URL.Path)
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	c := dialGate(t, w.http)
	io.WriteString(c, "POST http://allowed.example/upload HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 70\r\nExpect: 100-continue\r\n\r\n")
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusUnauthorized || !answer.Close {
		t.Fatalf("got %+v, %v", answer, err)
	}
	// A client that goes on regardless.
	io.WriteString(c, "GET http://allowed.example/smuggled HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
	if rest, _ := io.ReadAll(r); strings.Contains(string(rest), "HTTP/1.1") {
		t.Errorf("got %q", rest)
	}
}

func TestEventsOfAServerArriveAsTheyAreSent(t *testing.T) {
	step := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-step
		}
	}))
	defer s.Close()
	w := newWorld(t, allowed)
	w.place(80, addressOf(s))
	answer, err := w.client(w.http, nil).Get("http://allowed.example/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	r := bufio.NewReader(answer.Body)
	for i := range 3 {
		line, err := r.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			t.Fatalf("got %q, %v", line, err)
		}
		r.ReadString('\n')
		step <- struct{}{}
	}
}

// webSocket is a server that changes to a protocol in which it repeats lines.
func webSocket(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "want an upgrade", http.StatusUpgradeRequired)
			return
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nwelcome\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(c, "echo "+line)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestWebSocketPasses(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(webSocket(t)))
	c := dialGate(t, w.http)
	// The first message comes with the request, before the protocol is changed.
	io.WriteString(c, "GET http://allowed.example/chat HTTP/1.1\r\nHost: allowed.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nfirst\n")
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "websocket" || answer.Header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("got %+v, %v", answer, err)
	}
	for _, want := range []string{"welcome\n", "echo first\n"} {
		if line, err := r.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
	}
	io.WriteString(c, "second\n")
	if line, err := r.ReadString('\n'); err != nil || line != "echo second\n" {
		t.Errorf("got %q, %v", line, err)
	}
	c.Close()
	if e := w.connection("allowed.example"); e.BytesIn < 20 || e.BytesOut < 10 {
		t.Errorf("got %+v", e)
	}
}

func TestUpgradeToHTTP2IsNotPassedOn(t *testing.T) {
	w := newWorld(t, allowed)
	w.place(80, addressOf(echo(t)))
	got := say(t, w.http, "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
	contains(t, "answer", got, "HTTP/1.1 200")
	lacks(t, "request", got, "Upgrade: h2c", "Http2-Settings")
}

func TestServerThatIsNotThereIsNamed(t *testing.T) {
	w := newWorld(t, allowed)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.place(80, dead.Addr().String())
	dead.Close()
	status, body := get(t, w.client(w.http, nil), "http://allowed.example/")
	if status != 502 {
		t.Errorf("got %d %q", status, body)
	}
	contains(t, "answer", body, "allowed.example:80 cannot be reached", "connection refused")
	w.mu.Lock()
	w.hosts["gone.allowed.example"] = nil
	w.mu.Unlock()
	status, body = get(t, w.client(w.http, nil), "http://gone.allowed.example/")
	if status != 502 {
		t.Errorf("got %d %q", status, body)
	}
	contains(t, "answer", body, "gone.allowed.example cannot be resolved: there is no such name")
}

func TestSlowClientIsEnded(t *testing.T) {
	for limit, text := range map[string]string{"idle": `"idle": "500ms", "total": "20s"`, "total": `"total": "500ms"`} {
		w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example", "`+public.String()+`"], "limits": {`+text+`}}}`)
		w.place(80, addressOf(echo(t)))
		said := map[string]net.Conn{"GET http://allowed.exa": dialGate(t, w.http)}
		// Half a line, and half a head, to what it believes to be the server.
		for _, begin := range []string{"GET / HT", "GET / HTTP/1.1\r\nHo"} {
			said[begin] = w.redirected(netip.AddrPortFrom(public, 80).String())
		}
		for begin, c := range said {
			io.WriteString(c, begin)
		}
		for begin, c := range said {
			got, _ := io.ReadAll(c)
			contains(t, limit+", "+begin, string(got), "HTTP/1.1 408", "network.limits."+limit+" ")
		}
		w.event("the limit", func(e *event.Event) bool { return e.Limit == "network.limits."+limit })
	}
}
