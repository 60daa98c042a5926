package head

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

const most = 64 << 10

func read(s string) (*Request, error) {
	return ReadRequest(bufio.NewReaderSize(strings.NewReader(s), 64), most)
}

func TestRequestIsReadAsItWasSent(t *testing.T) {
	const text = "\r\nPOST http://A.com/x?y HTTP/1.1\r\nhOST: a.com\r\nX:  two words \r\nX: again\r\nContent-Length: 5\r\nX-Long: "
	q, err := read(text + strings.Repeat("v", 5000) + "\r\n\r\nhello")
	if err != nil {
		t.Fatal(err)
	}
	if q.Method != http.MethodPost || q.Target != "http://A.com/x?y" || q.Minor != 1 || q.Length != 5 {
		t.Errorf("got %+v", q)
	}
	want := "hOST: a.com\r\nX: two words\r\nX: again\r\nContent-Length: 5\r\nX-Long: v"
	if got := string(q.Fields.Append(nil)); !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestRequestThatCouldBeReadInTwoWaysIsRefused(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a.com\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
	}{
		"length and chunks":    {get + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		"length twice":         {get + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
		"same length twice":    {get + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
		"list of lengths":      {get + "Content-Length: 5, 5\r\n\r\n", 400},
		"signed length":        {get + "Content-Length: +5\r\n\r\n", 400},
		"negative length":      {get + "Content-Length: -5\r\n\r\n", 400},
		"length in hex":        {get + "Content-Length: 0x5\r\n\r\n", 400},
		"huge length":          {get + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		"empty length":         {get + "Content-Length:\r\n\r\n", 400},
		"chunks twice":         {get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
		"other coding":         {get + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
		"chunked, identity":    {get + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
		"odd coding":           {get + "Transfer-Encoding: xchunked\r\n\r\n", 501},
		"vertical tab":         {get + "Transfer-Encoding: \x0bchunked\r\n\r\n", 400},
		"chunks in 1.0":        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		"blank before colon":   {get + "Content-Length : 5\r\n\r\n", 400},
		"folded line":          {get + "X: a\r\n b\r\n\r\n", 400},
		"fold at the start":    {"GET / HTTP/1.1\r\n Host: a.com\r\n\r\n", 400},
		"bare LF":              {"GET / HTTP/1.1\nHost: a.com\r\n\r\n", 400},
		"bare LF in fields":    {get + "X: y\nZ: w\r\n\r\n", 400},
		"bare CR":              {get + "X: y\rZ: w\r\n\r\n", 400},
		"NUL":                  {get + "X: y\x00\r\n\r\n", 400},
		"control in field":     {get + "X: y\x01\r\n\r\n", 400},
		"DEL in field":         {get + "X: y\x7f\r\n\r\n", 400},
		"two hosts":            {get + "host: b.com\r\n\r\n", 400},
		"no host":              {"GET / HTTP/1.1\r\n\r\n", 400},
		"no name":              {get + ": x\r\n\r\n", 400},
		"no colon":             {get + "nonsense\r\n\r\n", 400},
		"odd name":             {get + "a(b: c\r\n\r\n", 400},
		"no version":           {"GET /\r\n\r\n", 400},
		"version 0.9":          {"GET / HTTP/0.9\r\n\r\n", 505},
		"version 2":            {"PRI * HTTP/2.0\r\n\r\n", 505},
		"version 1.2":          {"GET / HTTP/1.2\r\n\r\n", 505},
		"version in capitals":  {"GET / http/1.1\r\nHost: a.com\r\n\r\n", 400},
		"three blanks":         {"GET /a b HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"tab":                  {"GET\t/\tHTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"two blanks":           {"GET  / HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"blank at the end":     {"GET / HTTP/1.1 \r\nHost: a.com\r\n\r\n", 505},
		"fragment":             {"GET /#x HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"control in target":    {"GET /\x01 HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"odd method":           {"G@T / HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"two empty lines":      {"\r\n\r\nGET / HTTP/1.1\r\nHost: a.com\r\n\r\n", 400},
		"too large":            {get + strings.Repeat("X: y\r\n", most/5), 431},
		"one endless line":     {"GET /" + strings.Repeat("a", most), 431},
		"too many fields":      {get + strings.Repeat("X:\r\n", 1001) + "\r\n", 431},
		"endless empty fields": {get + strings.Repeat("a:\r\n", 20000), 431},
	} {
		q, err := read(c.text)
		var refused *Error
		if !errors.As(err, &refused) || refused.Status != c.status {
			t.Errorf("%s: got %+v, %v, want %d", name, q, err, c.status)
		}
	}
}

func TestEndOfAConnectionIsToldFromACutRequest(t *testing.T) {
	if _, err := read(""); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	for _, s := range []string{"G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a.com\r\n", "GET / HTTP/1.1\r\nHost: a.com\r\nX"} {
		if _, err := read(s); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: got %v", s, err)
		}
	}
}

func authority(t *testing.T, s string) Authority {
	t.Helper()
	host, port, err := hostname.ParseHostPort(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Authority{host, port}
}

func TestConnectTarget(t *testing.T) {
	for _, c := range []struct{ target, host, want string }{
		{"a.com:443", "a.com:443", "a.com:443"},
		{"A.com.:443", "a.com", "a.com:443"},
		{"a.com:22", "", "a.com:22"},
		{"[::1]:443", "[::1]:443", "[::1]:443"},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", "127.0.0.1:80"},
		{"0x7f.1:80", "", "127.0.0.1:80"},
	} {
		q := Request{Method: "CONNECT", Target: c.target, Fields: Fields{{"Host", c.host}}}
		if got, err := q.ConnectTarget(); err != nil || got.String() != c.want {
			t.Errorf("%s: got %s, %v", c.target, got, err)
		}
	}
	for _, c := range [][2]string{
		{"a.com", "a.com"},
		{"a.com:", ""},
		{"a.com:0", ""},
		{"a.com:443/", ""},
		{"http://a.com:443", ""},
		{"u@a.com:443", ""},
		{"/", ""},
		{"*", ""},
		{"a.com:443", "b.com:443"},
		{"a.com:443", "a.com:80"},
		{"a.com:443", "a.com:443, b.com"},
		{"a.com:443", "u@a.com"},
		{"evil.com:443#a.com:443", ""},
		{"a.com:443?x", ""},
		{"a%2ecom:443", ""},
		{":443", ""},
		{"fe80::1%eth0:80", ""},
		{"[fe80::1%25eth0]:80", ""},
	} {
		q := Request{Method: "CONNECT", Target: c[0], Fields: Fields{{"Host", c[1]}}}
		if got, err := q.ConnectTarget(); err == nil {
			t.Errorf("%q: got %s", c, got)
		}
	}
}

func TestProxyTarget(t *testing.T) {
	for _, c := range []struct{ method, target, host, want, local string }{
		{"GET", "http://a.com", "a.com", "a.com:80", "/"},
		{"GET", "HTTP://A.com:80/x?y=http://z/", "a.com", "a.com:80", "/x?y=http://z/"},
		{"GET", "http://a.com?q", "a.com:80", "a.com:80", "/?q"},
		{"GET", "http://a.com:8080/", "a.com:8080", "a.com:8080", "/"},
		{"OPTIONS", "http://a.com", "a.com", "a.com:80", "*"},
		{"GET", "http://[::1]:81/@", "[::1]:81", "[::1]:81", "/@"},
	} {
		q := Request{Method: c.method, Target: c.target, Minor: 1, Fields: Fields{{"Host", c.host}}}
		got, local, err := q.ProxyTarget()
		if err != nil || got.String() != c.want || local != c.local {
			t.Errorf("%s: got %s %s, %v", c.target, got, local, err)
		}
	}
	for _, c := range [][2]string{
		{"/", "a.com"},
		{"a.com", "a.com"},
		{"https://a.com/", "a.com"},
		{"ftp://a.com/", "a.com"},
		{"http:///x", "a.com"},
		{"http:a.com/", "a.com"},
		{"http://u:p@a.com/", "a.com"},
		{"http://a.com@b.com/", "b.com"},
		{"http://a.com\\@b.com/", "a.com"},
		{"http://a%2ecom/", "a.com"},
		{"http://a.com/", "b.com"},
		{"http://a.com:81/", "a.com"},
		{"http://a.com/", "a.com:81"},
		{"http://a.com/", ""},
		{"http://a.com:/", "a.com"},
		{"/x?http://a.com/", "a.com"},
	} {
		q := Request{Method: "GET", Target: c[0], Minor: 1, Fields: Fields{{"Host", c[1]}}}
		if got, local, err := q.ProxyTarget(); err == nil {
			t.Errorf("%q: got %s %s", c, got, local)
		}
	}
}

func TestOriginTargetStaysWithTheConnection(t *testing.T) {
	a := authority(t, "a.com:443")
	for _, c := range []struct{ method, target, host, want string }{
		{"GET", "/x", "a.com", "/x"},
		{"GET", "/x", "A.com:443", "/x"},
		{"GET", "https://a.com/x", "a.com", "/x"},
		{"GET", "https://a.com", "a.com", "/"},
		{"OPTIONS", "*", "a.com", "*"},
		{"GET", "//b.com/", "a.com", "//b.com/"},
		{"GET", "/http://b.com/", "a.com", "/http://b.com/"},
	} {
		q := Request{Method: c.method, Target: c.target, Minor: 1, Fields: Fields{{"Host", c.host}}}
		if got, err := q.OriginTarget(a, 443); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v", c.target, got, err)
		}
	}
	for _, c := range [][2]string{
		{"/", "b.com"},
		{"/", "a.com:80"},
		{"https://b.com/", "a.com"},
		{"https://a.com:80/", "a.com"},
		{"*", "a.com"},
		{"x", "a.com"},
		{"ftp://a.com/", "a.com"},
		{"https://u@a.com/", "a.com"},
		{"a.com:443", "a.com"},
	} {
		q := Request{Method: "GET", Target: c[0], Minor: 1, Fields: Fields{{"Host", c[1]}}}
		if got, err := q.OriginTarget(a, 443); err == nil {
			t.Errorf("%q: got %s", c, got)
		}
	}
}

func TestServerIsToldItsNameInOneSpelling(t *testing.T) {
	for _, c := range []struct{ sent, want string }{
		{"a.com", "a.com"},
		{"A.com", "A.com"},
		{"A.com:443", "A.com:443"},
		{"a.com.", "a.com"},
		{"a.com.:443", "a.com:443"},
		{"ａ.com", "a.com"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"0x7f.1", "127.0.0.1"},
		{"[0:0::1]:443", "[::1]:443"},
		{"[::1]", "[::1]"},
		{"[::FFFF:127.0.0.1]", "127.0.0.1"},
		{"a.com:8443", "a.com:8443"},
		{"", "a.com"},
	} {
		if got := PlainHost(c.sent, authority(t, "a.com:443"), 443); got != c.want {
			t.Errorf("%q: got %q, want %q", c.sent, got, c.want)
		}
	}
	if got := PlainHost("", authority(t, "[::1]:8080"), 80); got != "[::1]:8080" {
		t.Errorf("got %q", got)
	}
}

func TestFieldsAboutTheConnectionStayHere(t *testing.T) {
	f := Fields{
		{"Host", "a.com"},
		{"Connection", "keep-alive, X-Secret , Host"},
		{"Keep-Alive", "1"},
		{"X-Secret", "1"},
		{"Proxy-Authorization", "x"},
		{"TE", "trailers"},
		{"Upgrade", "websocket"},
		{"Content-Length", "3"},
		{"Transfer-Encoding", "chunked"},
		{"HTTP2-Settings", "x"},
		{"Cookie", "c"},
	}
	if got := string(f.EndToEnd().Append(nil)); got != "Host: a.com\r\nCookie: c\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyHarmlessUpgradesPass(t *testing.T) {
	for value, want := range map[string]string{
		"websocket": "websocket", "WebSocket": "WebSocket", "h2c": "", "H2C": "", "h2c, websocket": "", "TLS/1.0": "", "HTTP/2.0": "", "": "", "tcp": "tcp",
	} {
		f := Fields{{"Connection", "Upgrade"}, {"Upgrade", value}}
		if got := f.Upgrade(); got != want {
			t.Errorf("%q: got %q", value, got)
		}
	}
	if got := (Fields{{"Upgrade", "websocket"}}).Upgrade(); got != "" {
		t.Errorf("without Connection: got %q", got)
	}
}

func TestAnswerIsFramed(t *testing.T) {
	for _, c := range []struct {
		method, text string
		status       int
		length       int64
	}{
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 5},
		{"GET", "HTTP/1.1 200 OK\nContent-Length: 5\n\n", 200, 5},
		{"GET", "HTTP/1.1 200\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n", 200, 5},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, Chunked},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 200, Chunked},
		{"GET", "HTTP/1.0 200 OK\r\n\r\n", 200, ToTheEnd},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 0},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, 0},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, 0},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\n", 100, 0},
		{"GET", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", 200, ToTheEnd},
	} {
		p, err := ReadResponse(bufio.NewReader(strings.NewReader(c.text)), most, c.method)
		if err != nil || p.Status != c.status || p.Length != c.length {
			t.Errorf("%q: got %+v, %v", c.text, p, err)
			continue
		}
		if n := len(p.Fields.All("Content-Length")); n > 1 {
			t.Errorf("%q: the length is there %d times", c.text, n)
		}
	}
	for _, text := range []string{
		"", "SSH-2.0-x\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 2x0\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", most),
	} {
		if p, err := ReadResponse(bufio.NewReader(strings.NewReader(text)), most, "GET"); err == nil {
			t.Errorf("%.60q: got %+v", text, p)
		}
	}
}

func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		minor int
		value string
		want  bool
	}{{1, "", true}, {1, "close", false}, {1, "x, Close", false}, {0, "", false}, {0, "Keep-Alive", true}} {
		if got := KeepAlive(c.minor, Fields{{"Connection", c.value}}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestTrailer(t *testing.T) {
	f, err := ReadTrailer(bufio.NewReader(strings.NewReader("X: y\r\n\r\nrest")), most)
	if err != nil || len(f) != 1 {
		t.Errorf("got %v, %v", f, err)
	}
	for _, s := range []string{"X: y\r\n", "X y\r\n\r\n", "X: y\n\n"} {
		if f, err := ReadTrailer(bufio.NewReader(strings.NewReader(s)), most); err == nil {
			t.Errorf("%q: got %v", s, f)
		}
	}
}

func FuzzAcceptedRequestHasOneMeaning(f *testing.F) {
	f.Add("GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 5\r\n\r\nhello")
	f.Add("POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f.Add("CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\nHost: a.com\r\nConnection: x\r\n\tfold\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		q, err := read(s)
		if err != nil {
			return
		}
		// Written out and read again it is the same.
		text := q.Method + " " + q.Target + " HTTP/1." + string(rune('0'+q.Minor)) + "\r\n" + string(q.Fields.Append(nil)) + "\r\n"
		again, err := read(text)
		if err != nil || again.Length != q.Length || len(again.Fields) != len(q.Fields) {
			t.Errorf("%q is read again as %+v, %v", text, again, err)
		}
		// Go's reader, where it takes it at all, sees the same body.
		if other, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text))); err == nil && other.ContentLength != q.Length && q.Method != http.MethodConnect {
			t.Errorf("%q: length %d, and Go reads %d", text, q.Length, other.ContentLength)
		}
		if a, local, err := q.ProxyTarget(); err == nil {
			if a.Host.IsZero() || a.Port == 0 || !strings.HasPrefix(local, "/") && local != "*" || strings.ContainsAny(local, " \r\n#") {
				t.Errorf("%q leads to %q %q", s, a, local)
			}
		}
	})
}

func FuzzConnectTarget(f *testing.F) {
	f.Add("a.com:443", "a.com")
	f.Add("[::1]:443", "")
	f.Add("u@a.com:443", "a.com:443")
	f.Fuzz(func(t *testing.T, target, host string) {
		q := Request{Method: "CONNECT", Target: target, Fields: Fields{{"Host", host}}}
		a, err := q.ConnectTarget()
		if err != nil {
			return
		}
		if a.Host.IsZero() || a.Port == 0 || strings.ContainsAny(target, "@/?#% \t\r\n") {
			t.Errorf("%q leads to %q", target, a)
		}
		again := Request{Target: a.String()}
		if b, err := again.ConnectTarget(); err != nil || a != b {
			t.Errorf("%q is not stable: %q, %v", a, b, err)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
	f.Add("HTTP/1.0 301\nX: a\n b\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ReadResponse(bufio.NewReader(strings.NewReader(s)), most, "GET")
		if err != nil {
			return
		}
		if p.Status < 100 || p.Status > 999 || p.Length < ToTheEnd || strings.ContainsAny(string(p.Fields.Append(nil)), "\x00") {
			t.Errorf("%q: got %+v", s, p)
		}
		if strings.Count(string(p.Fields.Append(nil)), "\n") != len(p.Fields) {
			t.Errorf("%q: a field has a line end", s)
		}
	})
}
