package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// Shell is a line for bash, or for sh where there is no bash.
func Shell(line string) *baileyv1.Command { return &baileyv1.Command{Shell: line} }

// Argv is a program with its arguments; no shell is between.
func Argv(program string, args ...string) *baileyv1.Command {
	return &baileyv1.Command{Argv: append([]string{program}, args...)}
}

// Result is what a command did.
type Result struct {
	*baileyv1.Exit
	ExecID         string
	Stdout, Stderr []byte
	Truncated      bool // more was written than is kept
}

// ExitError is a command that had to succeed and did not.
type ExitError struct{ Result *Result }

func (e *ExitError) Error() string {
	r := e.Result
	switch {
	case r.GetError() != "":
		return "the command could not be started: " + r.GetError()
	case r.GetTimedOut():
		return "the command took too long"
	case r.GetSignal() != "":
		return "the command was ended by " + r.GetSignal()
	}
	return fmt.Sprintf("the command exited with status %d", r.GetCode())
}

// Check returns an ExitError unless the command has succeeded.
func (r *Result) Check() error {
	if r.GetCode() == 0 {
		return nil
	}
	return &ExitError{r}
}

func resultOf(res *baileyv1.RunExecResponse, err error) (*Result, error) {
	if err != nil {
		return nil, err
	}
	return &Result{
		Exit: res.GetExit(), ExecID: res.GetExecId(), Stdout: res.GetStdout(), Stderr: res.GetStderr(),
		Truncated: res.GetStdoutTruncated() || res.GetStderrTruncated(),
	}, nil
}

// Run runs a command and waits for its end. When ctx is done the command is
// ended. That a command fails is no error: see Check.
func (s *Sandbox) Run(ctx context.Context, command *baileyv1.Command) (*Result, error) {
	return resultOf(s.client.Execs.RunExec(ctx, &baileyv1.RunExecRequest{SandboxId: s.ID(), Command: command}))
}

// Process is a command that goes on by itself.
type Process struct {
	sandbox *Sandbox
	id      string
	offset  int64 // of the input
}

// Begin starts a command that goes on by itself.
func (s *Sandbox) Begin(ctx context.Context, command *baileyv1.Command) (*Process, error) {
	e, err := s.client.Execs.StartExec(ctx, &baileyv1.StartExecRequest{SandboxId: s.ID(), Command: command})
	if err != nil {
		return nil, err
	}
	return s.Process(e.GetId()), nil
}

// Process returns a command that was started before, by this program or another.
func (s *Sandbox) Process(id string) *Process { return &Process{sandbox: s, id: id} }

// ID is the command's.
func (p *Process) ID() string { return p.id }

var errStreamEnded = errors.New("sdk: the stream ended before the command did")

