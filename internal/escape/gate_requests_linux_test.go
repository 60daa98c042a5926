package escape

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// part grants a part of what a host does.
const part = `{"network": {"rules": [
	{"host": "good.example", "ports": ["80", "8000"], "schemes": ["http"], "methods": ["GET", "POST"], "paths": ["/open/**"], "action": "allow"}]}}`

// both says a request to a proxy, and to the server on a connection through it.
func both(name, method, path, fields string) []talk {
	rest := " HTTP/1.1\r\nHost: good.example:8000\r\n" + fields
	return []talk{
		{name: name, say: []string{method + " http://good.example:8000" + path + rest}},
		{name: name + ", in a tunnel", say: []string{connectBy("good.example:8000"), method + " " + path + rest}},
		{name: name + ", redirected", to: "good.example:8000", say: []string{method + " " + path + rest}},
	}
}

// expectNoSecret fails if a server heard of what it must not.
func (w *world) expectNoSecret(what string) {
	w.t.Helper()
	got := w.heard()
	for _, text := range append(got.raw, got.served...) {
		if strings.Contains(strings.ToLower(text), "secret") || strings.Contains(text, "evil") || strings.Contains(text, "DELETE") {
			w.t.Errorf("%s: the server heard %q", what, text)
		}
	}
	for _, packet := range got.sent {
		if !slices.Contains([]string{"tcp " + good4 + ":8000", "tcp " + good4 + ":80", "udp " + nameserver + ":53"}, packet) {
			w.t.Errorf("%s: packet %q", what, packet)
		}
	}
}

// expectOpen is the control: what is granted arrives, in each of the ways.
func (w *world) expectOpen() {
	w.t.Helper()
	body := "Content-Length: 28\r\n\r\nGET /secret HTTP/1.1\r\nX: y\r\n"
	for i, answer := range w.talk(both("granted", "POST", "/open/x?/secret", body)...) {
		if !strings.Contains(answer, "raw") {
			w.t.Errorf("control %d: got %q", i, answer)
		}
	}
	if got := w.heard(); len(got.raw) != 3 || !strings.HasPrefix(got.raw[0], "POST /open/x?/secret HTTP/1.1\r\n") || !strings.HasSuffix(got.raw[0], "X: y\r\n") {
		w.t.Errorf("control: the server heard %q", got.raw)
	}
}

func TestOtherMethodsPathsAndPortsAreNotGranted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = part
		var talks []talk
		for _, path := range []string{
			"/secret", "/", "//secret", "/open/../secret", "/open/%2e%2e/secret", "/open/%2E./secret", "/open/..%2fsecret", "/open/..%5csecret", `/open/..\secret`,
			"/open/..;/secret", "/open/..;x=y/secret", "/open/%252e%252e/secret", "/open/%c0%ae%c0%ae/secret", "/open/./../secret", "/open//../../secret", "/open/x/../../secret",
			"/OPEN/secret", "/open%2fsecret", "/%6fpen/../secret", "/openx/secret", "/open\x01/secret", "/open/..%00/secret", "/open/%u002e%u002e/secret", "/;/open/../secret", "/open/%/secret",
		} {
			talks = append(talks, both(fmt.Sprintf("path %q", path), "GET", path, "\r\n")...)
		}
		for _, method := range []string{"DELETE", "PUT", "PATCH", "delete", "CONNECT", "TRACE", "HEAD", "OPTIONS", "get", "PROPFIND"} {
			talks = append(talks, both("method "+method, method, "/open/secret", "\r\n")...)
		}
		for _, field := range []string{
			"X-HTTP-Method-Override: DELETE", "X-Http-Method: delete", "X-Method-Override: DELETE", "x-http-method-override:  DELETE\t", "X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: DELETE",
			"X-Original-URL: /secret", "X-Rewrite-URL: /secret", "x-original-url: /open/../secret", "X-Original-URL: http://good.example/secret", "X-Rewrite-URL: secret",
		} {
			talks = append(talks, both("field "+field, "GET", "/open/x", field+"\r\n\r\n")...)
		}
		for _, port := range []string{"81", "443", "8080", "22", "53"} {
			talks = append(talks, talk{name: "port " + port, say: []string{connectBy("good.example:" + port), get("good.example", "/open/secret")}},
				talk{name: "redirected port " + port, to: "good.example:" + port, say: []string{get("good.example", "/open/secret")}})
		}
		for _, first := range []string{"SSH-2.0-secret\r\n", "\x16\x03\x01\x00\x05secret", "EHLO secret\r\n", "GET /open/secret\r\n", "\x00\x01secret", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsecret"} {
			talks = append(talks, talk{name: fmt.Sprintf("not HTTP/1: %q", first), say: []string{connectBy("good.example:8000"), first}})
		}
		w.talk(talks...)
		w.expectNoSecret("less is granted")
		w.expectOpen()
	})
}

