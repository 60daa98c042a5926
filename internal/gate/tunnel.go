package gate

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/hello"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// tunnel is a connection that a client has asked for, in whatever protocol, and
// on which it now speaks as if to the server.
type tunnel struct {
	*session
	passage
	up *leg // nil until it is known how to connect
}

// tunnel connects the client to a host. What it was asked for is answered with
// nil, or with the error that prevents it.
func (s *session) tunnel(host hostname.Host, port uint16, answer func(error) error) {
	name, release, err := s.nameOf(host, port)
	if err != nil {
		_ = answer(err)
		s.reportDenial(err)
		return
	}
	defer release()
	t := &tunnel{session: s, passage: passage{query: rules.Query{Host: name, Port: port}, begin: time.Now()}}
	err = t.prepareInTime()
	if answer(err) != nil || err != nil {
		t.hangUp()
		t.report(&t.passage, err)
		return
	}
	t.report(&t.passage, t.run())
}

// nameOf returns the name behind an address that the name server gave out, and
// any other host as it is. The name keeps its address until release is called.
func (s *session) nameOf(host hostname.Host, port uint16) (_ hostname.Host, release func(), _ error) {
	if !host.IsAddr() || !s.gate.pool.Contains(host.Addr()) {
		return host, func() {}, nil
	}
	name, release, ok := s.gate.pool.Acquire(host.Addr())
	if !ok {
		return hostname.Host{}, nil, &denial{
			query: rules.Query{Host: host, Port: port}, address: host.Addr(), rule: "special address",
			reason: "the address was not given out by the sandbox's name server",
		}
	}
	named, err := hostname.Parse(name)
	if err != nil {
		release()
		return hostname.Host{}, nil, err
	}
	return named, release, nil
}

func (s *session) reportDenial(err error) {
	var d *denial
	if errors.As(err, &d) {
		s.emit(d.event())
	}
}

// prepare decides as far as that can be done before the client speaks, and
// connects.
func (t *tunnel) prepare() error {
	g, err := t.foresee(t.query)
	if err != nil {
		return err
	}
	t.grant = g
	// A proxy upstream wants requests in plain HTTP by their URL, so it has to
	// be known first whether this is one.
	if p := t.upstream.choose(0, t.query.Host, t.query.Port); p != nil && p.speaksHTTP() && t.query.Port == httpPort {
		return nil
	}
	t.up, err = t.dial(t.query, g)
	return err
}

// prepareInTime is prepare, ended when the time of the session is over.
func (t *tunnel) prepareInTime() error {
	defer t.answerable(t.cancel)()
	err := t.prepare()
	if err != nil && t.expired.Load() {
		err = errTotal(http.StatusGatewayTimeout)
	}
	return err
}

func (t *tunnel) hangUp() {
	if t.up != nil {
		_ = t.up.Close()
	}
}

// run serves what the client says. The error is for the record.
func (t *tunnel) run() error {
	defer t.hangUp()
	said, h, err := t.listen()
	if err != nil {
		return t.refuse(said, t.unclear(said, err))
	}
	q := t.query
	q.Scheme = said.scheme()
	switch said {
	case speechTLS:
		return t.runTLS(q, h)
	case speechHTTP1:
		return t.runHTTP(q)
	case speechHTTP2:
		return t.runHTTP2(q)
	case speechNone:
		q.Scheme = 0 // nothing was said that could be refused
	}
	if err := t.confirm(q); err != nil {
		return t.refuse(said, err)
	}
	return t.carry(q)
}

// listen waits for what the client says. What the server says before is passed
// on if rules allow protocols in which it may.
func (t *tunnel) listen() (speech, hello.Hello, error) {
	defer t.client.expect(0)
	if !t.serverMaySpeak() {
		t.client.expect(greetingTime)
		defer t.answerable(t.client.hurry)()
		return t.sniffInTime()
	}
	defer t.watch()()
	e := t.startEarly()
	said, h, err := sniff(t.client)
	t.in = e.stop()
	if (said == speechHTTP1 || said == speechHTTP2) && t.in > 0 {
		said = speechOther // in HTTP no server speaks first
	}
	return said, h, err
}

// sniffInTime is sniff of a client that is answered if it does not come to the end
// of its first line.
func (t *tunnel) sniffInTime() (speech, hello.Hello, error) {
	said, h, err := sniff(t.client)
	if !isTimeout(err) || !isHalfALine(t.client.ahead) {
		return said, h, err
	}
	if t.expired.Load() {
		return speechHTTP1, h, errTotal(http.StatusRequestTimeout)
	}
	return speechHTTP1, h, t.tooSlow(t.client)
}

// serverMaySpeak says whether there is a server, and a rule that lets it speak
// a protocol in which it may be the first to.
func (t *tunnel) serverMaySpeak() bool {
	if t.up == nil {
		return false
	}
	for _, scheme := range []rules.Scheme{rules.SSH, rules.TCP} {
		q := t.query
		q.Scheme = scheme
		v := t.rules.Decide(q)
		if v.Action == config.Allow || v.Action == config.Proxy || v.Action == config.Ask && t.wasAsked(questionFor(q, v.Rule)) {
			return true
		}
	}
	return false
}

