package transport

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// handleStreams adds the methods whose answers are streams to the REST paths.
// The rest of REST is in the protobuf files; streams have no place there.
func (t *Transport) handleStreams(mux *http.ServeMux, rest http.Handler) {
	add := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, t.authenticated(h)) }
	add("GET /v1/sandboxes/{sandbox_id}/events", streamed[baileyv1.WatchEventsRequest, baileyv1.Event](t, baileyv1connect.SandboxServiceWatchEventsProcedure))
	add("GET /v1/sandboxes/{sandbox_id}/files:watch", streamed[baileyv1.WatchFilesRequest, baileyv1.FileChange](t, baileyv1connect.FileServiceWatchFilesProcedure))
	add("GET /v1/sandboxes/{sandbox_id}/execs/{exec_id}/output", streamed[baileyv1.AttachExecRequest, baileyv1.ExecOutput](t, baileyv1connect.ExecServiceAttachExecProcedure))
	add("POST /v1/sandboxes/{sandbox_id}/execs:stream", streamed[baileyv1.StreamExecRequest, baileyv1.ExecOutput](t, baileyv1connect.ExecServiceStreamExecProcedure))
	session := streamed[baileyv1.StreamSessionRequest, baileyv1.ExecOutput](t, baileyv1connect.SessionServiceStreamSessionProcedure)
	add("POST /v1/sandboxes/{sandbox_id}/sessions/{session_id}", func(w http.ResponseWriter, r *http.Request) {
		// The pattern cannot say that the last segment ends in a verb.
		id, ok := strings.CutSuffix(r.PathValue("session_id"), ":stream")
		if !ok {
			rest.ServeHTTP(w, r)
			return
		}
		r.SetPathValue("session_id", id)
		session(w, r)
	})
}

// message is a pointer to a protobuf struct.
type message[T any] interface {
	*T
	proto.Message
}

// streamed returns a handler that calls a method and writes each message of its
// answer as one line of JSON, or as one server-sent event. An error that comes
// after the first message is the last line, {"error": …}.
func streamed[Req, Res any, PReq message[Req], PRes message[Res]](t *Transport, procedure string) http.HandlerFunc {
	client := connect.NewClient[Req, Res](inside{t.rpc}, "http://inside"+procedure)
	return func(w http.ResponseWriter, r *http.Request) {
		request := PReq(new(Req))
		if err := t.readStreamRequest(r, request); err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		stream, err := client.CallServerStream(r.Context(), connect.NewRequest((*Req)(request)))
		if err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		defer func() { _ = stream.Close() }()
		lines := newLineWriter(w, r)
		for stream.Receive() {
			if err := lines.message(PRes(stream.Msg())); err != nil {
				return // the client has gone, and the stream with it
			}
		}
		switch err := stream.Err(); {
		case err == nil:
			lines.begin()
		case !lines.begun && !errors.Is(err, context.Canceled):
			reject(w, r, refusalOf(err))
		default:
			lines.failure(refusalOf(err).err)
		}
	}
}

// readStreamRequest fills a request from the body, the query and the path, of
// which the later win.
func (t *Transport) readStreamRequest(r *http.Request, m proto.Message) error {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, int64(t.bounds.Message)))
		if err != nil {
			return problem.Invalid("body", "%v", err)
		}
		if len(body) > 0 {
			if err := protojson.Unmarshal(body, m); err != nil {
				return problem.Invalid("body", "%v", err)
			}
		}
	}
	if err := fillFromQuery(m, r.URL.Query()); err != nil {
		return err
	}
	fillFromPath(m, r)
	return nil
}

// fillFromPath sets the fields that the pattern of a path names.
func fillFromPath(m proto.Message, r *http.Request) {
	for _, name := range []string{"sandbox_id", "codebase_id", "snapshot_id", "exec_id", "session_id"} {
		field := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
		if value := r.PathValue(name); value != "" && field != nil {
			m.ProtoReflect().Set(field, protoreflect.ValueOfString(value))
		}
	}
}

// fillFromQuery sets fields by their names in the protobuf file or in JSON.
func fillFromQuery(m proto.Message, query url.Values) error {
	fields := m.ProtoReflect().Descriptor().Fields()
	for name, values := range query {
		field := fields.ByName(protoreflect.Name(name))
		if field == nil {
			field = fields.ByJSONName(name)
		}
		if field == nil {
			return problem.Invalid("query", "there is no parameter %q", name)
		}
		for _, text := range values {
			value, err := fieldValue(field, text)
			if err != nil {
				return problem.Invalid(name, "%v", err)
			}
			if field.IsList() {
				m.ProtoReflect().Mutable(field).List().Append(value)
			} else {
				m.ProtoReflect().Set(field, value)
			}
		}
	}
	return nil
}

func fieldValue(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(text, 10, 64)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.BytesKind:
		b, err := fromBase64(text)
		return protoreflect.ValueOfBytes(b), err
	}
	return protoreflect.Value{}, fmt.Errorf("%q cannot be given in the query", field.Name())
}

// fromBase64 reads bytes in the alphabet of either kind, with or without padding.
func fromBase64(text string) ([]byte, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	return base64.RawStdEncoding.DecodeString(text)
}

// lineWriter writes messages as lines, or as events if the client wants those.
type lineWriter struct {
	w      http.ResponseWriter
	flush  func() error
	events bool
	begun  bool
}

func newLineWriter(w http.ResponseWriter, r *http.Request) *lineWriter {
	return &lineWriter{w: w, flush: http.NewResponseController(w).Flush, events: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
}

func (l *lineWriter) begin() {
	if l.begun {
		return
	}
	l.begun = true
	kind := "application/x-ndjson"
	if l.events {
		kind = "text/event-stream"
	}
	l.w.Header().Set("Content-Type", kind)
	l.w.Header().Set("Cache-Control", "no-store")
	l.w.Header().Set("X-Accel-Buffering", "no") // a proxy in between passes lines on as they come
	l.w.WriteHeader(http.StatusOK)
}

func (l *lineWriter) message(m proto.Message) error {
	line, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return l.line("message", line)
}

func (l *lineWriter) failure(err *connect.Error) {
	status, merr := protojson.Marshal(asStatus(err))
	if merr != nil {
		return
	}
	line, merr := json.Marshal(map[string]json.RawMessage{"error": status})
	if merr == nil {
		_ = l.line("error", line)
	}
}

func (l *lineWriter) line(event string, line []byte) error {
	l.begin()
	before, after := "", "\n"
	if l.events {
		before, after = "event: "+event+"\ndata: ", "\n\n"
	}
	if _, err := fmt.Fprintf(l.w, "%s%s%s", before, line, after); err != nil {
		return err
	}
	return l.flush()
}
