package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// execution is a command that runs, or is remembered.
type execution struct {
	id, session string
	box         *box
	argv        []string
	out, err    *output // err is nil for one with a terminal
	terminal    bool
	fleeting    bool

	told chan keeper.Execution // its end, once
	done chan struct{}         // closed when exit is valid, and all it wrote is here

	start time.Time
	end   time.Time
	exit  *baileyv1.Exit

	input input
}

// input is what a command reads from.
type input struct {
	turn sync.Mutex // held by who writes, however long that takes

	mu     sync.Mutex
	file   *os.File // nil once it is closed, or if there is none
	offset int64    // of the next byte; -1 if an earlier server wrote
}

// open returns where to write, or nil, and how far the input is.
func (i *input) open() (*os.File, int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.file, i.offset
}

// close closes the input, also under who writes just now, and says whether it was
// open.
func (i *input) close() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == nil {
		return false
	}
	_ = i.file.Close()
	i.file = nil
	return true
}

// write writes all of the data, unless the input is closed or the context ends.
// The turn is the caller's.
func (i *input) write(ctx context.Context, data []byte) (offset int64, err error) {
	file, offset := i.open()
	if file == nil {
		return offset, os.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := file.Write(data)
	if !stop() {
		_ = file.SetWriteDeadline(time.Time{})
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.offset = max(i.offset, 0) + int64(n)
	return i.offset, err
}

func (e *execution) tell(x keeper.Execution) {
	select {
	case e.told <- x:
	default: // it was told before
	}
}

// ended is called by the keeper's reader when a command has ended.
func (s *Server) ended(x keeper.Execution) {
	s.mu.Lock()
	e, shell := s.execs[x.ID], s.sessions[x.ID]
	s.mu.Unlock()
	if e != nil {
		e.tell(x)
	}
	if shell != nil {
		shell.tell(x)
	}
}

// kept is how long, and how many, ended commands are remembered.
const (
	remembered     = 10 * time.Minute
	mostRemembered = 200
)

// begin starts a command.
func (s *Server) begin(ctx context.Context, id string, c *baileyv1.Command, fleeting bool) (*execution, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	b, err := s.running(ctx, id)
	if err != nil {
		return nil, err
	}
	request, err := command(b, c)
	if err != nil {
		return nil, err
	}
	if err := s.enter(b); err != nil {
		return nil, err
	}
	request.Fleeting = fleeting
	e := s.newExecution(b, request, c.GetOutputLimitBytes())
	if err := s.register(e, s.config.Quota.Execs); err != nil {
		s.leave(b)
		return nil, err
	}
	streams, err := s.launch(e, request)
	if err != nil {
		s.forget(e)
		s.leave(b)
		return nil, err
	}
	if e.exit == nil {
		e.connect(streams)
		s.feed(e, c)
	}
	return e, nil
}

// newExecution prepares for a command.
func (s *Server) newExecution(b *box, request *keeper.Exec, limit int64) *execution {
	if limit <= 0 || limit > b.output {
		limit = b.output
	}
	e := &execution{
		id: request.ID, box: b, argv: request.Argv, terminal: request.Terminal != nil, fleeting: request.Fleeting,
		told: make(chan keeper.Execution, 1), done: make(chan struct{}), start: time.Now(),
	}
	path := ""
	if !e.fleeting {
		path = s.spool() + "/" + e.id
	}
	e.out = newOutput(suffixed(path, ".out"), limit)
	if !e.terminal {
		e.err = newOutput(suffixed(path, ".err"), limit)
	}
	return e
}

// register makes a command known before it runs: its end may be told before its
// start is. Its owner may run so many at once, if most is not 0.
func (s *Server) register(e *execution, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most > 0 {
		if n := s.runningExecs(e.box.owner); n >= most {
			return exhausted("execs", fmt.Errorf("%s runs %d commands, and may run %d at once", e.box.owner, n, most), "wait for one to end")
		}
	}
	s.execs[e.id] = e
	return nil
}

// runningExecs counts the commands of an owner. The server's mutex is held.
func (s *Server) runningExecs(owner string) (n int) {
	for _, e := range s.execs {
		if e.box.owner == owner && !isClosed(e.done) {
			n++
		}
	}
	return n
}

func suffixed(path, suffix string) string {
	if path == "" {
		return ""
	}
	return path + suffix
}

// launch has the keeper start a command. One whose program cannot be executed
// has ended.
func (s *Server) launch(e *execution, request *keeper.Exec) (keeper.Streams, error) {
	remote, err := s.reach()
	if err != nil {
		return keeper.Streams{}, err
	}
	_, streams, err := remote.Exec(*request)
	var exec *native.ExecError
	if errors.As(err, &exec) {
		s.fail(e, exec)
		return streams, nil
	}
	if err != nil {
		return streams, explain(err)
	}
	return streams, nil
}

// fail ends a command that never ran, as a shell would.
func (s *Server) fail(e *execution, err *native.ExecError) {
	e.end = time.Now()
	e.exit = &baileyv1.Exit{Code: 126, Error: err.Error()}
	if err.Errno == unix.ENOENT {
		e.exit.Code = 127
	}
	for _, o := range e.outputs() {
		o.finish()
	}
	close(e.done)
	s.retire(e)
}

func (e *execution) outputs() []*output {
	if e.err == nil {
		return []*output{e.out}
	}
	return []*output{e.out, e.err}
}

// connect takes over a command's streams.
func (e *execution) connect(streams keeper.Streams) {
	if streams.Input != nil {
		e.input.file = unblocked(streams.Input)
	}
	output := unblocked(streams.Output)
	if e.terminal {
		e.input.file = duplicate(output)
	}
	e.out.follow(output, e.terminal)
	if e.err != nil {
		e.err.follow(unblocked(streams.Errors), false)
	}
}

// unblocked is a descriptor on which nobody waits in a thread of its own. The
// file it was is closed.
func unblocked(f *os.File) *os.File {
	defer f.Close()
	return duplicate(f)
}

func duplicate(f *os.File) *os.File {
	raw, err := f.SyscallConn()
	fd := -1
	if err == nil {
		_ = raw.Control(func(old uintptr) {
			if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				err = unix.SetNonblock(fd, true)
			}
		})
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// feed writes the input that came with the request, and waits for the end.
func (s *Server) feed(e *execution, c *baileyv1.Command) {
	if len(c.GetStdin()) > 0 || !c.GetOpenStdin() && e.input.file != nil && !e.terminal {
		e.input.turn.Lock() // what is written later comes after it
		go func() {
			_, _ = e.input.write(context.Background(), c.GetStdin()) // a command need not read
			e.input.turn.Unlock()
			if !c.GetOpenStdin() && !e.terminal {
				s.closeInput(e)
			}
		}()
	}
	if !e.fleeting {
		go s.await(e)
	}
}

// closeInput ends what a command reads.
func (s *Server) closeInput(e *execution) {
	if e.terminal || !e.input.close() || e.fleeting {
		return
	}
	if remote, err := s.reach(); err == nil {
		_ = remote.FinishInput(e.id) // it may have ended
	}
}

// await waits for a command's end and takes what it wrote. What processes that it
// left in the background write later is taken too, while it is remembered.
func (s *Server) await(e *execution) {
	x := <-e.told
	for _, o := range e.outputs() {
		o.drain()
	}
	e.end, e.exit = x.Ended.Time(), exitOf(&x)
	e.exit.Rusage = &baileyv1.Rusage{WallTime: durationpb.New(max(e.end.Sub(e.start), 0))}
	e.input.close()
	close(e.done)
	s.leave(e.box)
	s.retire(e)
}

// letGo leaves a command's streams to the next server.
func (e *execution) letGo() {
	e.input.close()
	if e.session == "" {
		for _, o := range e.outputs() {
			o.finish()
		}
	}
}

// retire remembers a command for a while.
func (s *Server) retire(e *execution) {
	if e.fleeting {
		s.forget(e)
		return
	}
	time.AfterFunc(remembered, func() { s.forget(e) })
	s.mu.Lock()
	var ended []*execution
	for _, other := range s.execs {
		if other.box == e.box && isClosed(other.done) {
			ended = append(ended, other)
		}
	}
	s.mu.Unlock()
	if len(ended) <= mostRemembered {
		return
	}
	slices.SortFunc(ended, func(a, b *execution) int { return a.end.Compare(b.end) })
	for _, old := range ended[:len(ended)-mostRemembered] {
		s.forget(old)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// forget removes what is left of a command.
func (s *Server) forget(e *execution) {
	s.mu.Lock()
	_, known := s.execs[e.id]
	delete(s.execs, e.id)
	remote := s.remote
	s.mu.Unlock()
	if !known || e.fleeting {
		return
	}
	for _, o := range e.outputs() {
		o.remove()
	}
	if remote != nil {
		_ = remote.Forget(e.id) // what is gone is forgotten
	}
}

// forgetAll forgets the commands of a sandbox.
func (s *Server) forgetAll(id string) {
	s.mu.Lock()
	var list []*execution
	for _, e := range s.execs {
		if e.box.id == id {
			list = append(list, e)
		}
	}
	s.mu.Unlock()
	for _, e := range list {
		<-e.done
		s.forget(e)
	}
}

// exitOf is how a command ended, as clients see it.
func exitOf(x *keeper.Execution) *baileyv1.Exit {
	st := unix.WaitStatus(x.Wait)
	e := &baileyv1.Exit{Code: int32(st.ExitStatus()), TimedOut: x.TimedOut, OutOfMemory: x.Starved}
	if st.Signaled() {
		e.Code = 128 + int32(st.Signal())
		e.Signal = unix.SignalName(st.Signal())
	}
	if x.Killed {
		e.Error = "the sandbox was ended"
	}
	return e
}

// command translates a request.
func command(b *box, c *baileyv1.Command) (*keeper.Exec, error) {
	request := &keeper.Exec{Box: b.id, ID: newID("ex"), Argv: c.GetArgv(), Dir: c.GetCwd(), Timeout: c.GetTimeout().AsDuration()}
	switch {
	case len(c.GetArgv()) > 0 && c.GetShell() != "":
		return nil, problem.Invalid("command", "it has both argv and shell")
	case c.GetShell() != "":
		request.Argv = []string{shell(), "-c", c.GetShell()}
	case len(c.GetArgv()) == 0 || c.GetArgv()[0] == "":
		return nil, problem.Invalid("command", "it has neither argv nor shell")
	}
	if c.GetUser() != "" && c.GetUser() != "root" && c.GetUser() != "0" {
		return nil, problem.Unimplemented("user_unsupported", errors.New("the native runtime has one user"), problem.Remedy("leave user empty"))
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
	if t := c.GetTerminal(); t != nil {
		request.Terminal = &native.Terminal{Size: &unix.Winsize{Row: uint16(min(t.GetRows(), 1<<15)), Col: uint16(min(t.GetColumns(), 1<<15))}}
		request.Env = append(request.Env, "TERM=xterm-256color")
	} else if len(c.GetStdin()) > 0 || c.GetOpenStdin() {
		request.Input = keeper.InputPipe
	}
	return request, nil
}

// shell is the one that lines are given to.
var shell = sync.OnceValue(func() string {
	for _, p := range []string{"/bin/bash", "/usr/bin/bash"} {
		if unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return "/bin/sh"
})

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

// WriteStdin implements the API.
func (s *Server) WriteStdin(ctx context.Context, r *baileyv1.WriteStdinRequest) (*baileyv1.WriteStdinResponse, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	e.input.turn.Lock()
	defer e.input.turn.Unlock()
	data, at, err := e.input.fresh(r)
	if err == nil && len(data) > 0 {
		at, err = e.input.write(ctx, data)
		if err != nil {
			err = failed("input_closed", errors.New("the command does not read any more"), problem.About("offset", strconv.FormatInt(at, 10)))
		}
	}
	if err != nil {
		return nil, err
	}
	if r.GetClose() {
		s.closeInput(e)
	}
	return &baileyv1.WriteStdinResponse{Offset: at}, nil
}

// fresh is what of a request was not written before.
func (i *input) fresh(r *baileyv1.WriteStdinRequest) (data []byte, at int64, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == nil {
		return nil, 0, failed("input_closed", errors.New("the command's input is closed"), problem.Remedy("start the command with open_stdin"))
	}
	if i.offset < 0 {
		i.offset = max(r.GetOffset(), 0)
	}
	at = i.offset
	skip := at - r.GetOffset()
	switch {
	case r.GetOffset() == -1:
		skip = 0
	case skip < 0:
		return nil, at, problem.New(connect.CodeOutOfRange, "gap", errors.New("bytes before the offset are missing"), problem.Remedy("send from offset %d on", at))
	case skip > int64(len(r.GetData())):
		skip = int64(len(r.GetData()))
	}
	return r.GetData()[skip:], at, nil
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

// adoptExecs goes on with commands that an earlier server started, and returns
// the names of their files. Those whose client waited for all of it in one
// request have no client any more.
func (s *Server) adoptExecs(list []keeper.Execution) map[string]bool {
	files := make(map[string]bool)
	for i := range list {
		x := &list[i]
		s.mu.Lock()
		b := s.boxes[x.Box]
		s.mu.Unlock()
		if b == nil || x.Fleeting {
			s.abandon(x)
			continue
		}
		files[x.ID+".out"], files[x.ID+".err"] = true, true
		if err := s.adoptExec(b, x); err != nil {
			s.log.Warn("a command is lost", "exec", x.ID, "error", err)
		}
	}
	return files
}

// abandon ends a command that nobody waits for any more, and waits for its end:
// nothing may happen later that nobody expects.
func (s *Server) abandon(x *keeper.Execution) {
	e := &execution{id: x.ID, box: &box{id: x.Box}, fleeting: true, told: make(chan keeper.Execution, 1)}
	s.mu.Lock()
	s.execs[e.id] = e
	s.mu.Unlock()
	// A command that the keeper still knows has its end still to be told.
	if s.remote.Signal(e.id, unix.SIGKILL) == nil && x.Fleeting {
		select {
		case <-e.told:
		case <-s.remote.Done():
		}
	}
	s.mu.Lock()
	delete(s.execs, e.id)
	s.mu.Unlock()
	_ = s.remote.Forget(e.id) // what is gone is forgotten
}

func (s *Server) adoptExec(b *box, x *keeper.Execution) error {
	if isSession(x) {
		return s.adoptSession(b, x)
	}
	request := &keeper.Exec{ID: x.ID, Argv: x.Argv}
	if x.Terminal {
		request.Terminal = &native.Terminal{}
	}
	e := s.newExecution(b, request, 0)
	if err := s.register(e, 0); err != nil {
		return err
	}
	e.start, e.input.offset = x.Started.Time(), -1
	for _, o := range e.outputs() {
		if err := o.resume(); err != nil {
			return err
		}
	}
	now, streams, err := s.remote.Attach(x.ID)
	if err != nil {
		return err
	}
	b.count()
	e.connect(streams)
	if now.Ended != 0 {
		e.tell(now)
	}
	go s.await(e)
	return nil
}

// count counts a command that runs already, also in a sandbox that is paused.
func (b *box) count() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy++
}

// sweepSpool removes the output of commands that are not known.
func (s *Server) sweepSpool(known map[string]bool) error {
	entries, err := os.ReadDir(s.spool())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			err = errors.Join(err, os.Remove(s.spool()+"/"+entry.Name()))
		}
	}
	return err
}
