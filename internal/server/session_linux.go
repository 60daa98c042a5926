package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// driver is what the shell of a session runs. Its input is a socket, over which
// commands come, each with a number, its count of lines and, if it has one, the
// file that is its input, and over which their statuses go, each with the
// processor time that the shell and its children have used so far; commands
// themselves have neither end of it. So whatever they write, and in whatever way
// they end, is told apart from that.
const driver = `exec 9<&0 </dev/null
trap __bailey_i=1 INT
while :; do
  __bailey_i=
  # Of an interrupt some shells say what they say of the end.
  IFS=' ' read -r __bailey_n __bailey_k __bailey_f <&9 || { [ "$__bailey_i" ] && continue; exit 0; }
  __bailey_c=
  while [ "$__bailey_k" -gt 0 ]; do
    IFS= read -r __bailey_l <&9 || exit 0
    __bailey_c=$__bailey_c$__bailey_l'
'
    __bailey_k=$((__bailey_k - 1))
  done
  if [ "$__bailey_f" ]; then
    { eval "$__bailey_c" 9>&-; } <"$__bailey_f"
  else
    eval "$__bailey_c" 9>&-
  fi
  { command printf '%s %s ' "$__bailey_n" "$?"; command times; } >&9
done`

// session is a shell that stays.
type session struct {
	id, shell string
	box       *box
	start     time.Time
	pid       int // of the shell, as the host numbers it, or 0 if that is not known
	control   *os.File
	out, err  *channel
	turn      chan struct{} // holds a token while a command runs
	statuses  chan status   // closed at the shell's end
	spent     *keeper.Spent // when its last command had ended, nil if not known; whose turn it is has it

	told chan keeper.Execution // its end, once
	over chan struct{}         // closed when exit is valid
	exit *baileyv1.Exit
}

// status is what the shell says of a command, and of itself and its children.
type status struct {
	number, code int64
	spent        keeper.Spent
}

// channel is one of a session's outputs. What is written while no command runs is
// taken, and dropped.
type channel struct {
	file *os.File

	mu     sync.Mutex
	target *output
}

func newChannel(file *os.File) *channel {
	c := &channel{file: file, target: newOutput("", 0)}
	go c.pump()
	return c
}

func (c *channel) pump() {
	if raw, err := c.file.SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			for {
				more, end := c.take(int(fd))
				if end || !more {
					return end
				}
			}
		})
	}
	_ = c.file.Close()
}

func (c *channel) take(fd int) (more, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.target.take(fd)
}

// turnTo takes what is there for the old target, and the rest for another.
func (c *channel) turnTo(next *output) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if raw, err := c.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // an error means that it is closed: all was taken
			for {
				if more, end := c.target.take(int(fd)); end || !more {
					return
				}
			}
		})
	}
	c.target.finish()
	c.target = next
}

func (n *session) tell(x keeper.Execution) {
	select {
	case n.told <- x:
	default: // it was told before
	}
}

// sessionTag marks a command of the keeper's as a session.
const sessionTag = "session "

func isSession(x *keeper.Execution) bool { return strings.HasPrefix(string(x.Tag), sessionTag) }

