// Package transport carries requests to the server's handlers, and decides which
// requests get there: it listens, checks where a request comes from and who sent
// it, bounds what it may cost, and speaks every protocol of the API: Connect,
// gRPC and gRPC-Web below /bailey.v1., REST below /v1/, JSON lines or server-sent
// events for streams, and WebSocket for terminals.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// Services are who handles requests. What is nil answers "unimplemented".
type Services struct {
	Server    baileyv1connect.ServerServiceHandler
	Codebases baileyv1connect.CodebaseServiceHandler
	Sandboxes baileyv1connect.SandboxServiceHandler
	Execs     baileyv1connect.ExecServiceHandler
	Sessions  baileyv1connect.SessionServiceHandler
	Files     baileyv1connect.FileServiceHandler
}

// Tokens says whom a bearer token speaks for.
type Tokens interface {
	Find(ctx context.Context, text string) (caller.Caller, error)
}

// Config is what a transport needs.
type Config struct {
	Services Services
	Tokens   Tokens
	// Requests keeps the answers to requests with an idempotency key.
	Requests store.Store
	// Journal is the file of requests with a key that are not over; empty if
	// none outlives the process.
	Journal string
	Log     *slog.Logger
	// Audit gets a line of JSON for every request that changes or runs something
	// or is refused; nil is for none.
	Audit io.Writer
	// Spans makes spans of requests; nil is for none.
	Spans trace.TracerProvider
	// Collectors are figures beside those of the transport itself.
	Collectors []prometheus.Collector
	// Hosts are names by which clients call the server, besides localhost and
	// addresses.
	Hosts []string
	// Origins are those of web pages that may call the server, such as
	// "https://console.example.com".
	Origins []string
	// LocalOwner is whom the user's own processes act for.
	LocalOwner string
	// Ready says why the server cannot serve yet, if so.
	Ready func() error
	// Bounds are limits on what one request may cost; those that are zero are the
	// defaults.
	Bounds Bounds
	// Rate is how many requests an owner may send in a second; 0 is any number.
	Rate float64
}

// Transport is a server's outer side.
type Transport struct {
	config  Config
	bounds  Bounds
	handler http.Handler
	rpc     http.Handler // the Connect handlers, without the outer checks
	figures *figures
	pace    *pace
	audit   *auditor
	journal *journal
	drain   drain
}

// New returns a transport that does not listen yet.
func New(c Config) (*Transport, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.LocalOwner == "" {
		c.LocalOwner = "local"
	}
	t := &Transport{config: c, bounds: c.Bounds.orDefault(), figures: newFigures(c.Collectors), audit: &auditor{to: c.Audit, log: c.Log}}
	t.pace = &pace{rate: c.Rate, now: time.Now, owners: map[string]allowance{}}
	t.drain.init()
	var err error
	if t.journal, err = openJournal(c.Journal); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	routes, err := t.routes()
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	// From the outside in: whatever comes gets a request id, a line in the log
	// and bounds; then it is refused unless it comes from where it may; only then
	// does anybody look at what it wants.
	t.handler = t.observe(t.bound(t.guard(routes)))
	return t, nil
}

// ServeHTTP implements http.Handler.
func (t *Transport) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.handler.ServeHTTP(w, r) }

// services returns the handlers by the paths of their methods.
func (t *Transport) services() map[string]http.Handler {
	s := t.config.Services.complete()
	options := []connect.HandlerOption{
		connect.WithInterceptors(t.traced(), t.finish(), t.audit, t.admit(), texts{}, t.idempotent()),
		connect.WithReadMaxBytes(t.bounds.Message),
		// Most answers are small and the client is near, and what is large is a
		// file: compressing it costs more time than it saves.
		connect.WithCompressMinBytes(math.MaxInt),
	}
	all := map[string]http.Handler{}
	add := func(path string, h http.Handler) { all[path] = h }
	add(baileyv1connect.NewServerServiceHandler(s.Server, options...))
	add(baileyv1connect.NewCodebaseServiceHandler(s.Codebases, options...))
	add(baileyv1connect.NewSandboxServiceHandler(s.Sandboxes, options...))
	add(baileyv1connect.NewExecServiceHandler(s.Execs, options...))
	add(baileyv1connect.NewSessionServiceHandler(s.Sessions, options...))
	add(baileyv1connect.NewFileServiceHandler(s.Files, options...))
	return all
}

func (s Services) complete() Services {
	if s.Server == nil {
		s.Server = baileyv1connect.UnimplementedServerServiceHandler{}
	}
	if s.Codebases == nil {
		s.Codebases = baileyv1connect.UnimplementedCodebaseServiceHandler{}
	}
	if s.Sandboxes == nil {
		s.Sandboxes = baileyv1connect.UnimplementedSandboxServiceHandler{}
	}
	if s.Execs == nil {
		s.Execs = baileyv1connect.UnimplementedExecServiceHandler{}
	}
	if s.Sessions == nil {
		s.Sessions = baileyv1connect.UnimplementedSessionServiceHandler{}
	}
	if s.Files == nil {
		s.Files = baileyv1connect.UnimplementedFileServiceHandler{}
	}
	return s
}

// routes joins everything that can be asked for. What needs no caller is said
// here by name; the rest needs one.
func (t *Transport) routes() (http.Handler, error) {
	services := t.services()
	rpc := http.NewServeMux()
	var forREST []*vanguard.Service
	for path, h := range services {
		rpc.Handle(path, h)
		forREST = append(forREST, vanguard.NewService(path, h,
			vanguard.WithTargetProtocols(vanguard.ProtocolConnect),
			vanguard.WithTargetCodecs(vanguard.CodecProto),
			vanguard.WithNoTargetCompression(),
			vanguard.WithMaxMessageBufferBytes(uint32(t.bounds.Message)))) //nolint:gosec // a bound of Bounds
	}
	transcoder, err := vanguard.NewTranscoder(forREST,
		vanguard.WithCodec(newRESTCodec),
		vanguard.WithUnknownHandler(http.HandlerFunc(t.noSuchPath)))
	if err != nil {
		return nil, err
	}
	t.rpc = rpc

	mux := http.NewServeMux()
	for path := range services {
		mux.Handle(path, t.authenticated(rpc))
	}
	rest := uncompressed(blaming(transcoder))
	mux.Handle("/v1/", t.authenticated(rest))
	t.handleStreams(mux, rest)
	t.handleBytes(mux, rest)
	mux.Handle("GET /v1/sandboxes/{sandbox_id}/terminal", t.authenticated(http.HandlerFunc(t.terminal)))
	mux.HandleFunc("GET /healthz", t.health)
	mux.HandleFunc("GET /readyz", t.ready)
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	mux.Handle("GET /metrics", t.authenticated(demanding(caller.Metrics, t.figures.handler())))
	mux.HandleFunc("/", t.noSuchPath)
	return mux, nil
}

// health says that the process answers.
func (t *Transport) health(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// ready says whether requests would be served now.
func (t *Transport) ready(w http.ResponseWriter, _ *http.Request) {
	if t.drain.begun() {
		writeText(w, http.StatusServiceUnavailable, "the server is shutting down\n")
		return
	}
	if t.config.Ready != nil {
		if err := t.config.Ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, strings.TrimSpace(err.Error())+"\n")
			return
		}
	}
	writeText(w, http.StatusOK, "ready\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

var errNoSuchPath = errors.New("there is nothing at this path")
