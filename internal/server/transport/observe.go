package transport

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/caller"
)

const requestHeader = "X-Request-Id"

// record is what the log will say about a request. Whoever learns something
// notes it here; a terminal's request is several calls at once, and they may end
// after it.
type record struct {
	id, path string
	remote   string

	mu      sync.Mutex
	learned learned
}

// learned is what becomes known of a request on its way.
type learned struct {
	caller    caller.Caller
	procedure string
	err       error
}

func (r *record) known() learned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.learned
}

type recordKey struct{}

func recordOf(ctx context.Context) *record {
	r, _ := ctx.Value(recordKey{}).(*record)
	return r
}

// requestID is the id of the request that a context belongs to.
func requestID(ctx context.Context) string {
	if r := recordOf(ctx); r != nil {
		return r.id
	}
	return ""
}

func note(ctx context.Context, c caller.Caller) {
	if r := recordOf(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.learned.caller = c
	}
}

func noteProcedure(ctx context.Context, procedure string, err *connect.Error) {
	r := recordOf(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learned.procedure = procedure
	if err != nil {
		r.learned.err = err
	}
}

// observe gives a request its id and, when it is over, its line in the log.
func (t *Transport) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The path as it came: on its way to a handler it may become another.
		rec := &record{id: requestIDOf(r), path: r.URL.Path, remote: r.RemoteAddr}
		w.Header().Set(requestHeader, rec.id)
		sw := &statusWriter{ResponseWriter: w}
		begin := time.Now()
		defer func() { // one that breaks off is a request, too
			t.figures.answered(sw.status)
			t.audit.refused(r, rec, sw.status)
			t.log(r, rec, sw.status, time.Since(begin))
		}()
		next.ServeHTTP(sw, r.WithContext(context.WithValue(t.parent(r), recordKey{}, rec)))
	})
}

// log writes about failures of the server as errors, about refusals as news, and
// about the rest only for who wants to see every request.
func (t *Transport) log(r *http.Request, rec *record, status int, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusNotImplemented:
		level = slog.LevelError
	case status >= 400:
		level = slog.LevelInfo
	}
	if !t.config.Log.Enabled(r.Context(), level) {
		return
	}
	known := rec.known()
	attrs := []slog.Attr{
		slog.String("request", rec.id), slog.String("http", r.Method), slog.String("path", rec.path),
		slog.Int("status", status), slog.Duration("took", took), slog.String("remote", r.RemoteAddr),
	}
	if known.procedure != "" {
		attrs = append(attrs, slog.String("method", known.procedure))
	}
	if known.caller.Owner != "" {
		attrs = append(attrs, slog.String("owner", known.caller.Owner), slog.String("token", known.caller.Token))
	}
	if known.err != nil {
		attrs = append(attrs, slog.String("error", known.err.Error()))
	}
	t.config.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestIDOf takes the client's own id if it is harmless in a log, so that one
// id follows a request through several programs.
func requestIDOf(r *http.Request) string {
	id := r.Header.Get(requestHeader)
	if id != "" && len(id) <= 64 && isPlain(id) {
		return id
	}
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isPlain(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 || w.status < 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}