// watch ends the tunnel if nobody says anything for too long.
func (t *tunnel) watch() (stop func()) {
	up, client := t.up.Conn, t.client.Conn
	return relay.Watch(up, t.limits.Idle, func() {
		relay.Reset(client)
		relay.Reset(up)
	})
}

// early carries what a server says before the client does.
type early struct {
	up   *leg
	done chan struct{}
	n    int64
}

func (t *tunnel) startEarly() *early {
	e := &early{up: t.up, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		n, err := e.up.flush(t.client.Conn)
		if err == nil {
			var more int64
			more, err = relay.Copy(t.client.Conn, e.up.Conn, -1, t.bucket)
			n += more
		}
		if err == nil {
			// The server has said all it had to. The client may wait for this.
			_ = t.client.CloseWrite()
		}
		e.n = n
	}()
	return e
}

// stop returns how much the server said.
func (e *early) stop() int64 {
	_ = e.up.SetReadDeadline(time.Now())
	<-e.done
	_ = e.up.SetReadDeadline(time.Time{})
	return e.n
}

// confirm decides once it is known what is spoken.
func (t *tunnel) confirm(q rules.Query) error {
	decide := t.permit
	if q.Scheme == 0 {
		decide = t.foresee
	}
	g, err := decide(q)
	if err == nil {
		t.grant, t.query = g, q
	}
	return err
}

// unclear is a denial of what could not be made out.
func (t *tunnel) unclear(said speech, err error) error {
	var gone *net.OpError
	if said != speechTLS || errors.As(err, &gone) || errors.Is(err, io.EOF) {
		return err
	}
	q := t.query
	q.Scheme = rules.HTTPS
	return &denial{query: q, reason: err.Error(), rule: "one connection, one host"}
}

// carry relays bytes that are nobody else's business.
func (t *tunnel) carry(q rules.Query) error {
	if err := t.connect(q); err != nil {
		return t.refuse(speechOther, err)
	}
	up := t.up
	t.up = nil
	r := relayWires(t.client, up.wire, t.relayLimits())
	t.in, t.out = t.in+r.In, t.out+r.Out
	return r.Err
}

// connect makes the connection that had to wait.
func (t *tunnel) connect(q rules.Query) error {
	if t.up == nil {
		up, err := t.dial(q, t.grant)
		if err != nil {
			return err
		}
		t.up = up
	}
	t.address = t.up.address
	return nil
}

// runTLS checks which server a client asks for in TLS, and opens the connection
// where a rule says so.
func (t *tunnel) runTLS(q rules.Query, h hello.Hello) error {
	open := t.rules.MustOpen(q) || t.injects(q.Host)
	if err := t.checkHello(q, h, open); err != nil {
		return t.refuse(speechTLS, err)
	}
	if open {
		// What is asked inside is decided there, unless nothing could be.
		if _, err := t.foresee(q); err != nil {
			return t.refuse(speechTLS, err)
		}
		return t.inspect(q, h)
	}
	if err := t.confirm(q); err != nil {
		return t.refuse(speechTLS, err)
	}
	return t.carry(q)
}

// checkHello wants the name in TLS to be the one that was asked for. To an
// address any name may be said that is not denied.
func (t *tunnel) checkHello(q rules.Query, h hello.Hello, open bool) error {
	if h.Encrypted && !open {
		return &denial{
			query: q, rule: "one connection, one host",
			reason: "it uses Encrypted Client Hello, which hides the real host",
			fix:    "switch ECH off in the program, or " + `"inspect": true in the rule for ` + quote(q.Host.String()),
		}
	}
	if h.ServerName == "" {
		return nil
	}
	named, err := hostname.Parse(h.ServerName)
	if err != nil {
		return &denial{query: q, rule: "one connection, one host", reason: "the name in TLS is malformed: " + err.Error()}
	}
	if named == q.Host {
		return nil
	}
	if !q.Host.IsAddr() || named.IsAddr() {
		return mismatch(q, named, "name in TLS")
	}
	inside := q
	inside.Host = named
	return t.checkAlias(inside)
}

// runHTTP serves requests to the one server that the connection leads to.
func (t *tunnel) runHTTP(q rules.Query) error {
	t.serveOrigin(t.client, q, t.takeUp(), func() (*leg, error) { return t.dial(q, t.grant) })
	return errReported
}

// errReported says that requests have been recorded one by one.
var errReported = errors.New("reported")

// takeUp gives the connection to the server away.
func (t *tunnel) takeUp() *leg {
	up := t.up
	t.up = nil
	return up
}

// refuse ends a tunnel in a way that the client understands.
func (t *tunnel) refuse(said speech, err error) error {
	switch said {
	case speechTLS:
		alert := accessDenied
		var limited *head.Error
		if errors.As(err, &limited) {
			alert = internalError
		}
		_, _ = t.client.Write(alert)
	case speechHTTP1:
		_, _ = t.client.Write(answerTo(err, true))
	default:
		relay.Reset(t.client.Conn)
	}
	return err
}

// Alerts of TLS, which clients show by these names.
var (
	accessDenied  = []byte{21, 3, 3, 0, 2, 2, 49}
	internalError = []byte{21, 3, 3, 0, 2, 2, 80} // for what is not about the host
)
