package transport

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// handleBytes adds the methods that take and give files and archives to the REST paths. The
// transcoder would make one message of a body: it would hold all of it in memory, and
// refuse what is longer than a message may be.
func (t *Transport) handleBytes(mux *http.ServeMux, rest http.Handler) {
	file := uploaded[baileyv1.UploadFileRequest, baileyv1.FileInfo](t, baileyv1connect.FileServiceUploadFileProcedure,
		func(b *httpbody.HttpBody) *baileyv1.UploadFileRequest { return &baileyv1.UploadFileRequest{Content: b} })
	archive := uploaded[baileyv1.UploadArchiveRequest, baileyv1.UploadArchiveResponse](t, baileyv1connect.FileServiceUploadArchiveProcedure,
		func(b *httpbody.HttpBody) *baileyv1.UploadArchiveRequest {
			return &baileyv1.UploadArchiveRequest{Archive: b}
		})
	codebase := uploaded[baileyv1.UploadCodebaseRequest, baileyv1.Codebase](t, baileyv1connect.CodebaseServiceUploadCodebaseProcedure,
		func(b *httpbody.HttpBody) *baileyv1.UploadCodebaseRequest {
			return &baileyv1.UploadCodebaseRequest{Archive: b}
		})
	for pattern, h := range map[string]http.HandlerFunc{
		"PUT /v1/sandboxes/{sandbox_id}/files:content":  file,
		"PUT /v1/codebases/{codebase_id}/files:content": file,
		"PUT /v1/sandboxes/{sandbox_id}/files:archive":  archive,
		"POST /v1/codebases/{codebase_id}/archive":      codebase,
	} {
		mux.Handle(pattern, t.authenticated(h))
	}
	content := downloaded[baileyv1.DownloadFileRequest](t, baileyv1connect.FileServiceDownloadFileProcedure, "application/octet-stream")
	for path, h := range map[string]http.HandlerFunc{
		"/v1/sandboxes/{sandbox_id}/files:content":                   content,
		"/v1/codebases/{codebase_id}/files:content":                  content,
		"/v1/sandboxes/{sandbox_id}/files:archive":                   downloaded[baileyv1.DownloadArchiveRequest](t, baileyv1connect.FileServiceDownloadArchiveProcedure, "application/x-tar"),
		"/v1/codebases/{codebase_id}/archive":                        downloaded[baileyv1.DownloadCodebaseRequest](t, baileyv1connect.CodebaseServiceDownloadCodebaseProcedure, "application/x-tar"),
		"/v1/sandboxes/{sandbox_id}/snapshots/{snapshot_id}/archive": downloaded[baileyv1.ExportSnapshotRequest](t, baileyv1connect.SandboxServiceExportSnapshotProcedure, "application/x-tar"),
	} {
		mux.Handle("GET "+path, t.authenticated(h))
		mux.Handle("HEAD "+path, t.authenticated(rest)) // which GET would stand for
	}
}

// uploaded returns a handler that calls a method with what the path and the query say, and
// then with the body piece by piece, each in a message that piece makes.
func uploaded[Req, Res any, PReq message[Req], PRes message[Res]](t *Transport, procedure string, piece func(*httpbody.HttpBody) PReq) http.HandlerFunc {
	handler := inside{t.rpc}
	return func(w http.ResponseWriter, r *http.Request) {
		first := piece(nil)
		err := fillFromQuery(first, r.URL.Query())
		if err == nil {
			fillFromPath(first, r)
			err = decompress(r)
		}
		if err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		body := &pieces{from: r.Body, first: first, piece: func(data []byte) proto.Message { return piece(&httpbody.HttpBody{Data: data}) }}
		client := connect.NewClient[Req, Res](bringing{handler, body}, "http://inside"+procedure)
		res, err := client.CallClientStream(r.Context()).CloseAndReceive()
		if err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		answer, err := (protojson.MarshalOptions{EmitDefaultValues: true}).Marshal(PRes(res.Msg))
		if err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // or the client has gone
	}
}

// downloaded returns a handler that calls a method with what the path and the query say, and
// writes the bytes of its answer as they come. Where they break off, so does the connection.
func downloaded[Req any, PReq message[Req]](t *Transport, procedure, kind string) http.HandlerFunc {
	client := connect.NewClient[Req, httpbody.HttpBody](inside{t.rpc}, "http://inside"+procedure)
	return func(w http.ResponseWriter, r *http.Request) {
		request := PReq(new(Req))
		if err := fillFromQuery(request, r.URL.Query()); err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		fillFromPath(request, r)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel() // also where the client has gone, and the method goes on
		stream, err := client.CallServerStream(ctx, connect.NewRequest((*Req)(request)))
		if err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		defer func() { _ = stream.Close() }()
		begun := stream.Receive()
		if err := stream.Err(); err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		for ; begun; begun = stream.Receive() {
			if _, err := w.Write(stream.Msg().GetData()); err != nil {
				return
			}
		}
		if stream.Err() != nil {
			panic(http.ErrAbortHandler) // the status has been sent: nothing else tells the client
		}
	}
}

// decompress has a body read as it was before the client compressed it on the way.
func decompress(r *http.Request) error {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return nil
	case "gzip":
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			return problem.Invalid("body", "%w", err)
		}
		r.Body = plain
		return nil
	default:
		return problem.Invalid("content_encoding", "%q is neither gzip nor identity", encoding)
	}
}

// bringing calls a handler of this process with a body of its own.
type bringing struct {
	inside
	body io.ReadCloser
}

// Do implements connect.HTTPClient.
func (b bringing) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = b.body
	return b.inside.Do(r)
}

// pieceSize is how much of a body is in one message.
const pieceSize = 256 << 10

// pieces is a body as the stream of messages that a handler reads. Nothing of it is read
// before the handler wants it, and an error of the body is one of the stream, so that half
// a file is never taken for a whole one.
type pieces struct {
	from  io.Reader
	first proto.Message // without any of the body
	piece func([]byte) proto.Message
	buf   []byte
	ready []byte // of the stream, and not read yet
	out   []byte // what ready is a part of
}

func (p *pieces) Read(b []byte) (int, error) {
	for len(p.ready) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

func (p *pieces) next() error {
	m := p.first
	if p.first = nil; m == nil {
		if p.buf == nil {
			p.buf = make([]byte, pieceSize)
		}
		n, err := p.from.Read(p.buf)
		if n == 0 && err != nil && !errors.Is(err, io.EOF) {
			err = problem.Invalid("body", "it broke off: %v", err)
		}
		if n == 0 {
			return err
		}
		m = p.piece(p.buf[:n])
	}
	var err error
	if p.out, err = (proto.MarshalOptions{}).MarshalAppend(append(p.out[:0], make([]byte, 5)...), m); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(p.out[1:], uint32(len(p.out)-5)) //nolint:gosec // little more than pieceSize
	p.ready = p.out
	return nil
}

// Close implements io.Closer. The body is the server's to close.
func (p *pieces) Close() error { return nil }
