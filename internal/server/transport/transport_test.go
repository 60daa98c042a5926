package transport

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/server/token"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// sandboxes is a service that remembers what it was asked.
type sandboxes struct {
	baileyv1connect.UnimplementedSandboxServiceHandler
	created atomic.Int32
	entered chan struct{} // told about each creation, if not nil
	proceed chan struct{} // creation waits for it, if not nil
	fail    atomic.Bool
}

func (s *sandboxes) CreateSandbox(ctx context.Context, r *baileyv1.CreateSandboxRequest) (*baileyv1.Sandbox, error) {
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	if s.proceed != nil {
		<-s.proceed
	}
	if s.fail.Load() {
		return nil, errors.New("password=hunter2")
	}
	owner, err := caller.From(ctx).ActFor(r.GetOwner())
	if err != nil {
		return nil, err
	}
	return &baileyv1.Sandbox{Id: fmt.Sprintf("sb-%d", s.created.Add(1)), Name: r.GetName(), Owner: owner}, nil
}

func (s *sandboxes) StartSandbox(context.Context, *baileyv1.StartSandboxRequest) (*baileyv1.Sandbox, error) {
	panic("a defect")
}

func (s *sandboxes) GetSandbox(_ context.Context, r *baileyv1.GetSandboxRequest) (*baileyv1.Sandbox, error) {
	if r.GetSandboxId() == "panic" {
		panic("a defect")
	}
	return nil, problem.NotFound("sandbox", r.GetSandboxId())
}

func (s *sandboxes) WatchEvents(ctx context.Context, r *baileyv1.WatchEventsRequest, to *connect.ServerStream[baileyv1.Event]) error {
	for i := range 2 {
		if err := to.Send(&baileyv1.Event{Cursor: fmt.Sprint(i), Kind: strings.Join(r.GetKinds(), ","), SandboxId: r.GetSandboxId()}); err != nil {
			return err
		}
	}
	switch r.GetAfter() {
	case "fail":
		return problem.Unavailable("broken", errors.New("broken in the middle"))
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// files keeps one file.
type files struct {
	baileyv1connect.UnimplementedFileServiceHandler
	mu      sync.Mutex
	path    string
	first   *baileyv1.UploadFileRequest
	content []byte
}

func (f *files) UploadFile(_ context.Context, from *connect.ClientStream[baileyv1.UploadFileRequest]) (*baileyv1.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content = nil
	for first := true; from.Receive(); first = false {
		if first {
			f.path, f.first = from.Msg().GetPath(), proto.CloneOf(from.Msg())
		}
		f.content = append(f.content, from.Msg().GetContent().GetData()...)
	}
	return &baileyv1.FileInfo{Path: f.path, SizeBytes: int64(len(f.content))}, from.Err()
}

func (f *files) DownloadFile(_ context.Context, r *baileyv1.DownloadFileRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.GetPath() {
	case "missing":
		return problem.NotFound("file", r.GetPath())
	case "broken":
		return errors.Join(to.Send(&httpbody.HttpBody{Data: []byte("half")}), problem.NotFound("file", r.GetPath()))
	}
	half := len(f.content) / 2
	for _, part := range [][]byte{f.content[:half], f.content[half:]} {
		if err := to.Send(&httpbody.HttpBody{ContentType: "application/octet-stream", Data: part}); err != nil {
			return err
		}
	}
	return nil
}

// fixture is a transport that listens, with tokens.
type fixture struct {
	*Transport
	sandboxes *sandboxes
	files     *files
	url       string // over TCP
	socket    string
	tokens    map[string]string // by name
}

func start(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	db, err := store.Open(ctx, filepath.Join(dir, "server.db"))
	if err != nil {
		t.Fatal(err)
	}
	book := token.In(db)
	f := &fixture{sandboxes: &sandboxes{}, files: &files{}, socket: filepath.Join(dir, "s"), tokens: map[string]string{}}
	for name, scopes := range map[string][]caller.Scope{
		"ann": {caller.Read, caller.Write, caller.Exec}, "bob": {caller.Read, caller.Write, caller.Exec},
		"reader": {caller.Read}, "metrics": {caller.Metrics}, "admin": {caller.Admin},
	} {
		if f.tokens[name], _, err = book.Create(ctx, name, name, scopes, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Services: Services{Sandboxes: f.sandboxes, Files: f.files, Execs: &execs{}}, Tokens: book, Requests: db, Hosts: []string{"bailey.example.com"}, Origins: []string{"https://console.example.com"}}
	for _, f := range change {
		f(&c)
	}
	if f.Transport, err = New(c); err != nil {
		t.Fatal(err)
	}
	f.listen(t, db)
	return f
}

func (f *fixture) listen(t *testing.T, db store.Store) {
	t.Helper()
	tcp, err := Listen("127.0.0.1:0", Exposure{})
	if err != nil {
		t.Fatal(err)
	}
	unix, err := Listen(Address("unix:"+f.socket), Exposure{})
	if err != nil {
		t.Fatal(err)
	}
	f.url = "http://" + tcp.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- f.Serve(ctx, 1<<40, tcp, unix) }()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		_ = db.Close()
	})
}

