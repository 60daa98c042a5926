package gate

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// silence is for what package net/http would print.
var silence = log.New(io.Discard, "", 0) //nolint:forbidigo // the only way to keep net/http from writing to stderr

// runHTTP2 serves HTTP/2 in the clear, as gRPC speaks it.
func (t *tunnel) runHTTP2(q rules.Query) error {
	dial := func() (*leg, error) {
		if up := t.takeUp(); up != nil {
			return up, nil
		}
		tunnelled := q
		tunnelled.Scheme = rules.TCP // a proxy upstream has to connect, not to ask
		return t.dial(tunnelled, t.grant)
	}
	up, err := dial()
	if err != nil {
		return t.refuse(speechOther, err)
	}
	t.serveHTTP2(t.client, q, up, dial)
	return errReported
}

// streamLimits bound what one connection may have the gate hold for somebody who
// does not read: net/http's own limit for answers is 4 MB for each of hundreds of
// streams, so that a client could have the gate hold as much memory as it likes.
// One stream must still be fast to a server that is far away.
var streamLimits = http.HTTP2Config{MaxReceiveBufferPerConnection: 4 << 20, MaxReceiveBufferPerStream: 2 << 20, MaxConcurrentStreams: 128}

// serveHTTP2 serves one connection in HTTP/2. Framing, streams and flow control
// are net/http's on both sides; each request is decided here.
func (t *tunnel) serveHTTP2(client net.Conn, q rules.Query, up *leg, dial func() (*leg, error)) {
	h := &streams{tunnel: t, query: q, dial: dial, first: up, address: up.address}
	defer h.close()
	h.proxy = &httputil.ReverseProxy{
		Rewrite: h.rewrite, Transport: h.transport(), FlushInterval: -1, ErrorLog: silence, ErrorHandler: h.failed,
	}
	var protocols http.Protocols
	protocols.SetHTTP2(q.Scheme == rules.HTTPS)
	protocols.SetUnencryptedHTTP2(q.Scheme == rules.HTTP)
	closed := make(chan struct{})
	server := &http.Server{
		Handler: h, Protocols: &protocols, ErrorLog: silence, HTTP2: &streamLimits,
		ReadHeaderTimeout: greetingTime, IdleTimeout: keepAliveTime, MaxHeaderBytes: int(t.limits.HeaderBytes),
		BaseContext: func(net.Listener) context.Context { return t.ctx },
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(closed)
			}
		},
	}
	within := t.client.Conn
	defer relay.Watch(within, t.limits.Idle, func() {
		t.idled.Store(true)
		relay.Reset(within)
	})()
	// Ends at once with the listener's only connection, which is then served.
	_ = server.Serve(&oneListener{conn: client})
	select {
	case <-closed:
	case <-t.ctx.Done():
		_ = client.Close()
		<-closed
	}
}

// oneListener listens for one connection that there is already.
type oneListener struct {
	conn net.Conn
	once sync.Once
}

func (l *oneListener) Accept() (c net.Conn, err error) {
	err = net.ErrClosed
	l.once.Do(func() { c, err = l.conn, nil })
	return c, err
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// streams passes the requests of one HTTP/2 connection on.
type streams struct {
	*tunnel
	query   rules.Query
	proxy   *httputil.ReverseProxy
	address netip.Addr
	dial    func() (*leg, error)

	mu    sync.Mutex
	first *leg // connected already, for the first request
	base  *http.Transport
}

// transport connects to the one server only.
func (h *streams) transport() http.RoundTripper {
	connect := func(context.Context, string, string) (net.Conn, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		up := h.first
		h.first = nil
		if up == nil {
			var err error
			if up, err = h.dial(); err != nil {
				return nil, err
			}
		}
		if h.query.Scheme == rules.HTTPS {
			return up.Conn, nil // package net/http wants to see the TLS
		}
		return up.wire, nil
	}
	var protocols http.Protocols
	protocols.SetHTTP2(h.query.Scheme == rules.HTTPS)
	protocols.SetUnencryptedHTTP2(h.query.Scheme == rules.HTTP)
	h.base = &http.Transport{
		DialContext: connect, DialTLSContext: connect, Protocols: &protocols, ForceAttemptHTTP2: true,
		HTTP2: &streamLimits, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHead, IdleConnTimeout: keepAliveTime,
	}
	return h.base
}

func (h *streams) close() {
	h.base.CloseIdleConnections()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first != nil {
		_ = h.first.Close()
	}
}

// stream is one request on its way. It travels in the request's context.
type stream struct {
	passage
	local  string            // what the server is asked for
	fields map[string]string // credentials
	err    error
}

type streamKey struct{}

// ServeHTTP implements http.Handler.
func (h *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st := &stream{passage: passage{query: h.query, begin: time.Now(), address: h.address}, local: r.RequestURI}
	st.query.Method = r.Method
	counted := &countedWriter{ResponseWriter: w, bucket: h.bucket}
	body := &countedBody{ReadCloser: r.Body, bucket: h.bucket}
	st.err = h.decide(&st.passage, r)
	if st.err == nil {
		st.err = h.addTo(st)
	}
	if st.err == nil {
		r.Body = body
		h.proxy.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), streamKey{}, st)))
	} else {
		h.refuseStream(counted, st.err)
	}
	st.in, st.out = counted.n, body.n.Load()
	h.report(&st.passage, st.err)
}

