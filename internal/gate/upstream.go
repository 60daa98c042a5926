package gate

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"golang.org/x/net/http/httpproxy"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// upstream chooses the proxy through which a connection leaves. A nil one
// chooses none.
type upstream struct {
	web   func(*url.URL) (*url.URL, error)
	other func(*url.URL) (*url.URL, error) // what is neither HTTP nor on the port of HTTPS
}

// proxy is an upstream proxy. Its user and password are for the proxy, and for
// nobody else to see.
type proxy struct {
	scheme         string
	address        string // host:port
	host           string
	user, password string
}

func newUpstream(c config.Upstream) (*upstream, error) {
	if c.HTTP == "" && c.HTTPS == "" && c.All == "" {
		return nil, nil
	}
	for _, text := range []string{c.HTTP, c.HTTPS, c.All} {
		if text == "" {
			continue
		}
		if _, err := parseProxy(text); err != nil {
			return nil, err
		}
	}
	web := httpproxy.Config{HTTPProxy: cmp.Or(c.HTTP, c.All), HTTPSProxy: cmp.Or(c.HTTPS, c.All), NoProxy: c.NoProxy}
	other := httpproxy.Config{HTTPSProxy: cmp.Or(c.All, c.HTTPS), NoProxy: c.NoProxy}
	return &upstream{web.ProxyFunc(), other.ProxyFunc()}, nil
}

// parseProxy reads a proxy. Its errors do not repeat the text, which may hold a
// password.
func parseProxy(text string) (*proxy, error) {
	if _, err := notation.ParseProxy(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the upstream proxy is no URL") // cannot be: the other is stricter
	}
	return proxyOf(u)
}

func proxyOf(u *url.URL) (*proxy, error) {
	ports := map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}
	port, known := ports[u.Scheme]
	if !known {
		return nil, fmt.Errorf("an upstream proxy cannot be reached by %s: use http, https or socks5", u.Scheme)
	}
	p := &proxy{scheme: u.Scheme, host: u.Hostname(), address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))}
	if u.User != nil {
		p.user = u.User.Username()
		p.password, _ = u.User.Password()
	}
	return p, nil
}

// choose returns the proxy for a host, nil for none.
func (u *upstream) choose(scheme rules.Scheme, host hostname.Host, port uint16) *proxy {
	if u == nil {
		return nil
	}
	target, choice := &url.URL{Scheme: "https", Host: host.Join(port)}, u.other
	switch {
	case scheme == rules.HTTP || scheme == 0 && port == httpPort:
		target.Scheme, choice = "http", u.web
	case port == httpsPort:
		choice = u.web
	}
	chosen, err := choice(target)
	if err != nil || chosen == nil {
		return nil
	}
	p, err := proxyOf(chosen)
	if err != nil {
		return nil // cannot be: newUpstream has read it
	}
	return p
}

// speaksHTTP says whether the proxy takes requests by their whole URL.
func (p *proxy) speaksHTTP() bool { return p.scheme == "http" || p.scheme == "https" }

// authorization is what the proxy wants to see, empty if nothing.
func (p *proxy) authorization() string {
	if p.user == "" && p.password == "" {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(p.user+":"+p.password))
}

// dialUpstream has a proxy connect. An address is checked here; a name is the
// proxy's to resolve.
func (s *session) dialUpstream(ctx context.Context, q rules.Query, p *proxy) (*leg, error) {
	if q.Host.IsAddr() {
		if d := s.checkAddress(q, q.Host.Addr()); d != nil {
			return nil, d
		}
	}
	w, err := p.dial(ctx, s.gate.options.Roots)
	if err != nil {
		return nil, fmt.Errorf("the upstream proxy cannot be reached: %w", plainError(err))
	}
	if q.Scheme == rules.HTTP && p.speaksHTTP() {
		up := s.newLeg(w, netip.Addr{})
		up.via = p
		return up, nil
	}
	stop := context.AfterFunc(ctx, func() { w.Close() })
	err = p.connect(w, q.Host, q.Port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("the upstream proxy does not connect to %s: %w", q.Host.Join(q.Port), plainError(err))
	}
	return s.newLeg(w, netip.Addr{}), nil
}

// dial connects to the proxy itself, which the user named: it may be anywhere.
func (p *proxy) dial(ctx context.Context, roots *x509.CertPool) (*wire, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if p.scheme != "https" {
		return newWire(c), nil
	}
	secure := tls.Client(c, &tls.Config{ServerName: p.host, RootCAs: roots})
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return newWire(secure), nil
}

func (p *proxy) connect(w *wire, host hostname.Host, port uint16) error {
	if !p.speaksHTTP() {
		return socks.Connect(w, host, port, p.user, p.password)
	}
	target := host.Join(port)
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if a := p.authorization(); a != "" {
		request += "Proxy-Authorization: " + a + "\r\n"
	}
	if _, err := w.Write([]byte(request + "\r\n")); err != nil {
		return err
	}
	return readConnected(w.buffered())
}

func readConnected(r *bufio.Reader) error {
	for {
		answer, err := head.ReadResponse(r, maxAnswerHead, "CONNECT")
		switch {
		case err != nil:
			return err
		case answer.Status < 200:
			continue
		case answer.Status >= 300:
			return fmt.Errorf("it answers %d %s", answer.Status, answer.Reason)
		}
		return nil
	}
}
