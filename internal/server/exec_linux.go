package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// command translates a request.
func command(b *box, id string, c *baileyv1.Command) (*keeper.Exec, error) {
	request := &keeper.Exec{Box: b.id, ID: id, Argv: c.GetArgv(), Dir: c.GetCwd(), Timeout: b.within(c.GetTimeout().AsDuration())}
	switch {
	case len(c.GetArgv()) > 0 && c.GetShell() != "":
		return nil, problem.Invalid("command", "it has both argv and shell")
	case c.GetShell() != "":
		request.Argv = []string{b.shell, "-c", c.GetShell()}
	case len(c.GetArgv()) == 0 || c.GetArgv()[0] == "":
		return nil, problem.Invalid("command", "it has neither argv nor shell")
	}
	if c.GetUser() != "" && c.GetUser() != "root" && c.GetUser() != "0" {
		return nil, problem.Unimplemented("user_unsupported", errors.New("a sandbox has one user, whatever its runtime"), problem.About("field", "user"), problem.Remedy("leave user empty"))
	}
	if request.Timeout < 0 {
		return nil, problem.Invalid("timeout", "it is negative")
	}
	if request.Dir != "" && request.Dir[0] != '/' {
		request.Dir = workspaceDir + "/" + request.Dir
	}
	for name, value := range c.GetEnv() {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, problem.Invalid("env", "%q is no name of a variable", name)
		}
		request.Env = append(request.Env, name+"="+value)
	}
	for _, a := range append(slices.Clone(request.Argv), request.Dir) {
		if strings.Contains(a, "\x00") {
			return nil, problem.Invalid("command", "an argument has a NUL byte")
		}
	}
	if t := c.GetTerminal(); t != nil && b.partial {
		return nil, problem.Unimplemented("terminal_unsupported", errors.New("the runtime of this sandbox has no terminals"),
			problem.About("sandbox_id", b.id), problem.Remedy("run the command without a terminal, or use the runtime native, bwrap, runc or crun"))
	} else if t != nil {
		request.Terminal = &native.Terminal{Size: &unix.Winsize{Row: uint16(min(t.GetRows(), 1<<15)), Col: uint16(min(t.GetColumns(), 1<<15))}}
		request.Env = append(request.Env, "TERM=xterm-256color")
	} else if len(c.GetStdin()) > 0 || c.GetOpenStdin() {
		request.Input = keeper.InputPipe
	}
	return request, nil
}

// RunExec implements the API.
func (s *Server) RunExec(ctx context.Context, r *baileyv1.RunExecRequest) (*baileyv1.RunExecResponse, error) {
	e, err := s.begin(ctx, r.GetSandboxId(), r.GetCommand(), true)
	if err != nil {
		return nil, err
	}
	if e.exit == nil {
		stop := context.AfterFunc(ctx, func() { s.kill(e) })
		s.await(e)
		stop()
	} else {
		s.leave(e.box)
	}
	return e.response(), ctx.Err()
}

// kill ends a command and its process group.
func (s *Server) kill(e *execution) {
	if remote, err := s.reach(); err == nil {
		_ = remote.Signal(e.id, unix.SIGKILL) // it may have ended
	}
}

// response is what a command did, of one whose output is in memory.
func (e *execution) response() *baileyv1.RunExecResponse {
	r := &baileyv1.RunExecResponse{ExecId: e.id, Exit: e.exit}
	r.Stdout, r.StdoutTruncated = e.out.taken()
	if e.err != nil {
		r.Stderr, r.StderrTruncated = e.err.taken()
	}
	return r
}

// taken returns all that is in memory. Whatever comes later is dropped.
func (o *output) taken() (data []byte, truncated bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, truncated = o.memory, o.written > o.kept
	o.memory, o.limit = nil, 0
	return data, truncated
}

// StartExec implements the API.
func (s *Server) StartExec(ctx context.Context, r *baileyv1.StartExecRequest) (*baileyv1.Exec, error) {
	if once.Again(ctx) {
		if e, err := s.exec(ctx, r.GetSandboxId(), once.First(ctx, "ex")); err == nil {
			return e.describe(), nil
		}
	}
	e, err := s.begin(ctx, r.GetSandboxId(), r.GetCommand(), false)
	if err != nil {
		return nil, err
	}
	if e.exit != nil {
		s.leave(e.box)
	}
	return e.describe(), nil
}

// describe is a command as clients see it.
func (e *execution) describe() *baileyv1.Exec {
	d := &baileyv1.Exec{Id: e.id, SandboxId: e.box.id, SessionId: e.session, Argv: e.argv, StartTime: timestamppb.New(e.start)}
	for i, o := range e.outputs() {
		kept, written := o.sizes()
		if i == 0 {
			d.StdoutBytes = written
		} else {
			d.StderrBytes = written
		}
		d.OutputTruncated = d.OutputTruncated || written > kept
	}
	if isClosed(e.done) {
		d.EndTime, d.Exit = timestamppb.New(e.end), e.exit
	} else {
		d.Running = true
	}
	return d
}

// exec finds a command of the caller's.
func (s *Server) exec(ctx context.Context, sandboxID, id string) (*execution, error) {
	s.mu.Lock()
	e := s.execs[id]
	s.mu.Unlock()
	if e != nil && e.box.id == sandboxID && caller.From(ctx).Sees(e.box.owner) {
		return e, nil
	}
	if _, err := s.sandbox(ctx, sandboxID); err != nil {
		return nil, err
	}
	return nil, problem.NotFound("exec", id)
}