// decide says whether a request is allowed, and for the host that the connection
// leads to: clients put requests for several hosts on one connection if they
// believe one server to have them all.
func (h *streams) decide(p *passage, r *http.Request) error {
	host, port, err := hostname.ParseHostPort(r.Host, defaultPort(h.query.Scheme))
	if err != nil {
		return &head.Error{Status: http.StatusBadRequest, Text: "malformed host"}
	}
	sameHost := host == h.query.Host
	if h.query.Host.IsAddr() && !host.IsAddr() {
		sameHost = true
		if err := h.checkAlias(rules.Query{Host: host, Port: h.query.Port, Scheme: h.query.Scheme}); err != nil {
			return err
		}
	}
	if !sameHost || port != h.query.Port || r.Method == http.MethodConnect {
		return &head.Error{Status: http.StatusMisdirectedRequest, Text: "this connection leads to " + h.query.Host.Join(h.query.Port) + " only"}
	}
	if strings.HasPrefix(r.RequestURI, "//") && r.URL.RequestURI() != r.RequestURI {
		return &head.Error{Status: http.StatusBadRequest, Text: "malformed path"}
	}
	return h.decideRequest(p, r.RequestURI, func(name string) []string { return r.Header.Values(name) })
}

// addTo reads the credentials for a request.
func (h *streams) addTo(st *stream) error {
	for _, c := range h.inject {
		if !c.isFor(h.query.Host) {
			continue
		}
		value, err := h.credential(c, st.query.Method)
		if err != nil {
			return err
		}
		if c.As == config.InQuery {
			st.local = withParameter(st.local, c.Name, value)
			continue
		}
		if st.fields == nil {
			st.fields = map[string]string{}
		}
		name, text := c.header(value)
		st.fields[name] = text
	}
	return nil
}

// rewrite makes the request that the server gets.
func (h *streams) rewrite(r *httputil.ProxyRequest) {
	st, out := r.In.Context().Value(streamKey{}).(*stream), r.Out
	out.Host = head.PlainHost(r.In.Host, head.Authority{Host: h.query.Host, Port: h.query.Port}, defaultPort(h.query.Scheme))
	out.URL.Scheme = schemeName(h.query.Scheme)
	out.URL.Host = h.query.Host.Join(h.query.Port)
	for name, text := range st.fields {
		out.Header.Set(name, text)
	}
	var path string
	path, out.URL.RawQuery, _ = strings.Cut(st.local, "?")
	if !strings.HasPrefix(path, "//") && path != "*" {
		out.URL.Opaque = path // the very bytes that were checked
	}
}

// failed answers a request that the server did not. What went wrong may be told
// with the request in it, so it is not shown.
func (h *streams) failed(w http.ResponseWriter, r *http.Request, err error) {
	r.Context().Value(streamKey{}).(*stream).err = err
	h.refuseStream(w, errors.New(h.query.Host.Join(h.query.Port)+" does not answer"))
}

func (h *streams) refuseStream(w http.ResponseWriter, err error) {
	status, text := http.StatusBadGateway, "Bailey: "+err.Error()+".\n"
	var d *denial
	var malformed *head.Error
	switch {
	case errors.As(err, &d):
		status, text = http.StatusForbidden, d.text()
	case errors.As(err, &malformed):
		status, text = malformed.Status, "Bailey: "+malformed.Text+".\n"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// countedWriter counts what goes to the client.
type countedWriter struct {
	http.ResponseWriter
	bucket *relay.Bucket
	n      int64
}

func (w *countedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	w.bucket.Pay(int64(n))
	return n, err
}

// Unwrap lets http.ResponseController flush.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// countedBody counts what goes to the server.
type countedBody struct {
	io.ReadCloser
	bucket *relay.Bucket
	n      atomic.Int64 // the transport may read on when the request is over
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	b.bucket.Pay(int64(n))
	return n, err
}