// Output returns what the command writes from its beginning on, as it comes, and
// last how it ended. A lost connection is taken up again where it was.
func (p *Process) Output(ctx context.Context) iter.Seq2[*baileyv1.ExecOutput, error] {
	return func(yield func(*baileyv1.ExecOutput, error) bool) {
		offsets := map[baileyv1.Stream]int64{}
		for attempt := 1; ; attempt++ {
			progress, done, err := p.attach(ctx, offsets, yield)
			if done {
				return
			}
			if progress {
				attempt = 1
			}
			if !retryable(err) && !errors.Is(err, errStreamEnded) || attempt >= attempts {
				yield(nil, err)
				return
			}
			if err := pause(ctx, attempt); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// attach reads one stream to its end. It is done when the command has ended or
// nobody wants more.
func (p *Process) attach(ctx context.Context, offsets map[baileyv1.Stream]int64, yield func(*baileyv1.ExecOutput, error) bool) (progress, done bool, err error) {
	stream, err := p.sandbox.client.Execs.AttachExec(ctx, &baileyv1.AttachExecRequest{
		SandboxId: p.sandbox.ID(), ExecId: p.id,
		StdoutOffset: offsets[baileyv1.Stream_STREAM_STDOUT], StderrOffset: offsets[baileyv1.Stream_STREAM_STDERR],
	})
	if err != nil {
		return false, false, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		progress = true
		m := stream.Msg()
		if chunk := m.GetOutput(); chunk != nil {
			offsets[chunk.GetStream()] = chunk.GetOffset() + int64(len(chunk.GetData()))
		}
		if !yield(m, nil) || m.GetExit() != nil {
			return true, true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return progress, false, err
	}
	return progress, false, errStreamEnded
}

// Collect waits for the end, and returns all that the command wrote.
func (p *Process) Collect(ctx context.Context) (*Result, error) {
	r := &Result{ExecID: p.id}
	for m, err := range p.Output(ctx) {
		if err != nil {
			return nil, err
		}
		switch chunk := m.GetOutput(); {
		case m.GetExit() != nil:
			r.Exit = m.GetExit()
		case chunk.GetStream() == baileyv1.Stream_STREAM_STDERR:
			r.Stderr = append(r.Stderr, chunk.GetData()...)
		default:
			r.Stdout = append(r.Stdout, chunk.GetData()...)
		}
	}
	return r, nil
}

// Wait waits for the end of the command, or until the time is over; 0 is for
// ever. Whether the command runs is in the answer.
func (p *Process) Wait(ctx context.Context, limit time.Duration) (*baileyv1.Exec, error) {
	r := &baileyv1.WaitExecRequest{SandboxId: p.sandbox.ID(), ExecId: p.id}
	if limit > 0 {
		r.Timeout = durationpb.New(limit)
	}
	return p.sandbox.client.Execs.WaitExec(ctx, r)
}

// Write writes to the input of a command that was started with OpenStdin.
func (p *Process) Write(ctx context.Context, data []byte) error {
	return p.input(ctx, data, false)
}

// CloseStdin ends the input.
func (p *Process) CloseStdin(ctx context.Context) error { return p.input(ctx, nil, true) }

func (p *Process) input(ctx context.Context, data []byte, end bool) error {
	res, err := p.sandbox.client.Execs.WriteStdin(ctx, &baileyv1.WriteStdinRequest{
		SandboxId: p.sandbox.ID(), ExecId: p.id, Offset: p.offset, Data: data, Close: end,
	})
	if err == nil {
		p.offset = res.GetOffset()
	}
	return err
}

// Signal sends a signal, such as "SIGTERM", to the command and its process group.
func (p *Process) Signal(ctx context.Context, name string) error {
	_, err := p.sandbox.client.Execs.SignalExec(ctx, &baileyv1.SignalExecRequest{SandboxId: p.sandbox.ID(), ExecId: p.id, Signal: name})
	return err
}

// Resize tells a command on a terminal how large that is.
func (p *Process) Resize(ctx context.Context, rows, columns uint32) error {
	_, err := p.sandbox.client.Execs.ResizeTerminal(ctx, &baileyv1.ResizeTerminalRequest{
		SandboxId: p.sandbox.ID(), ExecId: p.id, Size: &baileyv1.TerminalSize{Rows: rows, Columns: columns},
	})
	return err
}

// Stream runs a command and copies what it writes, as it comes. When ctx is done
// the command is ended.
func (s *Sandbox) Stream(ctx context.Context, command *baileyv1.Command, stdout, stderr io.Writer) (*baileyv1.Exit, error) {
	p, err := s.Begin(ctx, command)
	if err != nil {
		return nil, err
	}
	for m, err := range p.Output(ctx) {
		if m.GetExit() != nil {
			return m.GetExit(), nil
		}
		to := stdout
		if m.GetOutput().GetStream() == baileyv1.Stream_STREAM_STDERR {
			to = stderr
		}
		if err == nil && m.GetOutput() != nil {
			_, err = to.Write(m.GetOutput().GetData())
		}
		if err != nil {
			return nil, errors.Join(err, p.Signal(context.WithoutCancel(ctx), "SIGKILL"))
		}
	}
	return nil, errStreamEnded
}

// Execs lists commands that run and, unless those are all that is wanted, such as have
// ended lately.
func (s *Sandbox) Execs(ctx context.Context, runningOnly bool) ([]*baileyv1.Exec, error) {
	r := &baileyv1.ListExecsRequest{SandboxId: s.ID(), RunningOnly: runningOnly}
	return pages(ctx, s.client.Execs.ListExecs, r, &r.PageToken, (*baileyv1.ListExecsResponse).GetExecs)
}

// Sessions lists the sessions of the sandbox.
func (s *Sandbox) Sessions(ctx context.Context) ([]*baileyv1.Session, error) {
	r := &baileyv1.ListSessionsRequest{SandboxId: s.ID()}
	return pages(ctx, s.client.Sessions.ListSessions, r, &r.PageToken, (*baileyv1.ListSessionsResponse).GetSessions)
}

// Session is a shell that keeps its directory and variables between commands.
type Session struct {
	sandbox *Sandbox
	info    *baileyv1.Session
}

// Session starts one. The request says how, and may be nil.
func (s *Sandbox) Session(ctx context.Context, r *baileyv1.CreateSessionRequest) (*Session, error) {
	if r == nil {
		r = &baileyv1.CreateSessionRequest{}
	}
	r.SandboxId = s.ID()
	info, err := s.client.Sessions.CreateSession(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Session{s, info}, nil
}

// ID is the session's.
func (s *Session) ID() string { return s.info.GetId() }

// Run runs a line, or several, and waits for the end.
func (s *Session) Run(ctx context.Context, command string) (*Result, error) {
	return resultOf(s.sandbox.client.Sessions.RunSession(ctx, &baileyv1.RunSessionRequest{SandboxId: s.sandbox.ID(), SessionId: s.ID(), Command: command}))
}

// Stream runs a line, or several, and copies what it writes, as it comes.
func (s *Session) Stream(ctx context.Context, command string, stdout, stderr io.Writer) (*baileyv1.Exit, error) {
	stream, err := s.sandbox.client.Sessions.StreamSession(ctx, &baileyv1.StreamSessionRequest{SandboxId: s.sandbox.ID(), SessionId: s.ID(), Command: command})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		m := stream.Msg()
		if m.GetExit() != nil {
			return m.GetExit(), nil
		}
		to := stdout
		if m.GetOutput().GetStream() == baileyv1.Stream_STREAM_STDERR {
			to = stderr
		}
		if _, err := to.Write(m.GetOutput().GetData()); err != nil {
			return nil, errors.Join(err, s.Interrupt(context.WithoutCancel(ctx)))
		}
	}
	return nil, errors.Join(stream.Err(), errStreamEnded)
}

// Interrupt sends SIGINT to the command that runs.
func (s *Session) Interrupt(ctx context.Context) error {
	_, err := s.sandbox.client.Sessions.InterruptSession(ctx, &baileyv1.InterruptSessionRequest{SandboxId: s.sandbox.ID(), SessionId: s.ID()})
	return err
}

// Close ends the shell and what it left running.
func (s *Session) Close(ctx context.Context) error {
	_, err := s.sandbox.client.Sessions.CloseSession(ctx, &baileyv1.CloseSessionRequest{SandboxId: s.sandbox.ID(), SessionId: s.ID()})
	return err
}
