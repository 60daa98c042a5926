package transport

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/coder/websocket"
	"google.golang.org/protobuf/encoding/protojson"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// terminalProtocol is the WebSocket subprotocol of terminals. Binary messages are
// what is typed and what is shown; text messages are JSON: from the client
// terminalControl, from the server an ExecOutput without output.
const terminalProtocol = "bailey.terminal.v1"

// inputPiece bounds one message of a client.
const inputPiece = 64 << 10

// terminalControl is what a client says beside what it types.
type terminalControl struct {
	Resize *struct {
		Rows    uint32 `json:"rows"`
		Columns uint32 `json:"columns"`
	} `json:"resize,omitempty"`
	Signal string `json:"signal,omitempty"`
	EOF    bool   `json:"eof,omitempty"`
}

// terminal serves a terminal of a command over a WebSocket: of one that is
// running if the query has its exec_id, and otherwise of one that it starts.
func (t *Transport) terminal(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		reject(w, r, &refusal{http.StatusUpgradeRequired, problem.New(connect.CodeInvalidArgument, "not_a_websocket",
			errors.New("terminals are spoken to over WebSocket"), problem.Remedy("connect with the subprotocol %s", terminalProtocol))})
		return
	}
	execs := baileyv1connect.NewExecServiceClient(inside{t.rpc}, "http://inside")
	exec, err := terminalExec(r, execs)
	if err != nil {
		reject(w, r, refusalOf(err))
		return
	}
	// The guard has looked at the origin already.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{terminalProtocol}, InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	conn.SetReadLimit(inputPiece)
	ctx, cancel := t.drain.attach(context.WithoutCancel(r.Context()))
	defer cancel()
	s := &terminalSession{conn: conn, execs: execs, exec: exec}
	go func() {
		defer cancel()
		s.input(ctx)
	}()
	s.output(ctx, queryOffset(r))
}

// terminalExec finds or starts the command. Query parameters: exec_id; or arg,
// any number of times, or shell, and cwd, rows and columns.
func terminalExec(r *http.Request, execs baileyv1connect.ExecServiceClient) (*baileyv1.Exec, error) {
	q := r.URL.Query()
	sandbox := r.PathValue("sandbox_id")
	if id := q.Get("exec_id"); id != "" {
		return execs.GetExec(r.Context(), &baileyv1.GetExecRequest{SandboxId: sandbox, ExecId: id})
	}
	rows, columns := querySize(q.Get("rows"), 24), querySize(q.Get("columns"), 80)
	command := &baileyv1.Command{
		Argv: q["arg"], Shell: q.Get("shell"), Cwd: q.Get("cwd"), OpenStdin: true,
		Terminal: &baileyv1.TerminalSize{Rows: rows, Columns: columns},
	}
	if len(command.Argv) == 0 && command.Shell == "" {
		command.Shell = "exec bash -l 2>/dev/null || exec sh -l"
	}
	return execs.StartExec(r.Context(), &baileyv1.StartExecRequest{SandboxId: sandbox, Command: command})
}

func querySize(text string, otherwise uint32) uint32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return otherwise
	}
	return uint32(n)
}

func queryOffset(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

type terminalSession struct {
	conn  *websocket.Conn
	execs baileyv1connect.ExecServiceClient
	exec  *baileyv1.Exec
}

// output sends what the command writes, and closes the connection at its end.
func (s *terminalSession) output(ctx context.Context, offset int64) {
	stream, err := s.execs.AttachExec(ctx, &baileyv1.AttachExecRequest{SandboxId: s.exec.GetSandboxId(), ExecId: s.exec.GetId(), StdoutOffset: offset})
	if err != nil {
		s.close(err)
		return
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if err := s.send(ctx, stream.Msg()); err != nil {
			s.close(err)
			return
		}
	}
	s.close(stream.Err())
}

func (s *terminalSession) send(ctx context.Context, m *baileyv1.ExecOutput) error {
	if chunk := m.GetOutput(); chunk != nil {
		return s.conn.Write(ctx, websocket.MessageBinary, chunk.GetData())
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// close says how the session ended. A client may come back to a command that
// goes on, with exec_id and offset, after codes 1001 and 1013.
func (s *terminalSession) close(err error) {
	code, reason := websocket.StatusNormalClosure, ""
	switch {
	case err == nil:
	case connect.CodeOf(err) == connect.CodeUnavailable:
		code, reason = websocket.StatusTryAgainLater, "attach again"
	case connect.CodeOf(err) == connect.CodeCanceled, errors.Is(err, context.Canceled):
		code, reason = websocket.StatusGoingAway, "attach again"
	default:
		code, reason = websocket.StatusInternalError, truncated(err.Error())
	}
	_ = s.conn.Close(code, reason)
}

// truncated bounds a text to what a closing message can carry.
func truncated(text string) string { return strings.ToValidUTF8(text[:min(len(text), 120)], "") }

// input passes on what the client types, until it leaves.
func (s *terminalSession) input(ctx context.Context) {
	for {
		kind, data, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			_, err = s.execs.WriteStdin(ctx, &baileyv1.WriteStdinRequest{SandboxId: s.exec.GetSandboxId(), ExecId: s.exec.GetId(), Offset: -1, Data: data})
		} else {
			err = s.control(ctx, data)
		}
		if err != nil && !slices.Contains([]connect.Code{connect.CodeFailedPrecondition, connect.CodeNotFound}, connect.CodeOf(err)) {
			s.close(err)
			return
		}
	}
}

func (s *terminalSession) control(ctx context.Context, data []byte) error {
	var c terminalControl
	if err := json.Unmarshal(data, &c); err != nil {
		return problem.Invalid("message", "%v", err)
	}
	if c.Resize != nil {
		_, err := s.execs.ResizeTerminal(ctx, &baileyv1.ResizeTerminalRequest{
			SandboxId: s.exec.GetSandboxId(), ExecId: s.exec.GetId(),
			Size: &baileyv1.TerminalSize{Rows: c.Resize.Rows, Columns: c.Resize.Columns},
		})
		if err != nil {
			return err
		}
	}
	if c.Signal != "" {
		_, err := s.execs.SignalExec(ctx, &baileyv1.SignalExecRequest{SandboxId: s.exec.GetSandboxId(), ExecId: s.exec.GetId(), Signal: c.Signal})
		if err != nil {
			return err
		}
	}
	if c.EOF {
		_, err := s.execs.WriteStdin(ctx, &baileyv1.WriteStdinRequest{SandboxId: s.exec.GetSandboxId(), ExecId: s.exec.GetId(), Offset: -1, Close: true})
		return err
	}
	return nil
}