// do sends a request and returns the answer with its body.
func (f *fixture) do(t *testing.T, method, path, body string, header map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		if key == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(key, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(content)
}

func (f *fixture) as(name string, more ...string) map[string]string {
	header := map[string]string{"Authorization": "Bearer " + f.tokens[name], "Content-Type": "application/json"}
	for i := 0; i+1 < len(more); i += 2 {
		header[more[i]] = more[i+1]
	}
	return header
}

func (f *fixture) overUnix() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", f.socket)
	}}}
}

// reasonOf returns the reason in an error of REST.
func reasonOf(t *testing.T, body string) string {
	t.Helper()
	var status struct {
		Details []struct {
			Reason    string `json:"reason"`
			RequestID string `json:"requestId"`
			Remedy    string `json:"remedy"`
		} `json:"details"`
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil || len(status.Details) != 1 {
		t.Fatalf("no error with a detail: %s", body)
	}
	if status.Details[0].RequestID == "" {
		t.Errorf("no request id in %s", body)
	}
	return status.Details[0].Reason
}

func TestEveryMethodHasAScope(t *testing.T) {
	found := map[string]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage("bailey.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				name := fmt.Sprintf("/%s/%s", service.FullName(), m.Name())
				found[name] = true
				if methods[name].scope == "" {
					t.Errorf("%s has no scope", name)
				}
				if methods[name].replay != nil && (m.IsStreamingClient() || m.IsStreamingServer()) {
					t.Errorf("%s is a stream and cannot be replayed", name)
				}
			}
		}
		return true
	})
	for name := range methods {
		if !found[name] {
			t.Errorf("%s is no method", name)
		}
	}
}

