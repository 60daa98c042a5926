package gate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// request is one request on its way.
type request struct {
	*head.Request
	to    head.Authority
	local string // what the server is asked for
	passage
}

// pass decides about a request and passes it on. It says whether the connection
// can be used for another.
func (h *exchange) pass(q *head.Request, to head.Authority, local string) bool {
	r := &request{Request: q, to: to, local: local}
	r.begin = time.Now()
	if err := h.decide(r); err != nil {
		h.report(&r.passage, err)
		return h.refuse(q, err)
	}
	keep, err := h.run(r)
	if h.idled.Load() {
		keep, err = false, os.ErrDeadlineExceeded
	}
	h.report(&r.passage, err)
	return keep
}

// decide says whether the request is allowed.
func (h *exchange) decide(r *request) error {
	r.query = rules.Query{Host: r.to.Host, Port: r.to.Port, Scheme: h.scheme, Method: r.Method}
	return h.decideRequest(&r.passage, r.local, func(name string) []string { return r.Fields.All(name) })
}

// run passes a request that was allowed. The error is for the record; the client
// has had an answer if there was a way to give one.
func (h *exchange) run(r *request) (keep bool, err error) {
	fields, err := h.outgoing(r)
	if err != nil {
		return h.refuse(r.Request, err), err
	}
	reused, err := h.connect(r)
	if err != nil {
		return h.refuse(r.Request, err), err
	}
	r.address = h.up.address
	answer, body, err := h.send(r, fields)
	if reused && errors.Is(err, errHungUp) && r.canRepeat() {
		h.hangUp()
		if _, err = h.connect(r); err != nil {
			return h.refuse(r.Request, err), err
		}
		answer, body, err = h.send(r, fields)
	}
	if err != nil {
		h.hangUp()
		body.stop(h.client)
		return h.refuse(r.Request, h.unanswered(r, body, err)), err
	}
	return h.finish(r, answer, body)
}

// unanswered is what a client is told whose request got no answer.
func (h *exchange) unanswered(r *request, body *upload, err error) error {
	switch {
	case h.expired.Load():
		return errTotal(http.StatusGatewayTimeout)
	case h.idled.Load():
		return errIdle()
	case body.malformed():
		return &head.Error{Status: http.StatusBadRequest, Text: "malformed body"}
	}
	return fmt.Errorf("%s does not answer: %w", r.to, plainError(err))
}

// errHungUp says that the server closed the connection before any part of an
// answer came.
var errHungUp = errors.New("the server hung up")

