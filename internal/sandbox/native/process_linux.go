package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// Options are what a start needs besides the Spec.
type Options struct {
	// Streams are the command's stdin, stdout and stderr. None may be a
	// directory.
	Streams [3]*os.File
	// Terminal, if not nil, gives the command a terminal of its own.
	Terminal *Terminal
	// Trace, if not nil, gets the time of each step.
	Trace *trace.Log
	// Report, if not nil, is called for each call that the broker refuses, from
	// several threads.
	Report func(broker.Denial)
	// Observe, if not nil, is called for each look at files that a Spec with
	// Broker.Observe makes visible, from several threads.
	Observe func(broker.Observation)

	// Files, if not 0, is the soft limit of open files that commands get, where
	// the launching program has changed its own.
	Files uint64
	// Begun, if not nil, is called with a descriptor of process 1 before the command
	// can run, and must not keep it. Signals to process 1 are passed on from then
	// on, or once the command runs.
	Begun func(pidfd int)
	// View, if not nil, opens the mount that shows the project of a Spec with
	// Rules: what is in the directory, or if that is nil, in their Root.
	View func(r *spec.Rules, dir *os.File) (*os.File, error)
	// Account has everything counted that Process.Used can tell, where this
	// machine lets it be counted.
	Account bool
	// Nascent, if not nil, is what was begun for Open before the Spec was known.
	Nascent *Nascent

	resident bool // see Open
	onlyIPv4 bool // the sandbox's network cannot have IPv6
}

// Process is a running sandbox, seen from outside.
type Process struct {
	// Pid is process 1 of the sandbox, in the caller's numbering.
	Pid int
	// Terminal is the caller's end of the command's terminal, or nil.
	Terminal *os.File
	// Listeners are the gate's sockets, if the Spec has a gate. They are the
	// caller's to close.
	Listeners []Listener
	// Changes is the directory that those of an overlay in memory go to. It stays
	// when the sandbox has ended, and is the caller's to close; nil if there is none.
	Changes *os.File
	// Uncaptured says that the Spec wanted connections captured, and the kernel
	// could not: only programs that use the proxy get out.
	Uncaptured bool
	// Err says why calls that need a decision fail, if they all do.
	Err error
	// Used is what everything in the sandbox has used, once it has ended.
	Used limits.Usage

	pidfd  int
	helper int // what is reaped in the place of process 1, or 0
	status int // pipe from process 1
	umask  int
	broker *broker.Broker
	trace  *trace.Log
	walled walled

	running bool // the command has started
	settled bool // and memory was given back

	events  int // an epoll instance with the status and what is watched, or 0
	watched map[int32]func() bool
}

// State is what happened to the command.
type State struct {
	Wait unix.WaitStatus
	// Killed says that the sandbox ended without the command's own end being
	// known: process 1 was killed from outside.
	Killed bool
	// Rusage is what a command of a resident sandbox used, with those of its
	// children that were waited for.
	Rusage unix.Rusage
}

// Stopped reports whether the command was only stopped, and may go on.
func (s State) Stopped() bool { return !s.Killed && s.Wait.Stopped() }

// message is what process 1 tells: what happened to the command in a slot, of
// which a sandbox for one command has only the first.
type message struct {
	slot uint32
	what uint32 // a wait status, or one of the following
	pid  uint32 // inside
}

const messageSize = 16 // four bytes are spare

// What happened besides a wait status.
const (
	msgExecFailed = 0x10000 // plus the error
	msgStarted    = 0x20000
	msgNoDir      = 0x40000 // with msgExecFailed: its directory could not be entered
)

func decodeMessage(b []byte) message {
	ne := binary.NativeEndian
	return message{ne.Uint32(b), ne.Uint32(b[4:]), ne.Uint32(b[8:])}
}

func cloneAndRun(flags, stack uintptr, pidfd *int32, first, end uintptr, f *failure) (pid int)