func TestOnlyWhoMayGetsIn(t *testing.T) {
	f := start(t)
	const create, get, read = "POST /v1/sandboxes", "GET /v1/sandboxes", "GET /bailey.v1.SandboxService/ListSandboxes"
	for _, test := range []struct {
		name   string
		target string
		header map[string]string
		status int
		reason string
	}{
		{"no token", get, map[string]string{}, 401, "token_missing"},
		{"no token, Connect", create[:5] + read[4:], map[string]string{"Content-Type": "application/json"}, 401, ""},
		{"unknown token", get, map[string]string{"Authorization": "Bearer bailey_nothing"}, 401, "token_invalid"},
		{"another scheme", get, map[string]string{"Authorization": "Basic YW5uOmFubg=="}, 401, "token_invalid"},
		{"token in the query", get + "?access_token=x", map[string]string{}, 401, "token_missing"},
		{"a token", create, f.as("ann"), 200, ""},
		{"a token without the scope", create, f.as("reader"), 403, "scope_missing"},
		{"a token of another owner", create + " bob", f.as("ann"), 403, "foreign_owner"},
		{"an administrator for another owner", create + " bob", f.as("admin"), 200, ""},
		{"foreign origin", create, f.as("ann", "Origin", "https://evil.example.com"), 403, "foreign_origin"},
		{"origin of a sandboxed frame", create, f.as("ann", "Origin", "null"), 403, "foreign_origin"},
		{"origin with a good beginning", create, f.as("ann", "Origin", "https://console.example.com.evil.com"), 403, "foreign_origin"},
		{"origin of another port", create, f.as("ann", "Origin", "http://127.0.0.1:1"), 403, "foreign_origin"},
		{"own origin", create, f.as("ann", "Origin", f.url), 200, ""},
		{"own origin, but for TLS", create, f.as("ann", "Origin", strings.Replace(f.url, "http", "https", 1)), 403, "foreign_origin"},
		{"an origin of the configuration", create, f.as("ann", "Origin", "https://console.example.com"), 200, ""},
		{"an image in a foreign page", get, f.as("ann", "Sec-Fetch-Site", "cross-site"), 403, "foreign_origin"},
		{"DNS rebinding", create, f.as("ann", "Host", "evil.example.com"), 421, "unknown_host"},
		{"DNS rebinding to a name that looks like an address", create, f.as("ann", "Host", "127.0.0.1.evil.com"), 421, "unknown_host"},
		{"DNS rebinding, without a token", "GET /healthz", map[string]string{"Host": "evil.example.com"}, 421, "unknown_host"},
		{"a name of the configuration", create, f.as("ann", "Host", "Bailey.example.com.:443"), 200, ""},
		{"localhost", create, f.as("ann", "Host", "localhost:80"), 200, ""},
		{"plain text", create, f.as("ann", "Content-Type", "text/plain"), 415, "content_type"},
		{"plain text with a trick", create, f.as("ann", "Content-Type", "text/plain; application/json"), 415, "content_type"},
		{"a form", create, f.as("ann", "Content-Type", "application/x-www-form-urlencoded"), 415, "content_type"},
		{"a form with files", create, f.as("ann", "Content-Type", "multipart/form-data; boundary=x"), 415, "content_type"},
		{"no content type", create, f.as("ann", "Content-Type", ""), 415, "content_type"},
		{"metrics without their scope", "GET /metrics", f.as("ann"), 403, "scope_missing"},
		{"metrics", "GET /metrics", f.as("metrics"), 200, ""},
		{"metrics' token for anything else", get, f.as("metrics"), 403, "scope_missing"},
		{"health needs no token", "GET /healthz", map[string]string{}, 200, ""},
		{"readiness needs no token", "GET /readyz", map[string]string{}, 200, ""},
		{"an unknown parameter", get + "?nothing=1", f.as("ann"), 400, "invalid_request"},
		{"a parameter of another type", get + "?page_size=x", f.as("ann"), 400, "invalid_request"},
		{"a value that there is not", "GET /v1/sandboxes/sb-1/diff?format=patch", f.as("ann"), 400, "invalid_request"},
		{"a method that there is not", "PUT /v1/sandboxes", f.as("ann"), 405, "method_not_allowed"},
		{"a body that is none", "POST /v1/sandboxes/sb-1:start", f.as("ann"), 400, "invalid_body"},
		{"nothing there", "GET /v1/nothing", f.as("ann"), 404, "no_such_path"},
		{"nothing there either", "GET /etc/passwd", map[string]string{}, 404, "no_such_path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fields := strings.Fields(test.target)
			body := ""
			if fields[0] == "POST" {
				body = `{"name":"x"}`
			}
			if len(fields) == 3 {
				body = fmt.Sprintf(`{"owner":%q}`, fields[2])
			}
			before := f.sandboxes.created.Load()
			res, answer := f.do(t, fields[0], fields[1], body, test.header)
			if res.StatusCode != test.status {
				t.Fatalf("status %d, want %d: %s", res.StatusCode, test.status, answer)
			}
			if test.reason != "" && reasonOf(t, answer) != test.reason {
				t.Errorf("answer %s, want the reason %s", answer, test.reason)
			}
			if made := f.sandboxes.created.Load() - before; made > 0 && test.status != 200 {
				t.Errorf("the refused request made %d sandboxes", made)
			}
		})
	}
}

