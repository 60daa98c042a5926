package transport

import (
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// blaming gives errors that the transcoder finds in a path or a query the code
// that they deserve: it calls them unknown, which no handler's error is.
func blaming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&blamingWriter{ResponseWriter: w, request: r}, r)
	})
}

type blamingWriter struct {
	http.ResponseWriter
	request *http.Request
	held    bool // the status is 500, and the body will tell
}

// Unwrap lets http.ResponseController reach the connection.
func (w *blamingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *blamingWriter) WriteHeader(status int) {
	if w.held = status == http.StatusInternalServerError; !w.held {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write looks at the first piece of a body, which is all of an error's.
func (w *blamingWriter) Write(p []byte) (int, error) {
	if !w.held {
		return w.ResponseWriter.Write(p)
	}
	w.held = false
	var status spb.Status
	if err := protojson.Unmarshal(p, &status); err == nil && connect.Code(status.GetCode()) == connect.CodeUnknown { //nolint:gosec // codes are below 17
		writeStatus(w.ResponseWriter, http.StatusBadRequest, signed(problem.Invalid("request", "%s", status.GetMessage()), requestID(w.request.Context())))
		return len(p), nil
	}
	w.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *blamingWriter) Flush() {
	if !w.held {
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
