package transport

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Bounds are limits on what one request may cost the server.
type Bounds struct {
	// Header is the most bytes of a request's header.
	Header int
	// HeaderTime is how long a header may take to arrive.
	HeaderTime time.Duration
	// Message is the most bytes of one message. A stream may have any number.
	Message int
	// Stall is how long a client may send nothing of a body that it has begun, or
	// take nothing of an answer.
	Stall time.Duration
	// Idle is how long a connection may stay without a request.
	Idle time.Duration
}

func (b Bounds) orDefault() Bounds {
	if b.Header == 0 {
		b.Header = 64 << 10
	}
	if b.HeaderTime == 0 {
		b.HeaderTime = 10 * time.Second
	}
	if b.Message == 0 {
		b.Message = 32 << 20 // a file of 16 MiB, in JSON
	}
	if b.Stall == 0 {
		b.Stall = time.Minute
	}
	if b.Idle == 0 {
		b.Idle = 2 * time.Minute
	}
	return b
}

// bound ends requests whose client neither sends nor takes anything for too long.
// It moves the connection's deadlines along with its progress, so that a large
// file may take hours and a body that never comes may not.
func (t *Transport) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &boundBody{ReadCloser: r.Body, control: control, stall: t.bounds.Stall}
		}
		next.ServeHTTP(&boundWriter{ResponseWriter: w, control: control, stall: t.bounds.Stall}, r)
		// The connection's next request, and the wait for it, have bounds of their own.
		_ = control.SetWriteDeadline(time.Time{})
	})
}

type boundBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

func (b *boundBody) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.stall))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// From here on the connection is only watched for the client's leaving,
		// which may take as long as the answer does. After any other error the
		// deadline stays, since net/http waits for the rest of the body.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

type boundWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Unwrap lets http.ResponseController reach the connection.
func (w *boundWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *boundWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which the Connect handlers ask for.
func (w *boundWriter) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	if err := w.control.Flush(); err != nil && errors.Is(err, http.ErrNotSupported) {
		return
	}
}
