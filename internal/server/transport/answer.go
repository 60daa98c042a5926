package transport

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// reject answers with an error in the protocol of the request.
func reject(w http.ResponseWriter, r *http.Request, refused *refusal) {
	err := signed(refused.err, requestID(r.Context()))
	if strings.HasPrefix(r.URL.Path, "/bailey.v1.") {
		if writer := connect.NewErrorWriter(); writer.IsSupported(r) {
			_ = writer.Write(w, r, err)
			return
		}
	}
	writeStatus(w, refused.status, err)
}

// writeStatus writes an error as REST has it: a google.rpc.Status in JSON.
func writeStatus(w http.ResponseWriter, status int, err *connect.Error) {
	body, merr := protojson.Marshal(asStatus(err))
	if merr != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":13,"message":"the error could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func asStatus(err *connect.Error) *spb.Status {
	s := &spb.Status{Code: int32(err.Code()), Message: err.Message()} //nolint:gosec // codes are below 17
	for _, d := range err.Details() {
		s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	return s
}

// httpStatus is the status of plain HTTP for an error.
func httpStatus(code connect.Code) int {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return http.StatusBadRequest
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeAlreadyExists, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnimplemented:
		return http.StatusNotImplemented
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case connect.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	case connect.CodeCanceled:
		return 499
	}
	return http.StatusInternalServerError
}

// noSuchPath answers for what is not there.
func (t *Transport) noSuchPath(w http.ResponseWriter, r *http.Request) {
	reject(w, r, &refusal{http.StatusNotFound, problem.New(connect.CodeNotFound, "no_such_path", errNoSuchPath,
		problem.About("path", r.URL.Path), problem.Remedy("see /openapi.json"))})
}
