package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
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
	span  trace.Span // of its time, nil if another server began it

	input input
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
	request, err := command(b, madeID(ctx, "ex"), c)
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
	keeping := e.traceStart(ctx, request)
	streams, err := s.launch(e, request)
	keeping.End()
	if err != nil {
		e.traceEnd(err)
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
	begin := time.Now()
	_, streams, err := remote.Exec(*request)
	s.figures.started.Observe(time.Since(begin).Seconds())
	var exec *native.ExecError
	if errors.As(err, &exec) {
		s.fail(e, exec)
		return streams, nil
	}
	if err != nil {
		return streams, explain(err)
	}
	s.emit(e.box.id, happening{Event: event.Event{Kind: event.Exec, Op: event.OpExec, Argv: e.argv}})
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
	e.traceEnd(nil)
	close(e.done)
	s.emit(e.box.id, ending(e))
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

// await waits for a command's end and takes what it wrote. What processes that it
// left in the background write later is taken too, while it is remembered.
func (s *Server) await(e *execution) {
	x := <-e.told
	for _, o := range e.outputs() {
		o.drain()
	}
	e.end, e.exit = x.Ended.Time(), exitOf(&x)
	e.exit.Rusage = e.rusage(&x.Spent)
	e.box.highest(x.Spent.Memory)
	e.input.close()
	e.traceEnd(nil)
	close(e.done)
	s.emit(e.box.id, ending(e))
	s.leave(e.box)
	s.retire(e)
}

// rusage is what a command that has ended used.
func (e *execution) rusage(u *keeper.Spent) *baileyv1.Rusage {
	return &baileyv1.Rusage{
		WallTime: durationpb.New(max(e.end.Sub(e.start), 0)), UserTime: durationpb.New(u.User), SystemTime: durationpb.New(u.System),
		MaxRssBytes: u.Memory, ReadBytes: u.Read, WrittenBytes: u.Written,
	}
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