// smuggled are requests that some servers take for two, or for another one.
var smuggled = []string{
	"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: 0\r\nContent-Length: 40\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: 40, 0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: +0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: 0x0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: -1\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length: 99999999999999999999\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length : 0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Content-Length\r\n : 0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
	"X: y\r\n folded: GET /secret HTTP/1.1\r\n\r\n",
	"X: y\rGET /secret HTTP/1.1\r\n\r\n",
	"X: y\n\nGET /secret HTTP/1.1\r\n\r\n",
	"X: y\x00secret\r\n\r\n",
	"no colon secret\r\n\r\n",
	"\x00: secret\r\n\r\n",
	"Host: evil.example\r\n\r\n",
	"Host : evil.example\r\n\r\n",
	"\r\nGET /secret HTTP/1.1\r\nHost: good.example:8000\r\n\r\n",
	"\r\nGET http://evil.example/secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"\r\nGET /open/../secret HTTP/1.1\r\nHost: good.example:8000\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nHost: good.example:8000\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://evil.example:8000/secret HTTP/1.1\r\nHost: evil.example:8000\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n1;\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nHost: good.example:8000\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff0\r\nsecret\r\n0\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n-1\r\nsecret\r\n0\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.example\r\nX-Secret: y\r\n\r\n",
	"Content-Length: 0\r\n\r\nGET /secret HTTP/1.1\r\nHost: good.example:8000\r\n\r\n",
	"Connection: Host\r\nHost: evil.example\r\n\r\n",
	"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsecret",
	"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n\x16\x03\x01secret",
	"Expect: 100-continue\r\nContent-Length: 0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
}

func TestNoRequestHidesBehindAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = part
		var talks []talk
		for _, fields := range smuggled {
			talks = append(talks, both(fmt.Sprintf("%q", fields), "POST", "/open/x", fields)...)
		}
		for _, line := range []string{
			"GET /open/x HTTP/1.1 HTTP/1.1", "GET  /open/x HTTP/1.1", "GET\t/secret\tHTTP/1.1", "GET /secret", "GET /secret HTTP/0.9", "GET /open/x HTTP/1.2", "GET /open/x http/1.1",
			" GET /secret HTTP/1.1", "GET http://evil.example/secret HTTP/1.1", "GET //evil.example/secret HTTP/1.1", "GET evil.example:80 HTTP/1.1", "GET * HTTP/1.1", "GET ?secret HTTP/1.1",
			"GET http:///secret HTTP/1.1", "GET http:/secret HTTP/1.1", "GET http://good.example:8000@evil.example/secret HTTP/1.1", "CONNECT evil.example:80 HTTP/1.1",
		} {
			talks = append(talks, talk{name: line, say: []string{connectBy("good.example:8000"), line + "\r\nHost: good.example:8000\r\n\r\n"}})
		}
		w.talk(talks...)
		w.expectNoSecret("smuggled")
		w.expectOpen()
	})
}

