package transport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	rpc "github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
)

// auditor writes a line about every request that changes something, runs
// something or is refused: who, what, on which object, and what became of it.
// Contents and command lines are not in it, because secrets may be.
type auditor struct {
	to     io.Writer // gets whole lines; nil for nobody
	log    *slog.Logger
	failed atomic.Bool
}

// auditEntry is a line.
type auditEntry struct {
	Time     time.Time `json:"time"`
	Request  string    `json:"request"`
	Owner    string    `json:"owner,omitempty"`
	Token    string    `json:"token,omitempty"` // its id; none for the user's own processes
	Remote   string    `json:"remote,omitempty"`
	Method   string    `json:"method"`
	Sandbox  string    `json:"sandbox,omitempty"`
	Codebase string    `json:"codebase,omitempty"`
	Snapshot string    `json:"snapshot,omitempty"`
	Session  string    `json:"session,omitempty"`
	Exec     string    `json:"exec,omitempty"`
	Path     string    `json:"path,omitempty"`
	Made     []string  `json:"made,omitempty"` // ids of what the answer is about
	Outcome  string    `json:"outcome"`        // ok, or the code of the error
}

// unaudited belong to a command whose start is in the log, and come with every
// key that somebody presses.
var unaudited = map[string]bool{rpc.ExecServiceWriteStdinProcedure: true, rpc.ExecServiceResizeTerminalProcedure: true}

var _ connect.Interceptor = (*auditor)(nil)

// WrapUnary implements connect.Interceptor.
func (a *auditor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		var e auditEntry
		e.about(req.Any())
		err = errUnfinished
		defer func() { a.finish(ctx, req.Spec().Procedure, &e, err) }()
		if res, err = next(ctx, req); err == nil {
			e.made(res.Any())
		}
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (a *auditor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (a *auditor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		heard := &listener{StreamingHandlerConn: conn}
		err = errUnfinished
		defer func() { a.finish(ctx, conn.Spec().Procedure, &heard.entry, err) }()
		return next(ctx, heard)
	}
}

// errUnfinished is the error of a request that a panic ended.
var errUnfinished = connect.NewError(connect.CodeInternal, errors.New("it did not finish"))

// listener learns from a stream's first message what it is about.
type listener struct {
	connect.StreamingHandlerConn
	entry auditEntry
	heard bool
}

// Receive implements connect.StreamingHandlerConn.
func (l *listener) Receive(m any) error {
	err := l.StreamingHandlerConn.Receive(m)
	if err == nil && !l.heard {
		l.heard = true
		l.entry.about(m)
	}
	return err
}

// about notes which object a request names.
func (e *auditEntry) about(m any) {
	if m, ok := m.(interface{ GetSandboxId() string }); ok {
		e.Sandbox = noted(m.GetSandboxId())
	}
	if m, ok := m.(interface{ GetCodebaseId() string }); ok {
		e.Codebase = noted(m.GetCodebaseId())
	}
	if m, ok := m.(interface{ GetSnapshotId() string }); ok {
		e.Snapshot = noted(m.GetSnapshotId())
	}
	if m, ok := m.(interface{ GetSessionId() string }); ok {
		e.Session = noted(m.GetSessionId())
	}
	if m, ok := m.(interface{ GetExecId() string }); ok {
		e.Exec = noted(m.GetExecId())
	}
	if m, ok := m.(interface{ GetPath() string }); ok {
		e.Path = noted(m.GetPath())
	}
}

// noted is a text of a request as far as it is written down: no id or path that
// leads anywhere is longer.
func noted(text string) string { return text[:min(len(text), usualText)] }

// made notes the objects of an answer.
func (e *auditEntry) made(m any) {
	switch m := m.(type) {
	case interface{ GetId() string }:
		e.Made = []string{m.GetId()}
	case interface{ GetExecId() string }:
		e.Made = []string{m.GetExecId()}
	case interface{ GetSandboxes() []*baileyv1.Sandbox }:
		for _, sb := range m.GetSandboxes() {
			e.Made = append(e.Made, sb.GetId())
		}
	}
}

// finish writes the line of a method, if it is worth one.
func (a *auditor) finish(ctx context.Context, procedure string, e *auditEntry, err error) {
	e.Outcome = "ok"
	denied := false
	if err != nil {
		code := connect.CodeOf(err)
		if code == connect.CodeUnknown {
			code = connect.CodeInternal // as clients see it
		}
		e.Outcome = code.String()
		denied = code == connect.CodePermissionDenied
	}
	reads := methods[procedure].scope == caller.Read
	if a.to == nil || unaudited[procedure] || reads && !denied {
		return
	}
	e.Method = procedure
	a.write(ctx, e)
}

// refused writes about a request that did not get as far as a method.
func (a *auditor) refused(r *http.Request, rec *record, status int) {
	if a.to == nil || rec.known().procedure != "" || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return
	}
	e := &auditEntry{Method: r.Method + " " + rec.path, Outcome: connect.CodePermissionDenied.String()}
	if status == http.StatusUnauthorized {
		e.Outcome = connect.CodeUnauthenticated.String()
	}
	a.write(context.WithValue(r.Context(), recordKey{}, rec), e)
}

func (a *auditor) write(ctx context.Context, e *auditEntry) {
	e.Time = time.Now().UTC()
	if rec := recordOf(ctx); rec != nil {
		by := rec.known().caller
		e.Request, e.Owner, e.Token, e.Remote = rec.id, by.Owner, by.Token, rec.remote
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = a.to.Write(append(line, '\n'))
	}
	if err != nil && !a.failed.Swap(true) {
		a.log.Error("requests are missing from the audit log", "error", err)
	}
}
