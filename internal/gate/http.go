package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// serveProxy is an HTTP proxy for one connection.
func (s *session) serveProxy() { s.serveRequests((*head.Request).ProxyTarget) }

// serveRequests passes requests on to wherever each of them goes.
func (s *session) serveRequests(target func(*head.Request) (head.Authority, string, error)) {
	h := &exchange{session: s, client: s.client, scheme: rules.HTTP}
	defer h.hangUp()
	h.serve(func(q *head.Request) bool {
		if q.Method == http.MethodConnect {
			s.serveConnect(q)
			return false
		}
		to, local, err := target(q)
		if err != nil {
			return h.refuseTarget(q, rules.Query{}, err)
		}
		return h.pass(q, to, local)
	})
}

// serveConnect is a CONNECT. The connection is the tunnel's from then on.
func (s *session) serveConnect(q *head.Request) {
	to, err := q.ConnectTarget()
	if err == nil && q.Length != 0 {
		err = &head.Error{Status: http.StatusBadRequest, Text: "CONNECT has no body"}
	}
	if err != nil {
		h := &exchange{session: s, client: s.client}
		h.refuseTarget(q, rules.Query{}, err)
		return
	}
	s.tunnel(to.Host, to.Port, func(err error) error {
		answer := []byte("HTTP/1.1 200 Connection established\r\n\r\n")
		if err != nil {
			answer = answerTo(err, true)
		}
		_, err = s.client.Write(answer)
		return err
	})
}

// serveOrigin is HTTP on a connection that leads to one server. If up is nil, or
// once it is closed, open connects to it.
func (s *session) serveOrigin(client *wire, q rules.Query, up *leg, open func() (*leg, error)) {
	to := head.Authority{Host: q.Host, Port: q.Port}
	h := &exchange{session: s, client: client, scheme: q.Scheme, up: up, to: to, open: open}
	defer h.hangUp()
	h.serve(func(r *head.Request) bool {
		named, err := s.mustName(r, to, q.Scheme)
		if err != nil {
			s.reportDenial(err)
			return h.refuse(r, err)
		}
		local, err := r.OriginTarget(named, defaultPort(q.Scheme))
		if err != nil {
			return h.refuseTarget(r, q, err)
		}
		return h.pass(r, to, local)
	})
}

func defaultPort(scheme rules.Scheme) uint16 {
	if scheme == rules.HTTPS {
		return httpsPort
	}
	return httpPort
}

// mustName is what requests on a connection have to name: the host that it
// leads to. If that is an address, granted as such, any name for it will do
// that is not denied.
func (s *session) mustName(r *head.Request, to head.Authority, scheme rules.Scheme) (head.Authority, error) {
	if !to.Host.IsAddr() {
		return to, nil
	}
	named, given, err := r.HostOf(defaultPort(scheme))
	if err != nil || !given || named.Host.IsAddr() {
		return to, err
	}
	return head.Authority{Host: named.Host, Port: to.Port}, s.checkAlias(rules.Query{Host: named.Host, Port: to.Port, Scheme: scheme})
}

// checkAlias returns a denial if a rule denies a name, as opposed to that none
// allows it.
func (s *session) checkAlias(q rules.Query) error {
	if v := s.rules.Foresee(q); v.Action == config.Deny && v.Rule != nil {
		return explain(s.rules, q, v)
	}
	return nil
}

// exchange passes the requests of one connection on, each decided by itself.
type exchange struct {
	*session
	client *wire
	scheme rules.Scheme
	up     *leg // to the server of the last request, if it is kept
	to     head.Authority
	// open connects anew if the connection leads to one server; nil if each
	// request may lead to another.
	open func() (*leg, error)
}

// serve reads requests and handles them until one says to stop.
func (h *exchange) serve(handle func(*head.Request) bool) {
	for wait := greetingTime; ; wait = keepAliveTime {
		if !h.begins(wait) {
			return
		}
		q, err := h.readHead()
		if err != nil {
			h.refuseHead(err)
			return
		}
		h.client.expect(0)
		if !handle(q) {
			return
		}
	}
}

// begins waits for a request to begin. Who does not begin one is told nothing.
func (h *exchange) begins(wait time.Duration) bool {
	h.client.expect(wait)
	defer h.answerable(h.client.hurry)()
	_, err := h.client.buffered().Peek(1)
	return err == nil && !h.expired.Load()
}

// readHead reads the head of a request that has begun.
func (h *exchange) readHead() (*head.Request, error) {
	h.client.expect(greetingTime)
	defer h.answerable(h.client.hurry)()
	q, err := head.ReadRequest(h.client.buffered(), int(h.limits.HeaderBytes))
	switch {
	case h.expired.Load():
		return nil, errTotal(http.StatusRequestTimeout)
	case isTimeout(err):
		return nil, h.tooSlow(h.client)
	}
	return q, err
}

// tooSlow is the error for a client that does not come to the end of what it has
// to say.
func (s *session) tooSlow(client *wire) error {
	if client.isOverdue() {
		return &head.Error{Status: http.StatusRequestTimeout, Text: "the request does not come to its end"}
	}
	s.emit(limitEvent("limits.idle"))
	return overLimit(http.StatusRequestTimeout, "nothing of the request came for longer", "idle")
}

// refuseHead answers what could not be read as a request.
func (h *exchange) refuseHead(err error) {
	var malformed *head.Error
	if errors.As(err, &malformed) {
		_, _ = h.client.Write(answerTo(err, true))
	}
	h.linger()
}

// linger reads a little of what a client still sends, so that it gets to read
// the answer instead of a reset.
func (h *exchange) linger() {
	const patience, most = 500 * time.Millisecond, 256 << 10
	if h.client.CloseWrite() != nil {
		return
	}
	h.client.expect(patience)
	_, _ = io.CopyN(io.Discard, h.client.buffered(), most)
}

// refuse answers a request that is not passed on. It says whether the
// connection can be used on.
func (h *exchange) refuse(q *head.Request, err error) bool {
	keep := q.Length == 0 && head.KeepAlive(q.Minor, q.Fields)
	var malformed *head.Error
	if errors.As(err, &malformed) {
		keep = false
	}
	answer := answerTo(err, !keep)
	if q.Method == http.MethodHead {
		answer = answer[:bytes.Index(answer, []byte("\r\n\r\n"))+4]
	}
	if _, err := h.client.Write(answer); err != nil {
		return false
	}
	if !keep {
		h.linger()
	}
	return keep
}

// refuseTarget answers a request whose target makes no sense, or is not where
// the connection leads. Who sends such a thing may be up to something.
func (h *exchange) refuseTarget(r *head.Request, q rules.Query, err error) bool {
	q.Method = r.Method
	h.emit((&denial{query: q, reason: err.Error(), rule: "one connection, one host: " + err.Error()}).event())
	return h.refuse(r, err)
}

// hangUp ends the connection to the server.
func (h *exchange) hangUp() {
	if h.up != nil {
		_ = h.up.Close()
		h.up = nil
	}
}

// answerTo is the answer to a request that ended in an error.
func answerTo(err error, last bool) []byte {
	var d *denial
	var malformed *head.Error
	switch {
	case errors.As(err, &d):
		return plainAnswer(http.StatusForbidden, d.text(), last)
	case errors.As(err, &malformed):
		return plainAnswer(malformed.Status, "Bailey: "+malformed.Text+".\n", last)
	}
	return plainAnswer(http.StatusBadGateway, "Bailey: "+err.Error()+".\n", last)
}

func plainAnswer(status int, text string, last bool) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nContent-Length: %d\r\n", len(text))
	if last {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n" + text)
	return []byte(b.String())
}