// Start builds the sandbox and starts the command in it. When it returns
// without an error the command runs and every wall stands.
//
// The sandbox dies with the thread that called Start, so the caller must have
// called runtime.LockOSThread and stay on it until Wait has returned the end.
func Start(s *spec.Spec, o Options) (*Process, error) {
	e, err := begin(o, s.Identity, s.Network)
	if err != nil {
		return nil, err
	}
	return e.Start(s)
}

// Embryo is a sandbox whose Spec is not known yet.
type Embryo struct {
	o       Options
	id      spec.Identity
	network spec.Network
	pipes   *pipes
	proc    *Process
	birth   builder
	prelude builder
	umask   cell
	next    *[2]uintptr // where the child goes on, after all it was told so far
	ahead   ahead
	fail    *failure
	helped  *helped // if another program begins it
}

// Begin starts a child on what is the same for every Spec with a closed
// network, so that this happens while the caller compiles the Spec on another
// processor. Either Start or Abandon must follow, on the same locked thread.
func Begin(o Options) (*Embryo, error) {
	uid := os.Geteuid()
	return begin(o, spec.Identity{UID: uid, GID: os.Getegid(), Full: uid == 0}, spec.NetworkNone)
}

func begin(o Options, id spec.Identity, network spec.Network) (*Embryo, error) {
	e := adopt(o, id, network)
	if e == nil {
		p, err := openPipes(o)
		if err != nil {
			p.close()
			return nil, err
		}
		e = newEmbryo(o, id, network, p)
		if err := e.clone(); err != nil {
			p.close()
			return nil, err
		}
	}
	if err := e.grow(e.planPrelude()); err != nil {
		e.Abandon()
		// A child that had failed by then is the cause.
		if cause := e.failed(nil); cause != nil {
			err = cause
		}
		return nil, err
	}
	return e, nil
}

// newEmbryo plans the birth.
func newEmbryo(o Options, id spec.Identity, network spec.Network, p *pipes) *Embryo {
	e := &Embryo{
		o: o, id: id, network: network, pipes: p, fail: new(failure),
		proc:  &Process{pidfd: -1, status: p.status, trace: o.Trace},
		birth: builder{plan: newPlan(24), trace: o.Trace},
	}
	e.next = e.birth.birth(p, network)
	return e
}

// planPrelude plans what follows the birth.
func (e *Embryo) planPrelude() (next *[2]uintptr) {
	e.prelude = builder{plan: newPlan(224), trace: e.o.Trace, tree: tree{made: make(map[string]bool, 64)}}
	e.umask = e.prelude.prelude(e.pipes.in, e.id)
	return e.prelude.pause(fdGo, "wait for the spec")
}

// grow lets the child go on with the prelude, once it has its ids.
func (e *Embryo) grow(next *[2]uintptr) error {
	if e.id.Full {
		if err := mapAllIDs(e.proc.Pid, e.id); err != nil {
			return err
		}
	}
	return e.proceed(e.prelude.plan, next)
}

// goOn is no system call: the child continues with another plan.
const goOn = ^uintptr(0)

// clone starts the child, which performs the birth.
func (e *Embryo) clone() error {
	stack := uintptr(e.birth.alloc(256)) + 256 // the child never touches it
	first, end := e.birth.bounds()
	var pidfd int32
	// The child inherits the blocked signals, so none can run a handler of the
	// Go runtime in it; process 1 wants them blocked anyway.
	old := blockSignals()
	e.o.Trace.Mark("prepare")
	pid := cloneAndRun(unix.CLONE_VM|unix.CLONE_PIDFD|uintptr(unix.SIGCHLD)|unix.CLONE_NEWUSER|unix.CLONE_NEWPID,
		stack, &pidfd, first, end, e.fail)
	restoreSignals(old)
	if pid < 0 {
		return &LaunchError{Step: "clone into new user and pid namespaces", Errno: unix.Errno(-pid), Wall: WallUser}
	}
	e.proc.Pid, e.proc.pidfd = pid, int(pidfd)
	return nil
}

