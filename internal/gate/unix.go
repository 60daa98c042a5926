package gate

import (
	"errors"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

// serveUnix serves a unix socket, where clients find both proxies. Some can only
// be told to take a socket for the server itself, as curl is by --unix-socket:
// what they say goes to the host that it names.
func (s *session) serveUnix() {
	s.client.expect(greetingTime)
	first, err := s.client.peek(1)
	switch {
	case err != nil:
	case socks.Begins(first[0]):
		s.serveSOCKS()
	case first[0] == tlsHandshake:
		s.serveHello()
	default:
		s.serveRequests(targetOrHost)
	}
}

// targetOrHost is where a request goes that may be to a proxy or to a server.
func targetOrHost(q *head.Request) (head.Authority, string, error) {
	if !strings.HasPrefix(q.Target, "/") && q.Target != "*" {
		return q.ProxyTarget()
	}
	named, given, err := q.HostOf(httpPort)
	if err == nil && !given {
		err = &head.Error{Status: http.StatusBadRequest, Text: "the request names no host"}
	}
	if err != nil {
		return head.Authority{}, "", err
	}
	local, err := q.OriginTarget(named, httpPort)
	return named, local, err
}

// serveHello serves a client of TLS, which goes where its greeting says.
func (s *session) serveHello() {
	_, h, err := sniff(s.client)
	var host hostname.Host
	if err == nil {
		if host, err = hostname.Parse(h.ServerName); err != nil {
			err = errors.New("the client's greeting in TLS names no host")
		}
	}
	if err != nil {
		t := &tunnel{session: s, passage: passage{query: rules.Query{Port: httpsPort}}}
		s.reportDenial(t.refuse(speechTLS, t.unclear(speechTLS, err)))
		return
	}
	s.tunnel(host, httpsPort, func(err error) error {
		if err == nil {
			return nil
		}
		return s.refuseRedirected(err)
	})
}