func TestEveryProtocolReachesTheSameHandler(t *testing.T) {
	f := start(t)
	h2c := &http.Client{Transport: &http.Transport{Protocols: h2cOnly()}}
	t.Cleanup(h2c.CloseIdleConnections)
	for name, client := range map[string]baileyv1connect.SandboxServiceClient{
		"connect":      baileyv1connect.NewSandboxServiceClient(http.DefaultClient, f.url, bearerOption(f.tokens["ann"])),
		"connect json": baileyv1connect.NewSandboxServiceClient(http.DefaultClient, f.url, bearerOption(f.tokens["ann"]), connect.WithProtoJSON()),
		"grpc":         baileyv1connect.NewSandboxServiceClient(h2c, f.url, bearerOption(f.tokens["ann"]), connect.WithGRPC()),
		"grpc-web":     baileyv1connect.NewSandboxServiceClient(http.DefaultClient, f.url, bearerOption(f.tokens["ann"]), connect.WithGRPCWeb()),
	} {
		t.Run(name, func(t *testing.T) {
			made, err := client.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{Name: name})
			if err != nil || made.GetName() != name || made.GetOwner() != "ann" {
				t.Fatalf("CreateSandbox = %v, %v", made, err)
			}
			_, err = client.GetSandbox(t.Context(), &baileyv1.GetSandboxRequest{SandboxId: "sb-0"})
			if p := problem.Of(err); connect.CodeOf(err) != connect.CodeNotFound || p.GetReason() != "sandbox_not_found" || p.GetRequestId() == "" {
				t.Errorf("GetSandbox: %v with %v", err, p)
			}
			stream, err := client.WatchEvents(t.Context(), &baileyv1.WatchEventsRequest{SandboxId: "sb-1"})
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for stream.Receive() {
				got++
			}
			if stream.Err() != nil || got != 2 {
				t.Errorf("%d events, %v; want 2", got, stream.Err())
			}
		})
	}
	res, body := f.do(t, "POST", "/v1/sandboxes", `{"name":"rest"}`, f.as("ann"))
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"rest"`) {
		t.Errorf("REST: %d %s", res.StatusCode, body)
	}
	res, body = f.do(t, "POST", "/v1/sandboxes", `{"title":"rest"}`, f.as("ann"))
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown key: %d %s, want 400", res.StatusCode, body)
	}
}

func h2cOnly() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func bearerOption(text string) connect.ClientOption {
	return connect.WithInterceptors(bearerInterceptor(text))
}

type bearerInterceptor string

func (b bearerInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

func (b bearerInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

func (b bearerInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func TestDefectsAreNotShownToClients(t *testing.T) {
	var log bytes.Buffer
	f := start(t, func(c *Config) { c.Log = jsonLog(&log) })
	f.sandboxes.fail.Store(true)
	for _, request := range []string{"POST /v1/sandboxes", "GET /v1/sandboxes/panic"} {
		method, path, _ := strings.Cut(request, " ")
		body := ""
		if method == "POST" {
			body = "{}"
		}
		res, answer := f.do(t, method, path, body, f.as("ann", "X-Request-Id", "trace-me"))
		if res.StatusCode != http.StatusInternalServerError || strings.Contains(answer, "hunter2") || strings.Contains(answer, "defect") || reasonOf(t, answer) != "internal" {
			t.Errorf("%s: %d %s", request, res.StatusCode, answer)
		}
		if res.Header.Get("X-Request-Id") != "trace-me" {
			t.Errorf("request id %q", res.Header.Get("X-Request-Id"))
		}
	}
	for _, want := range []string{"hunter2", "a defect", `"request":"trace-me"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
}

func TestRequestIdIsHarmlessInALog(t *testing.T) {
	for id, kept := range map[string]bool{"abc-1_2.3": true, "a b": false, "a\nb": false, strings.Repeat("x", 65): false, "": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Request-Id", id)
		if got := requestIDOf(r); (got == id) != kept || got == "" {
			t.Errorf("id %q became %q", id, got)
		}
	}
}