// Abandon ends the child.
func (e *Embryo) Abandon() {
	if e.helped != nil {
		e.helped.abandon()
		return
	}
	_ = e.proc.Kill()
	e.pipes.close()
	e.proc.status = -1
	e.proc.reap()
	if e.proc.Terminal != nil {
		_ = e.proc.Terminal.Close()
	}
	for _, l := range e.proc.Listeners {
		_ = l.File.Close()
	}
}

// Start is like the function Start, from where Begin left off.
func (e *Embryo) Start(s *spec.Spec) (*Process, error) {
	if e.helped != nil {
		return e.helped.start(s)
	}
	if s.Network.IsOwn() != e.network.IsOwn() || s.Identity != e.id || !e.foresaw(s) {
		e.Abandon()
		return Start(s, e.o)
	}
	err := e.confine(s)
	var l *launcher
	var view *os.File // closed when it is sent
	if err == nil {
		view, err = e.openView(s)
	}
	if err == nil {
		l, err = e.compile(s)
	}
	if err == nil {
		err = e.sendView(view)
	}
	if err == nil {
		err = e.run(l)
	}
	runtime.KeepAlive(e)
	runtime.KeepAlive(l)
	if err != nil {
		e.Abandon()
		if lacksIPv6(err) {
			e.o.onlyIPv4 = true
			return Start(s, e.o)
		}
		if isOptional(s, err) {
			return startUncaptured(s, e.o)
		}
		return nil, err
	}
	e.pipes.closeChild()
	closeAll(&e.pipes.release, &e.pipes.socket)
	e.proc.umask = int(*e.umask)
	return e.proc, nil
}

// compile turns the Spec into the rest of the plan and the program of process 1.
func (e *Embryo) compile(s *spec.Spec) (*launcher, error) {
	if s.Runtime != e.runtime() && (s.Runtime != "" || e.helped != nil) {
		return nil, fmt.Errorf("runtime %s: %w", s.Runtime, ErrRuntime)
	}
	abi, errno := landlockABI()
	if abi < s.Landlock.MinABI {
		if errno == 0 {
			errno = unix.ENOSYS
		}
		return nil, &LaunchError{
			Step:  fmt.Sprintf("landlock interface %d is needed, this kernel has %d", s.Landlock.MinABI, abi),
			Errno: errno, Wall: WallLandlock,
		}
	}
	l := &launcher{
		builder: e.builder(512),
		spec:    s, tty: e.o.Terminal, stays: e.o.resident, files: e.o.Files, abi: abi,
		mounted: e.ahead.mounts != nil,
	}
	var err error
	if l.streams, err = checkStreams(s, e.o.Streams, abi); err != nil {
		return nil, err
	}
	if l.connected = e.ahead.network != nil; l.connected {
		l.sockets = e.ahead.network.sockets
	} else {
		l.sockets = e.o.gateSocketsFor(s)
	}
	l.grouped = e.proc.walled.group != nil
	if e.helped != nil {
		err = e.helped.build(l)
	} else {
		l.build(e.umask)
	}
	if err != nil {
		return nil, err
	}
	return l, writeInit(e.pipes.in.init, initParams{
		exec: s.Exec, terminal: e.o.Terminal.stream(), sigmask: currentMask(), resident: e.o.resident,
	})
}

// checkStreams returns the Landlock rights of a command's streams.
func checkStreams(s *spec.Spec, streams [3]*os.File, abi int) (rights [3]uint64, err error) {
	for i, f := range streams {
		rights[i], err = streamRights(int(f.Fd()))
		if err == nil && isTruncatable(rights[i], abi) {
			err = ErrTruncatable
		}
		if err == nil {
			err = checkStream(s, int(f.Fd()), rights[i])
		}
		if err != nil {
			return rights, fmt.Errorf("%s: %w", [...]string{"stdin", "stdout", "stderr"}[i], err)
		}
	}
	return rights, nil
}

// run lets the child go on with the rest, and waits for the command to run.
func (e *Embryo) run(l *launcher) error {
	e.o.Trace.Mark("plan")
	e.begun()
	if err := e.proceed(l.plan, nil); err != nil {
		return err
	}
	e.pipes.closeChild()
	return e.hear(l)
}