// CreateSession implements the API.
func (s *Server) CreateSession(ctx context.Context, r *baileyv1.CreateSessionRequest) (*baileyv1.Session, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	b, err := s.running(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	program := b.shell
	switch r.GetShell() {
	case "", "bash":
	case "sh":
		program = "/bin/sh"
	default:
		return nil, problem.Invalid("shell", "%q is neither bash nor sh", r.GetShell())
	}
	argv := []string{program, "-c", driver}
	if strings.HasSuffix(program, "/bash") { // which takes a socket for a remote login
		argv = []string{program, "--norc", "--noprofile", "-c", driver}
	}
	id := madeID(ctx, "se")
	if once.Again(ctx) {
		if n, err := s.session(ctx, r.GetSandboxId(), id); err == nil {
			return n.describe(), nil
		}
	}
	request, err := command(b, id, &baileyv1.Command{Argv: argv, Cwd: r.GetCwd(), Env: r.GetEnv()})
	if err != nil {
		return nil, err
	}
	request.Input, request.Tag = keeper.InputSocket, []byte(sessionTag+program)
	if err := s.enter(b); err != nil {
		return nil, err
	}
	request.Timeout = 0 // its commands have one, each for itself
	n := s.newSession(b, request.ID, program)
	if err := s.open(n, request); err != nil {
		s.mu.Lock()
		delete(s.sessions, n.id)
		s.mu.Unlock()
		s.leave(b)
		return nil, err
	}
	return n.describe(), nil
}

func (s *Server) newSession(b *box, id, program string) *session {
	n := &session{
		id: id, shell: program, box: b, start: time.Now(), turn: make(chan struct{}, 1), statuses: make(chan status, 4),
		told: make(chan keeper.Execution, 1), over: make(chan struct{}),
	}
	s.mu.Lock()
	s.sessions[id] = n
	s.mu.Unlock()
	return n
}

func (s *Server) open(n *session, request *keeper.Exec) error {
	remote, err := s.reach()
	if err != nil {
		return err
	}
	x, streams, err := remote.Exec(*request)
	var exec *native.ExecError
	if errors.As(err, &exec) && (exec.Errno == unix.EAGAIN || exec.Errno == unix.ENOMEM) {
		return exhausted("processes", fmt.Errorf("the sandbox has no room for another process: %w", exec.Errno), "end some of what runs there, or make it with a larger pids_limit or memory_bytes")
	}
	if errors.As(err, &exec) {
		return failed("no_shell", err, problem.Remedy("the sandbox must show %s", request.Argv[0]))
	}
	if err != nil {
		return explain(err)
	}
	n.spent, n.pid = &keeper.Spent{}, n.box.outside(x.Pid)
	n.connect(streams)
	go s.attend(n)
	return nil
}

// connect takes over the shell's streams.
func (n *session) connect(streams keeper.Streams) {
	n.control = unblocked(streams.Input)
	n.out, n.err = newChannel(unblocked(streams.Output)), newChannel(unblocked(streams.Errors))
	go n.listen()
}

// listen takes what the shell says on its socket.
func (n *session) listen() {
	defer close(n.statuses)
	defer n.control.Close()
	lines := bufio.NewScanner(n.control)
	for lines.Scan() {
		st, err := parseStatus(lines.Text(), func() string { lines.Scan(); return lines.Text() })
		if err != nil {
			continue // some program has found the socket; that is no answer
		}
		select {
		case n.statuses <- st:
			continue
		default:
		}
		select { // nobody waits for so many
		case n.statuses <- st:
		case <-n.over:
			return
		}
	}
}

// parseStatus reads a number, a status, and what the command times prints: the
// shell's own times, and in a second line those of its children.
func parseStatus(first string, more func() string) (st status, err error) {
	words := strings.Fields(first)
	if len(words) != 4 {
		return st, errors.New("not a status")
	}
	var errs [6]error
	st.number, errs[0] = strconv.ParseInt(words[0], 10, 64)
	st.code, errs[1] = strconv.ParseInt(words[1], 10, 64)
	if errs[0] != nil || errs[1] != nil {
		return st, errors.New("not a status")
	}
	words = append(words[2:], strings.Fields(more())...)
	if len(words) != 4 {
		return st, errors.New("no times")
	}
	for i, word := range words {
		// The point is as in the shell's own language.
		d, err := time.ParseDuration(strings.ReplaceAll(word, ",", "."))
		errs[2+i] = err
		if i%2 == 0 {
			st.spent.User += d
		} else {
			st.spent.System += d
		}
	}
	return st, errors.Join(errs[:]...)
}

// attend waits for the end of the shell.
func (s *Server) attend(n *session) {
	x := <-n.told
	n.exit = exitOf(&x)
	// What it said last can still be read. A child that it forked may have the
	// other end, and must not keep anybody waiting.
	if raw, err := n.control.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	close(n.over)
	s.leave(n.box)
	time.AfterFunc(remembered, func() { s.forgetSession(n) })
}

// letGo leaves a shell's streams to the next server.
func (n *session) letGo() {
	for _, f := range []*os.File{n.control, n.out.file, n.err.file} {
		_ = f.Close() // it may have ended
	}
}

func (s *Server) forgetSession(n *session) {
	s.mu.Lock()
	_, known := s.sessions[n.id]
	delete(s.sessions, n.id)
	remote := s.remote
	s.mu.Unlock()
	if known && remote != nil {
		_ = remote.Forget(n.id) // what is gone is forgotten
	}
}

func (n *session) describe() *baileyv1.Session {
	d := &baileyv1.Session{Id: n.id, SandboxId: n.box.id, Shell: n.shell, CreateTime: timestamppb.New(n.start), Busy: len(n.turn) > 0, Alive: true}
	if isClosed(n.over) {
		d.Alive, d.Busy, d.Exit = false, false, n.exit
	}
	return d
}

// session finds a session of the caller's.
func (s *Server) session(ctx context.Context, sandboxID, id string) (*session, error) {
	s.mu.Lock()
	n := s.sessions[id]
	s.mu.Unlock()
	if n != nil && n.box.id == sandboxID && caller.From(ctx).Sees(n.box.owner) {
		return n, nil
	}
	if _, err := s.sandbox(ctx, sandboxID); err != nil {
		return nil, err
	}
	return nil, problem.NotFound("session", id)
}

// GetSession implements the API.
func (s *Server) GetSession(ctx context.Context, r *baileyv1.GetSessionRequest) (*baileyv1.Session, error) {
	n, err := s.session(ctx, r.GetSandboxId(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	return n.describe(), nil
}

// ListSessions implements the API.
func (s *Server) ListSessions(ctx context.Context, r *baileyv1.ListSessionsRequest) (*baileyv1.ListSessionsResponse, error) {
	if _, err := s.sandbox(ctx, r.GetSandboxId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var list []*session
	for _, n := range s.sessions {
		if n.box.id == r.GetSandboxId() {
			list = append(list, n)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *session) int {
		if c := b.start.Compare(a.start); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	rest, next, err := paged(list, func(n *session) string { return n.id }, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &baileyv1.ListSessionsResponse{NextPageToken: next}
	for _, n := range rest {
		out.Sessions = append(out.Sessions, n.describe())
	}
	return out, nil
}

// paged takes a page out of a list.
func paged[T any](list []T, id func(T) string, size int32, token string) (part []T, next string, err error) {
	n, err := pageSize(size, 100, 1000)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		at := slices.IndexFunc(list, func(v T) bool { return id(v) == token })
		if at < 0 {
			return nil, "", problem.Invalid("page_token", "not a place in this list any more; begin again without it")
		}
		list = list[at+1:]
	}
	if len(list) > n {
		return list[:n], id(list[n-1]), nil
	}
	return list, "", nil
}

// CloseSession implements the API.
func (s *Server) CloseSession(ctx context.Context, r *baileyv1.CloseSessionRequest) (*emptypb.Empty, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	n, err := s.session(ctx, r.GetSandboxId(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	s.endSession(n)
	select {
	case <-n.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.forgetSession(n)
	return &emptypb.Empty{}, nil
}

// endSession kills the shell and what runs in its process group.
func (s *Server) endSession(n *session) {
	if remote, err := s.reach(); err == nil {
		_ = remote.Signal(n.id, unix.SIGKILL) // it may have ended
	}
}

// InterruptSession implements the API.
func (s *Server) InterruptSession(ctx context.Context, r *baileyv1.InterruptSessionRequest) (*baileyv1.Session, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	n, err := s.session(ctx, r.GetSandboxId(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	s.interrupt(n)
	return n.describe(), nil
}

func (s *Server) interrupt(n *session) {
	if remote, err := s.reach(); err == nil {
		_ = remote.Signal(n.id, unix.SIGINT) // it may have ended
	}
}

// line is a command for a session.
type line struct {
	text     string
	timeout  time.Duration
	limit    int64
	fleeting bool
	stdin    []byte
	unwanted <-chan struct{} // closed when it need not go on; or nil
}

func (l *line) check() error {
	switch {
	case strings.Contains(l.text, "\x00"):
		return problem.Invalid("command", "it has a NUL byte")
	case l.timeout < 0:
		return problem.Invalid("timeout", "it is negative")
	}
	return nil
}

// RunSession implements the API.
func (s *Server) RunSession(ctx context.Context, r *baileyv1.RunSessionRequest) (*baileyv1.RunExecResponse, error) {
	l := line{text: r.GetCommand(), timeout: r.GetTimeout().AsDuration(), limit: r.GetOutputLimitBytes(), fleeting: true, stdin: r.GetStdin(), unwanted: ctx.Done()}
	if err := l.check(); err != nil {
		return nil, err
	}
	e, err := s.enterSession(ctx, r.GetSandboxId(), r.GetSessionId(), l)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.done:
		return e.response(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// StreamSession implements the API.
func (s *Server) StreamSession(ctx context.Context, r *baileyv1.StreamSessionRequest, to *connect.ServerStream[baileyv1.ExecOutput]) error {
	l := line{text: r.GetCommand(), timeout: r.GetTimeout().AsDuration(), stdin: r.GetStdin()}
	if err := l.check(); err != nil {
		return err
	}
	e, err := s.enterSession(ctx, r.GetSandboxId(), r.GetSessionId(), l)
	if err != nil {
		return err
	}
	return s.stream(ctx, e, [2]int64{}, to.Send)
}

// enterSession waits for the session's turn and gives it the command.
func (s *Server) enterSession(ctx context.Context, sandboxID, id string, l line) (*execution, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	n, err := s.session(ctx, sandboxID, id)
	if err != nil {
		return nil, err
	}
	select {
	case n.turn <- struct{}{}:
	case <-n.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if isClosed(n.over) {
		return nil, failed("session_ended", errors.New("the shell of the session has ended"), problem.About("session_id", id), problem.Remedy("create another session"))
	}
	input, err := s.layInput(n.box, l.stdin)
	if err != nil {
		<-n.turn
		return nil, err
	}
	e := s.newExecution(n.box, &keeper.Exec{ID: newID("ex"), Argv: []string{n.shell, "-c", l.text}, Fleeting: l.fleeting}, l.limit)
	e.session = n.id
	if err := s.register(e, s.config.Quota.Execs); err != nil {
		input.remove()
		<-n.turn
		return nil, err
	}
	e.trace(ctx)
	go s.perform(n, e, l, input)
	return e, nil
}

// laid is the input of a session's command: a file in the sandbox.
type laid struct {
	dir  *os.File
	name string
}

// inputDir is where the inputs of commands are, inside.
const inputDir = "/tmp"

// layInput makes what a command will read; nil if that is nothing. The shell's own
// input is not for commands, and what follows a command there is the next one.
func (s *Server) layInput(b *box, data []byte) (*laid, error) {
	if len(data) == 0 {
		return nil, nil
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	if b.partial {
		return nil, problem.Unimplemented("session_input_unsupported", errors.New("the runtime of this sandbox has no place for the input of a session's command"),
			problem.Remedy("write the input to a file, and let the command read that; or run the command without a session"))
	}
	defer become(b.user)()
	l := &laid{name: newID(".bailey-input")}
	if l.dir, err = remote.Root(b.id, inputDir); err != nil {
		return nil, explain(err)
	}
	fd, err := unix.Openat(int(l.dir.Fd()), l.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		_ = l.dir.Close()
		return nil, fileError("the input", err)
	}
	f := os.NewFile(uintptr(fd), l.name)
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		l.remove()
		return nil, fileError("the input", err)
	}
	return l, nil
}

// path is what the shell is told.
func (l *laid) path() string {
	if l == nil {
		return ""
	}
	return " " + inputDir + "/" + l.name
}

func (l *laid) remove() {
	if l == nil {
		return
	}
	_ = unix.Unlinkat(int(l.dir.Fd()), l.name, 0) // it goes with the sandbox at the latest
	_ = l.dir.Close()
}

// perform has the shell run a command.
func (s *Server) perform(n *session, e *execution, l line, input *laid) {
	defer func() { <-n.turn }()
	defer input.remove()
	n.out.turnTo(e.out)
	n.err.turnTo(e.err)
	number := e.start.UnixNano()
	text := strings.TrimSuffix(l.text, "\n") + "\n"
	message := fmt.Sprintf("%d %d%s\n%s", number, strings.Count(text, "\n"), input.path(), text)
	go func() { _, _ = n.control.WriteString(message) }() // if the shell has ended, that is noticed below
	st, exit := s.awaitStatus(n, number, n.box.within(l.timeout), l.unwanted)
	e.exit = exit
	n.out.turnTo(newOutput("", 0))
	n.err.turnTo(newOutput("", 0))
	e.end = time.Now()
	if st != nil {
		st.spent.Read, st.spent.Written = traffic(n.pid)
	}
	e.exit.Rusage = e.rusage(n.since(st))
	e.traceEnd(nil)
	close(e.done)
	s.retire(e)
}

// since is what was spent since the last command, and remembers it for the next.
// The shell that a server has just taken over has spent nobody knows how much.
func (n *session) since(st *status) *keeper.Spent {
	before := n.spent
	n.spent = nil
	if st == nil {
		return &keeper.Spent{}
	}
	n.spent = &st.spent
	if before == nil {
		return &keeper.Spent{}
	}
	return &keeper.Spent{
		User: st.spent.User - before.User, System: st.spent.System - before.System,
		Read: max(st.spent.Read-before.Read, 0), Written: max(st.spent.Written-before.Written, 0),
	}
}

// A command that is to end is interrupted again and again, since it may only be
// about to begin; and if it will not end, the session does.
const (
	interruptEvery = 100 * time.Millisecond
	mostInterrupts = 20
)

// awaitStatus waits for the end of a command, or of the shell, which has no status
// then. The command is interrupted when its time is over, or nobody wants it any
// more.
func (s *Server) awaitStatus(n *session, number int64, timeout time.Duration, unwanted <-chan struct{}) (*status, *baileyv1.Exit) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	over := timer.C
	if timeout == 0 {
		over = nil
	}
	timedOut, givenUp := false, false
	interrupts := 0
	for {
		select {
		case st, ok := <-n.statuses:
			if ok && st.number != number {
				continue // of one that an earlier server gave it
			}
			if ok {
				return &st, &baileyv1.Exit{Code: int32(st.code), TimedOut: timedOut}
			}
			<-n.over
			return nil, &baileyv1.Exit{Code: n.exit.GetCode(), Signal: n.exit.GetSignal(), Error: n.exit.GetError(), TimedOut: timedOut}
		case <-unwanted:
			unwanted, over, givenUp = nil, timer.C, true
			timer.Reset(interruptEvery) // the shell may still read it
		case <-over:
			timedOut = timedOut || !givenUp
			if interrupts++; interrupts > mostInterrupts {
				s.endSession(n)
				over = nil
				continue
			}
			s.interrupt(n)
			timer.Reset(interruptEvery)
		}
	}
}

// adoptSession goes on with the shell of an earlier server's session. What it does
// just now is not asked for by anybody any more; the next command waits for it.
func (s *Server) adoptSession(b *box, x *keeper.Execution) error {
	now, streams, err := s.remote.Attach(x.ID)
	if err != nil {
		return err
	}
	n := s.newSession(b, x.ID, strings.TrimPrefix(string(x.Tag), sessionTag))
	n.start, n.pid = x.Started.Time(), b.outside(now.Pid)
	b.count()
	n.connect(streams)
	if now.Ended != 0 {
		n.tell(now)
	}
	go s.attend(n)
	return nil
}