func TestFilesPassThroughRESTAsTheyAre(t *testing.T) {
	f := start(t, func(c *Config) { c.Bounds.Message = 1 << 20 })
	content := bytes.Repeat([]byte("\x00\xff\n"), 1<<20) // more than a message
	res, body := f.do(t, "PUT", "/v1/sandboxes/sb-1/files:content?path=a/b", string(content), f.as("ann", "Content-Type", "application/octet-stream"))
	if res.StatusCode != http.StatusOK || f.files.path != "a/b" || !bytes.Equal(f.files.content, content) {
		t.Fatalf("upload: %d %.200s; %q with %d bytes", res.StatusCode, body, f.files.path, len(f.files.content))
	}
	res, body = f.do(t, "GET", "/v1/sandboxes/sb-1/files:content?path=a/b", "", f.as("ann"))
	if res.StatusCode != http.StatusOK || body != string(content) || res.Header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("download: %d, %d bytes of %s", res.StatusCode, len(body), res.Header.Get("Content-Type"))
	}
	// What is not UTF-8 is in base64, of either kind.
	for _, raw := range []string{"_w", "_w==", "/w=="} {
		query := url.Values{"rawPath": {raw}, "mode": {"384"}, "make_parents": {"true"}}
		res, body = f.do(t, "PUT", "/v1/codebases/cb-1/files:content?"+query.Encode(), "", f.as("ann"))
		if got := f.files.first; res.StatusCode != http.StatusOK || got.GetCodebaseId() != "cb-1" || string(got.GetRawPath()) != "\xff" || got.GetMode() != 0o600 || !got.GetMakeParents() {
			t.Errorf("upload with %s: %d %s; %v", query.Encode(), res.StatusCode, body, got)
		}
	}
}

func TestBytesThatBreakOffAreNotTakenForAll(t *testing.T) {
	f := start(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte("content"))
	_ = w.Close()
	for _, test := range []struct {
		body, encoding string
		status         int
		reason         string
	}{
		{packed.String(), "gzip", http.StatusOK, ""},
		{packed.String()[:packed.Len()-5], "gzip", http.StatusBadRequest, "invalid_body"},
		{"content", "gzip", http.StatusBadRequest, "invalid_body"},
		{"content", "br", http.StatusBadRequest, "invalid_content_encoding"},
	} {
		res, body := f.do(t, "PUT", "/v1/sandboxes/sb-1/files:content?path=a", test.body, f.as("ann", "Content-Encoding", test.encoding))
		if res.StatusCode != test.status || test.reason != "" && reasonOf(t, body) != test.reason {
			t.Errorf("%q in %s: %d %s; want %d, %s", test.body, test.encoding, res.StatusCode, body, test.status, test.reason)
		}
		if test.reason == "" && string(f.files.content) != "content" {
			t.Errorf("decompressed: %q", f.files.content)
		}
	}
	if res, body := f.do(t, "GET", "/v1/sandboxes/sb-1/files:content?path=missing", "", f.as("ann")); res.StatusCode != http.StatusNotFound {
		t.Errorf("a download of nothing: %d %s", res.StatusCode, body)
	}
	if res, _ := f.do(t, "HEAD", "/v1/sandboxes/sb-1/files:content?path=a", "", f.as("ann")); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", res.StatusCode)
	}
	_, answer := f.raw(t, "GET /v1/sandboxes/sb-1/files:content?path=broken HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+f.tokens["ann"]+"\r\n\r\n")
	res, err := http.ReadResponse(answer, nil)
	if err == nil {
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a download that breaks: %v", err)
	}
}

func TestPeersOfTheSameUserNeedNoToken(t *testing.T) {
	f := start(t)
	client := baileyv1connect.NewSandboxServiceClient(f.overUnix(), "http://any.name.at.all")
	made, err := client.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{})
	if err != nil || made.GetOwner() != "local" {
		t.Fatalf("CreateSandbox = %v, %v", made, err)
	}
	made, err = client.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{Owner: "ann"})
	if err != nil || made.GetOwner() != "ann" {
		t.Fatalf("for another owner: %v, %v", made, err)
	}
	wrong := baileyv1connect.NewSandboxServiceClient(f.overUnix(), "http://x", bearerOption("bailey_nothing"))
	if _, err := wrong.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("with a token that does not hold: %v", err)
	}
}