// begun tells who wants to know that process 1 can get signals.
func (e *Embryo) begun() {
	if e.o.Begun != nil {
		e.o.Begun(e.proc.pidfd)
	}
}

// hear takes what the child hands out, and waits for the command to run.
func (e *Embryo) hear(l *launcher) error {
	if l.spec.Broker != nil {
		// While the child builds the sandbox.
		e.proc.broker = broker.New(l.spec, e.proc.Pid, broker.Options{Report: e.o.Report, Observe: e.o.Observe, Started: useProcessors})
	}
	if l.connected {
		e.proc.Listeners = receiveListeners(e.pipes.socket, l.sockets)
	}
	if l.limitsDisk() {
		e.proc.walled.disk = receiveDescriptor(e.pipes.socket)
	}
	if l.sockets != nil && !l.connected {
		e.proc.Listeners = receiveListeners(e.pipes.socket, l.sockets)
	}
	if err := e.viewOverlay(l.spec); err != nil {
		return err
	}
	if l.spec.Overlay.HeldInMemory() {
		if fd := receiveDescriptor(e.pipes.socket); fd >= 0 {
			e.proc.Changes = os.NewFile(uintptr(fd), "changes")
		}
	}
	if l.tty != nil {
		if fd := receiveDescriptor(e.pipes.socket); fd >= 0 {
			e.proc.Terminal = os.NewFile(uintptr(fd), "terminal")
		}
	}
	e.startBroker()
	msg, ok := e.proc.read()
	switch {
	case e.helped != nil && (!ok || msg.what == 0):
		return e.helped.failed(l, msg, ok)
	case !ok && e.fail.errno != 0:
		return e.failed(l)
	case !ok:
		return &LaunchError{Step: "start process 1", Errno: unix.ECHILD, Wall: WallInit}
	case msg.what&msgExecFailed != 0:
		return &ExecError{Name: l.spec.Argv[0], Errno: unix.Errno(msg.what &^ msgExecFailed)}
	}
	for _, done := range e.parts(l) {
		done.report()
	}
	e.o.Trace.Mark("exec")
	e.proc.running = isOwnProgram
	return nil
}

// startBroker takes over the listener, if the child gets as far as to have one.
func (e *Embryo) startBroker() {
	b := e.proc.broker
	if b == nil {
		return
	}
	if fd := receiveDescriptor(e.pipes.socket); fd >= 0 {
		b.Listen(fd, uint32(*e.umask))
		if e.o.resident {
			b.Attend()
		}
		return
	}
	b.Close()
	e.proc.broker = nil
}

// Wait blocks until the command stops or ends and tells how. After an end
// nothing of the sandbox is left.
func (p *Process) Wait() State {
	st := p.Peek()
	if st.Stopped() {
		return st
	}
	return p.Finish(st)
}

// Peek is the first half of Wait: it blocks like it, but after an end process 1
// is not reaped yet, so signals to it cannot meet a stranger. Finish must
// follow.
func (p *Process) Peek() State {
	for {
		msg, ok := p.read()
		if !ok {
			return State{Killed: true}
		}
		if ws := unix.WaitStatus(msg.what); !ws.Continued() {
			return State{Wait: ws}
		}
	}
}

// Finish is the second half of Wait, after an end.
func (p *Process) Finish(st State) State {
	p.trace.Mark("command")
	ws := p.reap()
	p.trace.Mark("teardown")
	if st.Killed {
		st.Wait = ws
	}
	return st
}

// Signal passes a signal on to the command. HUP, INT, QUIT, TSTP, CONT and
// WINCH go to its whole process group, as from a terminal.
func (p *Process) Signal(sig unix.Signal) error {
	return unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
}

// Kill ends everything in the sandbox at once.
func (p *Process) Kill() error { return p.Signal(unix.SIGKILL) }