// GetExec implements the API.
func (s *Server) GetExec(ctx context.Context, r *baileyv1.GetExecRequest) (*baileyv1.Exec, error) {
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	return e.describe(), nil
}

// ListExecs implements the API.
func (s *Server) ListExecs(ctx context.Context, r *baileyv1.ListExecsRequest) (*baileyv1.ListExecsResponse, error) {
	if _, err := s.sandbox(ctx, r.GetSandboxId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var list []*execution
	for _, e := range s.execs {
		if e.box.id == r.GetSandboxId() && !(r.GetRunningOnly() && isClosed(e.done)) {
			list = append(list, e)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *execution) int {
		if c := b.start.Compare(a.start); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	list, next, err := paged(list, func(e *execution) string { return e.id }, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &baileyv1.ListExecsResponse{NextPageToken: next}
	for _, e := range list {
		out.Execs = append(out.Execs, e.describe())
	}
	return out, nil
}

// WaitExec implements the API.
func (s *Server) WaitExec(ctx context.Context, r *baileyv1.WaitExecRequest) (*baileyv1.Exec, error) {
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	var over <-chan time.Time
	if r.GetTimeout() != nil {
		timer := time.NewTimer(r.GetTimeout().AsDuration())
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-e.done:
	case <-over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return e.describe(), nil
}

// AttachExec implements the API.
func (s *Server) AttachExec(ctx context.Context, r *baileyv1.AttachExecRequest, to *connect.ServerStream[baileyv1.ExecOutput]) error {
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return err
	}
	return s.stream(ctx, e, [2]int64{r.GetStdoutOffset(), r.GetStderrOffset()}, to.Send)
}

// StreamExec implements the API.
func (s *Server) StreamExec(ctx context.Context, r *baileyv1.StreamExecRequest, to *connect.ServerStream[baileyv1.ExecOutput]) error {
	e, err := s.begin(ctx, r.GetSandboxId(), r.GetCommand(), false)
	if err != nil {
		return err
	}
	if e.exit != nil {
		s.leave(e.box)
	}
	err = s.stream(ctx, e, [2]int64{}, to.Send)
	if err != nil && !r.GetDetach() {
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if !closing { // the client comes back to the next server
			s.kill(e)
		}
	}
	return err
}

// stream sends a command's output from offsets on, and how it ended.
func (s *Server) stream(ctx context.Context, e *execution, from [2]int64, send func(*baileyv1.ExecOutput) error) error {
	if from[0] < 0 || from[1] < 0 {
		return problem.Invalid("offset", "it is negative")
	}
	if err := send(&baileyv1.ExecOutput{Event: &baileyv1.ExecOutput_Started{Started: &baileyv1.ExecStarted{ExecId: e.id}}}); err != nil {
		return err
	}
	buf := make([]byte, piece)
	for {
		ended := isClosed(e.done) // before looking: what is there at the end is sent
		var more [2]<-chan struct{}
		quiet := true
		for i, o := range e.outputs() {
			n, wait, err := o.after(from[i], buf)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			more[i] = wait
			if n == 0 {
				continue
			}
			quiet = false
			chunk := &baileyv1.OutputChunk{Stream: baileyv1.Stream(i + 1), Offset: from[i], Data: buf[:n]}
			if err := send(&baileyv1.ExecOutput{Event: &baileyv1.ExecOutput_Output{Output: chunk}}); err != nil {
				return err
			}
			from[i] += int64(n)
		}
		switch {
		case !quiet:
		case ended:
			return send(&baileyv1.ExecOutput{Event: &baileyv1.ExecOutput_Exit{Exit: e.exit}})
		default:
			if err := e.change(ctx, more); err != nil {
				return err
			}
		}
	}
}

// change waits until there is something to look at again.
func (e *execution) change(ctx context.Context, more [2]<-chan struct{}) error {
	select {
	case <-more[0]:
	case <-more[1]:
	case <-e.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// ResizeTerminal implements the API.
func (s *Server) ResizeTerminal(ctx context.Context, r *baileyv1.ResizeTerminalRequest) (*baileyv1.ResizeTerminalResponse, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	if !e.terminal {
		return nil, failed("no_terminal", errors.New("the command has no terminal"), problem.Remedy("start it with one"))
	}
	file, _ := e.input.open()
	if file == nil {
		return &baileyv1.ResizeTerminalResponse{}, nil // it has ended
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	size := &unix.Winsize{Row: uint16(min(r.GetSize().GetRows(), 1<<15)), Col: uint16(min(r.GetSize().GetColumns(), 1<<15))}
	cerr := raw.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	return &baileyv1.ResizeTerminalResponse{}, errors.Join(err, cerr)
}

// SignalExec implements the API.
func (s *Server) SignalExec(ctx context.Context, r *baileyv1.SignalExecRequest) (*baileyv1.SignalExecResponse, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	sig := unix.SIGKILL
	if name := r.GetSignal(); name != "" {
		if sig = unix.SignalNum(name); sig == 0 {
			return nil, problem.Invalid("signal", "there is no signal %q; they are called SIGTERM, SIGINT and so on", name)
		}
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	if err := remote.Signal(e.id, sig); err != nil && !errors.Is(err, keeper.ErrMissing) {
		return nil, explain(err)
	}
	return &baileyv1.SignalExecResponse{}, nil
}
