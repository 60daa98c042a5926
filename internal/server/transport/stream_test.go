package transport

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/coder/websocket"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

func jsonLog(to interface{ Write([]byte) (int, error) }) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, nil))
}

// execs has one command, which writes what it reads, and ends at "exit".
type execs struct {
	baileyv1connect.UnimplementedExecServiceHandler
	typed   chan []byte
	resized chan *baileyv1.TerminalSize
}

func (e *execs) StartExec(_ context.Context, r *baileyv1.StartExecRequest) (*baileyv1.Exec, error) {
	return &baileyv1.Exec{Id: "ex-1", SandboxId: r.GetSandboxId(), Running: true}, nil
}

func (e *execs) GetExec(_ context.Context, r *baileyv1.GetExecRequest) (*baileyv1.Exec, error) {
	return nil, problem.NotFound("exec", r.GetExecId())
}

func (e *execs) WriteStdin(_ context.Context, r *baileyv1.WriteStdinRequest) (*baileyv1.WriteStdinResponse, error) {
	e.typed <- r.GetData()
	return &baileyv1.WriteStdinResponse{}, nil
}

func (e *execs) ResizeTerminal(_ context.Context, r *baileyv1.ResizeTerminalRequest) (*baileyv1.ResizeTerminalResponse, error) {
	e.resized <- r.GetSize()
	return &baileyv1.ResizeTerminalResponse{}, nil
}

func (e *execs) AttachExec(ctx context.Context, _ *baileyv1.AttachExecRequest, to *connect.ServerStream[baileyv1.ExecOutput]) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case data := <-e.typed:
			if string(data) == "exit" {
				return to.Send(&baileyv1.ExecOutput{Event: &baileyv1.ExecOutput_Exit{Exit: &baileyv1.Exit{Code: 3}}})
			}
			chunk := &baileyv1.OutputChunk{Stream: baileyv1.Stream_STREAM_STDOUT, Data: data}
			if err := to.Send(&baileyv1.ExecOutput{Event: &baileyv1.ExecOutput_Output{Output: chunk}}); err != nil {
				return err
			}
		}
	}
}

func TestStreamsAreLinesOrEvents(t *testing.T) {
	f := start(t)
	const path = "/v1/sandboxes/sb-1/events?kinds=deny&kinds=exec"
	res, body := f.do(t, "GET", path, "", f.as("ann"))
	want := `{"cursor":"0","kind":"deny,exec","sandboxId":"sb-1"}` + "\n" + `{"cursor":"1","kind":"deny,exec","sandboxId":"sb-1"}` + "\n"
	if got := compact(body); res.Header.Get("Content-Type") != "application/x-ndjson" || got != want {
		t.Errorf("lines of %s:\n%s\nwant:\n%s", res.Header.Get("Content-Type"), got, want)
	}
	res, body = f.do(t, "GET", path, "", f.as("ann", "Accept", "text/event-stream"))
	if res.Header.Get("Content-Type") != "text/event-stream" || strings.Count(body, "event: message\ndata: {") != 2 || !strings.HasSuffix(body, "}\n\n") {
		t.Errorf("events of %s:\n%s", res.Header.Get("Content-Type"), body)
	}
	_, body = f.do(t, "GET", path+"&after=fail", "", f.as("ann"))
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if last := lines[len(lines)-1]; len(lines) != 3 || !strings.HasPrefix(last, `{"error":`) || !strings.Contains(last, `"broken"`) {
		t.Errorf("a stream that breaks: %s", body)
	}
	for path, status := range map[string]int{
		"/v1/sandboxes/sb-1/events?nothing=1":                              400,
		"/v1/sandboxes/sb-1/execs/ex-1/output?stdout_offset=x":             400,
		"/v1/sandboxes/sb-1/sessions/s":                                    501,
		"/v1/sandboxes/sb-1/execs/ex-1/output/and/more/of/what/is/not/one": 404,
	} {
		if res, body := f.do(t, "GET", path, "", f.as("ann")); res.StatusCode != status {
			t.Errorf("%s: %d %s; want %d", path, res.StatusCode, body, status)
		}
	}
	if res, _ := f.do(t, "GET", "/v1/sandboxes/sb-1/events", "", f.as("metrics")); res.StatusCode != http.StatusForbidden {
		t.Errorf("a stream without its scope: %d, want 403", res.StatusCode)
	}
}