func TestOneConnectionLeadsToOneHost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Setenv("SSL_CERT_FILE", w.ca)
		w.policy = oneDomain
		good := get("good.example", "/x")
		evil := get("evil.example", "/x")
		talks := []talk{
			{name: "another name in TLS", say: []string{connectBy("good.example:443")}, tls: "evil.example", then: []string{evil}},
			{name: "another name in TLS, by SOCKS", say: []string{socks5Hello, socks5Name("good.example", 443)}, tls: "evil.example", then: []string{evil}},
			{name: "another name in TLS, redirected", to: "good.example:443", tls: "evil.example", then: []string{evil}},
			{name: "another name in TLS below the granted one", to: "good.example:443", tls: "deep.good.example", then: []string{evil}},
			{name: "TLS to another name", say: []string{connectBy("evil.example:443")}, tls: "good.example", then: []string{good}},
			{name: "TLS to an address", to: evil4 + ":443", tls: "good.example", then: []string{good}},
			{name: "TLS to the right address", to: good4 + ":443", tls: "good.example", then: []string{good}},
			{name: "another Host", say: []string{"GET http://good.example/x HTTP/1.1\r\nHost: evil.example\r\n\r\n"}},
			{name: "another Host in a tunnel", say: []string{connectBy("good.example:80"), evil}},
			{name: "another Host, redirected", to: "good.example:80", say: []string{evil}},
			{name: "another Host of CONNECT", say: []string{"CONNECT good.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", evil}},
			{name: "another CONNECT than its Host", say: []string{"CONNECT evil.example:80 HTTP/1.1\r\nHost: good.example:80\r\n\r\n", evil}},
			{name: "a whole URL in a tunnel", say: []string{connectBy("good.example:80"), getByURL("evil.example", "/x")}},
			{name: "a second request", say: []string{strings.Replace(getByURL("good.example", "/x"), "close", "keep-alive", 1), getByURL("evil.example", "/x")}},
			{name: "a second request in a tunnel", to: "good.example:80", say: []string{strings.Replace(good, "close", "keep-alive", 1), evil}},
			{name: "two at once", say: []string{strings.Replace(getByURL("good.example", "/x"), "close", "keep-alive", 1) + getByURL("evil.example", "/x")}},
			{name: "CONNECT in a tunnel", to: "good.example:80", say: []string{connectBy("evil.example:80"), evil}},
		}
		w.talk(talks...)
		got := w.heard()
		for _, text := range append(got.served, slices.Concat(got.questions, got.sent)...) {
			if strings.Contains(text, "evil") || strings.Contains(text, evil4) {
				t.Errorf("heard of %q", text)
			}
		}
		w.expectGood()
		for _, c := range []talk{
			{name: "the right name", say: []string{connectBy("good.example:443")}, tls: "good.example", then: []string{good}},
			{name: "the right name, redirected", to: "good.example:443", tls: "good.example", then: []string{good}},
		} {
			if answer := w.talk(c)[0]; !strings.Contains(answer, "served good.example/x at "+good4+":443") {
				t.Errorf("control, %s: got %q", c.name, answer)
			}
		}
	})
}

func init() {
	// coalesce asks for hosts on one HTTP/2 connection, which leads to the first.
	attacks["coalesce"] = func(hosts []string) {
		transport := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, hosts[0]+":443")
			if err != nil {
				return nil, err
			}
			secure := tls.Client(c, &tls.Config{ServerName: hosts[0], InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			return secure, secure.HandshakeContext(ctx)
		}}
		for _, host := range hosts {
			r, _ := http.NewRequest(http.MethodGet, "https://"+hosts[0]+"/x", nil)
			r.Host = host
			answer, err := transport.RoundTrip(r)
			report(host, err)
			if err == nil {
				body, _ := io.ReadAll(answer.Body)
				keep("answers", bytes.Join([][]byte{[]byte(answer.Proto), body}, []byte(" ")))
				report(fmt.Sprintf("%s: %s %s", host, answer.Status, body), nil)
			}
		}
	}
}

func TestHTTP2ConnectionServesNoOtherHost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Setenv("SSL_CERT_FILE", w.ca)
		w.policy = `{"network": {"rules": [{"host": "*.good.example", "action": "allow", "inspect": true}, {"host": "evil.example", "ports": ["443"], "action": "allow"}]}}`
		w.attack("coalesce", "deep.good.example", "six.good.example", "evil.example", "deep.good.example:80", "deep.good.example@evil.example", "deep.good.example.evil.example")
		got := w.heard()
		if !slices.Equal(got.served, []string{"GET deep.good.example /x"}) || !slices.Equal(got.sent, []string{"tcp " + good4 + ":443", "udp " + nameserver + ":53"}) {
			t.Errorf("requests %q, packets %q", got.served, got.sent)
		}
		w.looted()
		w.attack("coalesce", "deep.good.example", "DEEP.good.example")
		if got, answer := w.heard(), w.looted()["answers"]; len(got.served) != 2 || !strings.HasPrefix(answer, "HTTP/2.0 served ") {
			t.Errorf("control: requests %q, answer %q", got.served, answer)
		}
	})
}