// read returns the next message of process 1, and false when it has ended.
// While it waits it answers what the sandbox asks.
func (p *Process) read() (message, bool) {
	if p.running && !p.settled {
		p.settle()
	}
	for {
		if p.broker != nil && !p.broker.Attends() {
			if err := p.broker.Serve(p.until()); err != nil {
				p.Err = err
				p.broker.Close() // nothing is decided any more, so nothing is allowed
				p.broker = nil
			}
		}
		if p.watched == nil || p.isTold() {
			break
		}
	}
	var buf [messageSize]byte
	for {
		n, err := unix.Read(p.status, buf[:])
		if err == unix.EINTR {
			continue
		}
		return decodeMessage(buf[:]), err == nil && n == len(buf)
	}
}

// Watch calls ready whenever a descriptor can be read, while Wait or Peek waits,
// until it returns false.
func (p *Process) Watch(fd int, ready func() bool) error {
	if p.watched == nil {
		events, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("epoll_create1", err)
		}
		p.events, p.watched = events, make(map[int32]func() bool)
		if err := p.watch(p.status); err != nil {
			return err
		}
	}
	p.watched[int32(fd)] = ready
	return p.watch(fd)
}

func (p *Process) watch(fd int) error {
	err := unix.EpollCtl(p.events, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// until is what can be read when there is something to do besides answering.
func (p *Process) until() int {
	if p.watched != nil {
		return p.events
	}
	return p.status
}

// isTold waits for something to happen and reports whether process 1 has told
// something, or has ended.
func (p *Process) isTold() bool {
	var list [8]unix.EpollEvent
	n, err := unix.EpollWait(p.events, list[:], -1)
	if err != nil && err != unix.EINTR {
		return true
	}
	told := false
	for _, e := range list[:max(n, 0)] {
		if int(e.Fd) == p.status {
			told = true
			continue
		}
		if ready := p.watched[e.Fd]; ready != nil && !ready() {
			p.Unwatch(int(e.Fd))
		}
	}
	return told
}

// Unwatch undoes Watch. The descriptor must still be open.
func (p *Process) Unwatch(fd int) {
	delete(p.watched, int32(fd))
	_ = unix.EpollCtl(p.events, unix.EPOLL_CTL_DEL, fd, nil)
}

// settle waits a while for something to happen. If nothing does, this is a
// command that stays, and memory is given back.
func (p *Process) settle() {
	fds := []unix.PollFd{{Fd: int32(p.until()), Events: unix.POLLIN}}
	if p.broker != nil {
		fds = append(fds, unix.PollFd{Fd: int32(p.broker.Descriptor()), Events: unix.POLLIN})
	}
	if n, err := unix.Poll(fds, settled); n == 0 && err == nil {
		p.settled = true
		giveBack()
	}
}

// reap waits for process 1. The kernel ends every other process of the
// namespace before that returns.
func (p *Process) reap() unix.WaitStatus {
	var ws unix.WaitStatus
	var used unix.Rusage
	for {
		if _, err := unix.Wait4(p.child(), &ws, 0, &used); err != unix.EINTR {
			break
		}
	}
	if p.helper != 0 {
		ws = throughHelper(ws)
	}
	p.Used = p.walled.conclude(&used)
	closeAll(&p.pidfd, &p.status)
	if p.watched != nil {
		closeAll(&p.events)
	}
	if p.broker != nil {
		p.broker.Close()
		p.broker = nil
	}
	return ws
}

// pipes are the descriptors between launcher and child.
type pipes struct {
	in      inherited
	status  int // our end
	release int // our end; when we are gone the child reads an end of file there, and ends
	socket  int // our end, over which the child sends descriptors
}

func openPipes(o Options) (*pipes, error) {
	p := &pipes{in: inherited{status: -1, init: -1, socket: -1, proceed: -1}, status: -1, release: -1, socket: -1}
	for i, f := range o.Streams {
		p.in.stdio[i] = int(f.Fd())
	}
	var fds [2]int
	if o.resident {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return p, os.NewSyscallError("socketpair", err)
		}
		fds = pair
	} else if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return p, os.NewSyscallError("pipe2", err)
	}
	p.status, p.in.status = fds[0], fds[1]
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return p, os.NewSyscallError("pipe2", err)
	}
	p.in.proceed, p.release = fds[0], fds[1]
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return p, os.NewSyscallError("socketpair", err)
	}
	p.socket, p.in.socket = fds[0], fds[1]
	p.in.init, err = initFile()
	return p, err
}