// compact removes the spaces that protojson puts in at random.
func compact(s string) string {
	return strings.NewReplacer(`": "`, `":"`, `, "`, `,"`, `", `, `",`).Replace(s)
}

func TestStreamsOfAServerThatShutsDownCanBeTakenUpAgain(t *testing.T) {
	f := start(t)
	client := baileyv1connect.NewSandboxServiceClient(http.DefaultClient, f.url, bearerOption(f.tokens["ann"]))
	stream, err := client.WatchEvents(t.Context(), &baileyv1.WatchEventsRequest{After: "wait"})
	if err != nil {
		t.Fatal(err)
	}
	stream.Receive()
	stream.Receive()
	f.drain.begin()
	if stream.Receive() {
		t.Fatal("the stream goes on")
	}
	if p := problem.Of(stream.Err()); connect.CodeOf(stream.Err()) != connect.CodeUnavailable || p.GetReason() != "server_draining" || !p.GetRetryable() {
		t.Errorf("the stream ended with %v, %v", stream.Err(), p)
	}
	if _, err := client.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("new work: %v", err)
	}
	if res, body := f.do(t, "GET", "/readyz", "", nil); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d %s", res.StatusCode, body)
	}
	if res, body := f.do(t, "GET", "/healthz", "", nil); res.StatusCode != http.StatusOK {
		t.Errorf("healthz: %d %s", res.StatusCode, body)
	}
}

func TestTerminalOverWebSocket(t *testing.T) {
	service := &execs{typed: make(chan []byte, 1), resized: make(chan *baileyv1.TerminalSize, 1)}
	f := start(t, func(c *Config) { c.Services.Execs = service })
	url := strings.Replace(f.url, "http", "ws", 1) + "/v1/sandboxes/sb-1/terminal"
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{terminalProtocol, tokenProtocol + f.tokens["ann"]}})
	if err != nil {
		t.Fatal(err)
	}
	if conn.Subprotocol() != terminalProtocol {
		t.Errorf("subprotocol %q: a token must not come back", conn.Subprotocol())
	}
	write := func(kind websocket.MessageType, text string) {
		t.Helper()
		if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(websocket.MessageText, `{"resize":{"rows":50,"columns":132}}`)
	if size := <-service.resized; size.GetRows() != 50 || size.GetColumns() != 132 {
		t.Errorf("size %v", size)
	}
	write(websocket.MessageBinary, "\x00hi\xff")
	if kind, data, err := conn.Read(t.Context()); err != nil || kind != websocket.MessageBinary || string(data) != "\x00hi\xff" {
		t.Fatalf("shown: %v %q %v", kind, data, err)
	}
	write(websocket.MessageBinary, "exit")
	if kind, data, err := conn.Read(t.Context()); err != nil || kind != websocket.MessageText || compact(string(data)) != `{"exit":{"code":3}}` {
		t.Fatalf("the end: %v %s %v", kind, data, err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}
}

func TestTerminalsAreRefusedLikeEverythingElse(t *testing.T) {
	f := start(t)
	url := strings.Replace(f.url, "http", "ws", 1) + "/v1/sandboxes/sb-1/terminal"
	for name, test := range map[string]struct {
		url    string
		header http.Header
		status int
	}{
		"no token":       {url, nil, 401},
		"foreign origin": {url, http.Header{"Authorization": {"Bearer " + f.tokens["ann"]}, "Origin": {"https://evil.example.com"}}, 403},
		"no scope":       {url, http.Header{"Authorization": {"Bearer " + f.tokens["reader"]}}, 403},
		"no command":     {url + "?exec_id=ex-9", http.Header{"Authorization": {"Bearer " + f.tokens["ann"]}}, 404},
	} {
		conn, res, err := websocket.Dial(t.Context(), test.url, &websocket.DialOptions{HTTPHeader: test.header})
		if err == nil {
			_ = conn.CloseNow()
			t.Errorf("%s: let in", name)
		} else if res == nil || res.StatusCode != test.status {
			t.Errorf("%s: %v, want %d", name, err, test.status)
		}
	}
	if res, body := f.do(t, "GET", "/v1/sandboxes/sb-1/terminal", "", f.as("ann")); res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("without WebSocket: %d %s", res.StatusCode, body)
	}
}

func TestLinesArriveAsTheyAreWritten(t *testing.T) {
	f := start(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/v1/sandboxes/sb-1/events?after=wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.tokens["ann"])
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	// The stream has not ended: a line that were held back would never come.
	lines := bufio.NewScanner(res.Body)
	for range 2 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
}
