package transport

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"connectrpc.com/connect"
)

// inside is an HTTP client whose server is a handler of this process. What speaks
// another protocol than the handlers do calls them through it, with the caller in
// the request's context.
type inside struct{ handler http.Handler }

var _ connect.HTTPClient = inside{}

// Do implements connect.HTTPClient. It returns when the handler has begun to
// answer; the rest of the answer comes as it is written.
func (i inside) Do(r *http.Request) (*http.Response, error) {
	reader, writer := io.Pipe()
	w := &insideWriter{header: http.Header{}, body: writer, begun: make(chan struct{})}
	request := r.Clone(r.Context())
	if request.Body == nil {
		request.Body = http.NoBody
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				_ = writer.CloseWithError(fmt.Errorf("panic: %v", p))
				w.begin(http.StatusInternalServerError)
				return
			}
			w.begin(http.StatusOK)
			_ = writer.Close()
		}()
		i.handler.ServeHTTP(w, request)
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done():
		_ = reader.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: reader, ContentLength: -1, Request: r, Trailer: http.Header{},
	}, nil
}

type insideWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begun  chan struct{} // closed when status and sent are set
	status int
	sent   http.Header
}

func (w *insideWriter) Header() http.Header { return w.header }

func (w *insideWriter) begin(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *insideWriter) WriteHeader(status int) { w.begin(status) }

func (w *insideWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher: nothing is held back.
func (w *insideWriter) Flush() { w.begin(http.StatusOK) }