// proceed lets the child past its next wait.
func (p *pipes) proceed() error {
	if _, err := unix.Write(p.release, []byte{1}); err != nil {
		return &LaunchError{Step: "let the child go on", Errno: ErrnoOf(err), Wall: WallInit}
	}
	return nil
}

// closeChild closes what only the child still needs.
func (p *pipes) closeChild() { closeAll(&p.in.status, &p.in.init, &p.in.socket, &p.in.proceed) }

// close closes everything, after a failure.
func (p *pipes) close() {
	p.closeChild()
	closeAll(&p.status, &p.release, &p.socket)
}

func closeAll(fds ...*int) {
	for _, fd := range fds {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// mapAllIDs maps every id the caller's own namespace knows to itself. Nearly
// always that is all there are; a namespace that has fewer says no, and is asked.
// If the caller is shown as another user, the two change places.
func mapAllIDs(pid int, id spec.Identity) error {
	uid, gid := id.Inside()
	for _, m := range []struct {
		name     string
		from, to int
	}{{"uid_map", id.UID, uid}, {"gid_map", id.GID, gid}} {
		name := m.name
		file := "/proc/" + strconv.Itoa(pid) + "/" + name
		err := writeFile(file, exchanged("0 0 4294967295\n", m.from, m.to))
		if errors.Is(err, unix.EPERM) {
			var own string
			if own, err = readFile("/proc/self/" + name); err != nil {
				return &LaunchError{Step: "read /proc/self/" + name, Errno: ErrnoOf(err), Wall: WallUser}
			}
			err = writeFile(file, exchanged(identityMap(own), m.from, m.to))
		}
		if err != nil {
			return &LaunchError{Step: "write " + file, Errno: ErrnoOf(err), Wall: WallUser}
		}
	}
	return nil
}

// identityMap turns the kernel's description of a map into one that maps the
// same ids to themselves. A line is "inside outside count".
func identityMap(own string) string {
	var b strings.Builder
	for line := range strings.Lines(own) {
		if f := strings.Fields(line); len(f) == 3 {
			b.WriteString(f[0] + " " + f[0] + " " + f[2] + "\n")
		}
	}
	return b.String()
}

// exchanged is an identity map in which two ids have changed places.
func exchanged(identity string, a, b int) string {
	if a == b {
		return identity
	}
	low, high := min(a, b), max(a, b)
	var out strings.Builder
	add := func(inside, outside, count int) {
		if count > 0 {
			fmt.Fprintf(&out, "%d %d %d\n", inside, outside, count)
		}
	}
	for line := range strings.Lines(identity) {
		f := strings.Fields(line)
		first, _ := strconv.Atoi(f[0]) // the kernel's own numbers
		count, _ := strconv.Atoi(f[2])
		for _, id := range []int{low, high} {
			if id < first || id >= first+count {
				continue
			}
			add(first, first, id-first)
			add(id, low+high-id, 1)
			first, count = id+1, first+count-id-1
		}
		add(first, first, count)
	}
	return out.String()
}

// readFile reads a small file of /proc, without the poller that package os would
// start for it.
func readFile(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 16<<10) // a map has at most 340 lines
	n, err := unix.Read(fd, buf)
	return string(buf[:max(n, 0)]), err
}

// writeFile writes text to a file of /proc in a single call, as it wants it.
func writeFile(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(text))
	return err
}

func blockSignals() uint64 {
	all := ^uint64(0)
	return setMask(unix.SIG_BLOCK, &all)
}

func restoreSignals(mask uint64) { setMask(unix.SIG_SETMASK, &mask) }

func currentMask() uint64 { return setMask(unix.SIG_BLOCK, nil) }

// setMask changes the thread's blocked signals and returns the former ones.
func setMask(how uintptr, set *uint64) uint64 {
	var old uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	return old
}
