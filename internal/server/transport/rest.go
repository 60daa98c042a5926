package transport

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// restCodec is the JSON of REST. It refuses keys that no message has, so that a
// misspelt one is not taken for a default, and writes values that are zero.
type restCodec struct{ vanguard.JSONCodec }

var _ vanguard.RESTCodec = restCodec{}

func newRESTCodec(res vanguard.TypeResolver) vanguard.Codec {
	return restCodec{vanguard.JSONCodec{
		MarshalOptions:   protojson.MarshalOptions{Resolver: res, EmitDefaultValues: true},
		UnmarshalOptions: protojson.UnmarshalOptions{Resolver: res},
	}}
}

// Unmarshal implements vanguard.Codec. What cannot be read is the client's fault.
func (c restCodec) Unmarshal(data []byte, m proto.Message) error {
	if err := c.JSONCodec.Unmarshal(data, m); err != nil {
		return problem.Invalid("body", "%v", err)
	}
	return nil
}

// UnmarshalField implements vanguard.RESTCodec.
func (c restCodec) UnmarshalField(data []byte, m proto.Message, field protoreflect.FieldDescriptor) error {
	if err := c.JSONCodec.UnmarshalField(data, m, field); err != nil {
		return problem.Invalid("body", "%v", err)
	}
	return nil
}

// blaming gives errors that the transcoder makes the form of all others: it knows neither
// Problem nor the request's id, calls what is wrong with a path or a query unknown, which no
// handler's error is, and writes some as plain text.
func blaming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &blamingWriter{ResponseWriter: w, request: r}
		next.ServeHTTP(b, r)
		if b.held != 0 { // there is no body
			w.WriteHeader(b.held)
		}
	})
}

type blamingWriter struct {
	http.ResponseWriter
	request *http.Request
	held    int // the status of an error, and the body will tell
}

// Unwrap lets http.ResponseController reach the connection.
func (w *blamingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *blamingWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.held = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write looks at the first piece of a body, which is all of an error's.
func (w *blamingWriter) Write(p []byte) (int, error) {
	if w.held == 0 {
		return w.ResponseWriter.Write(p)
	}
	status := w.held
	w.held = 0
	if blamed := w.blame(status, p); blamed != nil {
		w.Header().Del("Content-Length")
		blamed.err = signed(blamed.err, requestID(w.request.Context()))
		writeStatus(w.ResponseWriter, blamed.status, blamed.err)
		return len(p), nil
	}
	w.ResponseWriter.WriteHeader(status)
	return w.ResponseWriter.Write(p)
}

// blame is the error in the place of the transcoder's; nil for one of a handler's.
func (w *blamingWriter) blame(status int, body []byte) *refusal {
	if status == http.StatusMethodNotAllowed {
		return &refusal{status, problem.New(connect.CodeUnimplemented, "method_not_allowed", errors.New(w.request.Method+" is not among what can be done with this path"),
			problem.About("path", w.request.URL.Path), problem.Remedy("use one of %s; see /openapi.json", w.Header().Get("Allow")))}
	}
	var answer spb.Status
	if err := protojson.Unmarshal(body, &answer); err != nil {
		return nil
	}
	code := connect.Code(answer.GetCode()) //nolint:gosec // codes are below 17
	if code == connect.CodeUnknown {
		return &refusal{http.StatusBadRequest, problem.Invalid("request", "%s", answer.GetMessage())}
	}
	if len(answer.GetDetails()) == 0 {
		reason := code.String()
		if code == connect.CodeInvalidArgument {
			reason = "invalid_request"
		}
		return &refusal{status, problem.New(code, reason, errors.New(answer.GetMessage()), problem.Remedy("change the request; see /openapi.json"))}
	}
	var p baileyv1.Problem
	if answer.GetDetails()[0].UnmarshalTo(&p) != nil || p.GetRequestId() != "" {
		return nil
	}
	return &refusal{status, problem.Replace(connect.NewError(code, errors.New(answer.GetMessage())), &p)}
}

// Flush implements http.Flusher.
func (w *blamingWriter) Flush() {
	if w.held == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// uncompressed hides from a handler that the client would take a compressed
// answer: files and archives would then be announced as compressed, and are not.
func uncompressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding")
		next.ServeHTTP(w, r)
	})
}