// canRepeat says whether a request may be sent again to a server that hung up:
// it may have done what the first one asked for.
func (r *request) canRepeat() bool {
	return r.Length == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// connect makes h.up lead to where the request goes. It says whether it did
// already.
func (h *exchange) connect(r *request) (reused bool, err error) {
	if h.up != nil && h.to == r.to && isOpen(h.up.Conn) {
		return true, nil
	}
	h.hangUp()
	defer h.answerable(h.cancel)()
	if h.open != nil {
		h.up, err = h.open()
	} else {
		h.up, err = h.dial(rules.Query{Host: r.to.Host, Port: r.to.Port, Scheme: h.scheme}, r.grant)
	}
	if err != nil {
		h.up = nil
		if h.expired.Load() {
			err = errTotal(http.StatusGatewayTimeout)
		}
		return false, err
	}
	h.to = r.to
	return false, nil
}

// outgoing are the fields that the server gets.
func (h *exchange) outgoing(r *request) (head.Fields, error) {
	fields := r.Fields.EndToEnd().Without(func(name string) bool { return strings.EqualFold(name, "Host") })
	sent, _ := r.Fields.Get("Host")
	fields = append(head.Fields{{Name: "Host", Value: head.PlainHost(sent, r.to, defaultPort(h.scheme))}}, fields...)
	if up := r.upgrade(); up != "" {
		fields = append(fields, head.Field{Name: "Connection", Value: "Upgrade"}, head.Field{Name: "Upgrade", Value: up})
	}
	if r.Length == head.Chunked {
		fields = append(fields, head.Field{Name: "Transfer-Encoding", Value: "chunked"})
	} else if value, ok := r.Fields.Get("Content-Length"); ok {
		fields = append(fields, head.Field{Name: "Content-Length", Value: value})
	}
	return h.addCredentials(r, fields)
}

// upgrade is the protocol that the client wants to change to. Not with a body:
// where that ends and the other protocol begins is for nobody to guess.
func (r *request) upgrade() string {
	if r.Length != 0 {
		return ""
	}
	return r.Fields.Upgrade()
}

// send sends the request and reads the head of the final answer. The body may
// still be on its way then.
func (h *exchange) send(r *request, fields head.Fields) (*head.Response, *upload, error) {
	up := h.up.Conn
	defer h.answerable(func() { relay.Reset(up) })()
	defer relay.Watch(up, h.limits.Idle, func() {
		h.idled.Store(true)
		relay.Reset(up)
	})()
	text := []byte(r.Method + " " + h.target(r) + " HTTP/1.1\r\n")
	if via := h.up.via; via != nil {
		if a := via.authorization(); a != "" {
			fields = append(fields, head.Field{Name: "Proxy-Authorization", Value: a})
		}
	}
	text = append(fields.Append(text), "\r\n"...)
	n, err := h.up.Write(text)
	r.out += int64(n)
	if err != nil {
		return nil, nil, err
	}
	body := h.startUpload(r)
	if _, err := h.up.buffered().Peek(1); err != nil {
		return nil, body, errHungUp
	}
	for {
		answer, err := head.ReadResponse(h.up.buffered(), maxAnswerHead, r.Method)
		if err != nil {
			return nil, body, err
		}
		if answer.Status == http.StatusProxyAuthRequired && h.up.via != nil {
			return nil, body, errors.New("the upstream proxy does not take the user and the password")
		}
		if answer.Status >= 200 || answer.Status == http.StatusSwitchingProtocols {
			return answer, body, nil
		}
		// 100 Continue and the like. HTTP/1.0 does not know them.
		if r.Minor == 0 {
			continue
		}
		n, err := h.client.Write(appendAnswer(nil, answer, answer.Fields.EndToEnd()))
		r.in += int64(n)
		if err != nil {
			return nil, body, err
		}
	}
}

// target is what stands in the request line.
func (h *exchange) target(r *request) string {
	if h.up.via == nil {
		return r.local
	}
	url := "http://" + r.to.Host.String()
	if r.to.Host.Addr().Is6() {
		url = "http://[" + r.to.Host.String() + "]"
	}
	if r.to.Port != httpPort {
		url = "http://" + r.to.String()
	}
	if r.local == "*" {
		return url
	}
	return url + r.local
}

// watch ends both connections when no byte has passed for too long. The function
// it returns ends the watch.
func (h *exchange) watch() (stop func()) {
	up := h.up
	return relay.Watch(up.Conn, h.limits.Idle, func() {
		h.idled.Store(true)
		relay.Reset(h.session.client.Conn)
		relay.Reset(up.Conn)
	})
}

// finish passes the answer on.
func (h *exchange) finish(r *request, answer *head.Response, body *upload) (keep bool, err error) {
	if answer.Status == http.StatusSwitchingProtocols {
		return false, h.upgrade(r, answer, body)
	}
	defer h.watch()()
	keep = head.KeepAlive(r.Minor, r.Fields) && h.framed(r, answer)
	if _, waits := r.Fields.Get("Expect"); waits && !body.isDone() {
		// The client may never send its body now, or may: what comes next
		// cannot be told from it.
		keep = false
	}
	n, err := h.client.Write(appendAnswer(nil, answer, h.answerFields(r, answer, keep)))
	r.in += int64(n)
	if err == nil {
		err = h.download(r, answer)
	}
	if !body.isDone() {
		body.end(h.client, h.up.wire)
	}
	r.out += body.sent()
	if err != nil || body.failed() || !h.canKeep(answer) {
		h.hangUp()
	}
	if err == nil && body.failed() {
		h.linger()
	}
	return keep && err == nil && !body.failed(), err
}

// canKeep says whether the connection to the server is good for another request.
func (h *exchange) canKeep(answer *head.Response) bool {
	return answer.Length != head.ToTheEnd && head.KeepAlive(answer.Minor, answer.Fields) &&
		h.up.buffered().Buffered() == 0 && len(h.up.ahead) == 0 // nothing that nobody asked for
}

// framed says whether the client can tell where the answer ends.
func (h *exchange) framed(r *request, answer *head.Response) bool {
	return answer.Length >= 0 || answer.Length == head.Chunked && r.Minor == 1
}

func (h *exchange) answerFields(r *request, answer *head.Response, keep bool) head.Fields {
	fields := answer.Fields.EndToEnd()
	if answer.Length == head.Chunked && r.Minor == 1 {
		fields = append(fields, head.Field{Name: "Transfer-Encoding", Value: "chunked"})
	} else if value, ok := answer.Fields.Get("Content-Length"); ok {
		fields = append(fields, head.Field{Name: "Content-Length", Value: value})
	}
	switch {
	case !keep:
		fields = append(fields, head.Field{Name: "Connection", Value: "close"})
	case r.Minor == 0:
		fields = append(fields, head.Field{Name: "Connection", Value: "keep-alive"})
	}
	return fields
}

func appendAnswer(b []byte, answer *head.Response, fields head.Fields) []byte {
	b = append(b, "HTTP/1.1 "+strconv.Itoa(answer.Status)+" "+answer.Reason+"\r\n"...)
	return append(fields.Append(b), "\r\n"...)
}

// download carries the body of an answer.
func (h *exchange) download(r *request, answer *head.Response) error {
	switch {
	case answer.Length == head.Chunked:
		n, err := h.copyChunks(h.client, h.up.wire, r.Minor == 1, true)
		r.in += n
		return err
	case answer.Length == head.ToTheEnd:
		n, err := h.up.flush(h.client.Conn)
		r.in += n
		if err == nil {
			n, err = relay.Copy(h.client.Conn, h.up.Conn, -1, h.bucket)
			r.in += n
		}
		return h.cutShort(err)
	case answer.Length > 0:
		n, err := h.up.send(h.client, answer.Length, h.bucket)
		r.in += n
		return h.cutShort(err)
	}
	return nil
}

// cutShort keeps an end that comes too early from looking like one in time.
func (h *exchange) cutShort(err error) error {
	if err != nil {
		relay.Reset(h.session.client.Conn)
	}
	return err
}

// upgrade turns the exchange into a tunnel, as the server agreed to.
func (h *exchange) upgrade(r *request, answer *head.Response, body *upload) error {
	if r.upgrade() == "" {
		h.hangUp()
		body.stop(h.client)
		h.refuse(r.Request, errors.New("the server changes the protocol without being asked to"))
		return nil
	}
	fields := answer.Fields.EndToEnd()
	value, _ := answer.Fields.Get("Upgrade")
	fields = append(fields, head.Field{Name: "Connection", Value: "Upgrade"}, head.Field{Name: "Upgrade", Value: value})
	if _, err := h.client.Write(appendAnswer(nil, answer, fields)); err != nil {
		return err
	}
	up := h.up
	h.up = nil
	result := relayWires(h.client, up.wire, h.relayLimits())
	r.in, r.out = r.in+result.In, r.out+result.Out
	return result.Err
}

// upload is the body of a request on its way to the server. A nil one is over
// and done with.
type upload struct {
	done chan struct{}
	n    int64
	err  error
}

func (h *exchange) startUpload(r *request) *upload {
	if r.Length == 0 {
		return nil
	}
	u := &upload{done: make(chan struct{})}
	up := h.up
	go func() {
		defer close(u.done)
		if r.Length == head.Chunked {
			u.n, u.err = h.copyChunks(up, h.client, true, false)
		} else {
			u.n, u.err = h.client.send(up.wire, r.Length, h.bucket)
		}
		if errors.Is(u.err, errMalformed) || errors.Is(u.err, io.ErrUnexpectedEOF) {
			// The server waits for a rest that does not come.
			relay.Reset(up.Conn)
		}
	}()
	return u
}

func (u *upload) isDone() bool {
	if u == nil {
		return true
	}
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// stop ends an upload at once.
func (u *upload) stop(client *wire) {
	if u != nil {
		_ = client.SetReadDeadline(time.Now())
		<-u.done
	}
}

// end lets an upload that is all but over come to its end, while one that the
// server does not want is stopped.
func (u *upload) end(client, up *wire) {
	const grace = time.Second
	_ = client.SetReadDeadline(time.Now().Add(grace))
	_ = up.SetWriteDeadline(time.Now().Add(grace))
	<-u.done
	_ = up.SetWriteDeadline(time.Time{})
}

// malformed says whether the client's framing made no sense.
func (u *upload) malformed() bool {
	return u != nil && errors.Is(u.err, errMalformed)
}

var errMalformed = errors.New("malformed chunk")

func (u *upload) sent() int64 {
	if u == nil {
		return 0
	}
	<-u.done
	return u.n
}

func (u *upload) failed() bool {
	if u == nil {
		return false
	}
	<-u.done
	return u.err != nil
}

const chunkSize = 16 << 10

var chunkBuffers = sync.Pool{New: func() any { b := make([]byte, chunkSize+chunkRoom); return &b }}

// chunkRoom is for the size in front of a chunk and the line end behind it.
const chunkRoom = 16

// copyChunks carries a body in chunks. To a client that does not know chunks it
// sends what is in them. Lines behind the last chunk are handed on if trailer
// says so.
func (h *exchange) copyChunks(to net.Conn, from *wire, chunked, trailer bool) (int64, error) {
	buffer := chunkBuffers.Get().(*[]byte)
	defer chunkBuffers.Put(buffer)
	const front = chunkRoom - 2
	data := (*buffer)[front : front+chunkSize]
	reader := httputil.NewChunkedReader(from.buffered())
	var done int64
	for {
		n, err := reader.Read(data)
		if n > 0 {
			out := data[:n]
			if chunked {
				out = frameChunk(*buffer, front, n)
			}
			written, werr := to.Write(out)
			done += int64(written)
			h.bucket.Pay(int64(written))
			if werr != nil {
				return done, werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return done, chunkError(err)
		}
	}
	fields, err := head.ReadTrailer(from.buffered(), int(h.limits.HeaderBytes))
	if err != nil {
		return done, chunkError(err)
	}
	if !chunked {
		return done, nil
	}
	end := []byte("0\r\n")
	if trailer {
		end = fields.EndToEnd().Append(end)
	}
	n, err := to.Write(append(end, "\r\n"...))
	return done + int64(n), err
}

// frameChunk puts a size in front of the n bytes at front, and a line end behind.
func frameChunk(buffer []byte, front, n int) []byte {
	size := strconv.AppendInt(nil, int64(n), 16)
	begin := front - len(size) - 2
	copy(buffer[begin:], size)
	copy(buffer[front-2:], "\r\n")
	copy(buffer[front+n:], "\r\n")
	return buffer[begin : front+n+2]
}

// chunkError tells a body that makes no sense from one that just ends.
func chunkError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return errMalformed
}
