package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/processes"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// linked is what the keeper holds for a server. The keeper's mutex guards it.
type linked struct {
	current *conn // of the server that is there now, or nil
	last    *tie  // of the one that came last, or nil
	linger  time.Duration
	expiry  *time.Timer // runs while there is no server
	boxes   map[*box]*standing
	execs   map[string]*execution
	// expected are sandboxes that were announced, by name.
	expected map[string]*expected
}

// standing is what is known of a server's sandbox beside the box.
type standing struct {
	freezer *limits.Freezer // or nil
	told    bool            // the server knows that there are events
}

// execution is a command of a server's. The keeper's mutex guards what is in it.
type execution struct {
	Execution
	job   *native.Job
	timer *time.Timer // of its timeout, or nil
	// files are the ends that the server has too, so that another process of the
	// server can have them later.
	files  []*os.File
	before limits.Usage
}

func (x *execution) close() {
	for _, f := range x.files {
		_ = f.Close()
	}
	x.files = nil
}

// tie is the connection of one server.
type tie struct {
	conn   *conn
	over   bool           // another has come; the keeper's mutex guards it
	making sync.WaitGroup // requests that are being carried out and change what there is
}

// link serves a server for as long as its connection stands. When it is told that
// it has begun, nothing that an earlier server has asked for is still to come.
func (k *Keeper) link(c *conn, r *received) error {
	var l Link
	if err := r.decode(&l); err != nil {
		return err
	}
	t := &tie{conn: c}
	if !k.takeOver(t, l.Orphans) {
		return errors.New("another server has come")
	}
	defer k.unlink(c)
	if err := c.send(tellStarted, nil); err != nil {
		return nil
	}
	for {
		r, err := c.receive()
		if err != nil {
			return nil
		}
		if !k.accepts(t, r.kind) {
			r.close()
			return nil
		}
		if r.kind == linkExpect { // before what comes next on the link asks for it
			r.close()
			if k.expect(r) != nil {
				return nil
			}
			continue
		}
		go func() {
			defer t.done(r.kind)
			defer r.close()
			if k.serveLink(c, r) != nil {
				c.hangUp()
			}
		}()
	}
}

// takeOver ends the link of an earlier server, which is dead, most likely.
func (k *Keeper) takeOver(t *tie, orphans time.Duration) bool {
	k.mu.Lock()
	old := k.linked.last
	if old != nil {
		old.over = true
	}
	k.linked.last = t
	k.mu.Unlock()
	if old != nil {
		old.conn.hangUp()
		old.making.Wait()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.over {
		return false
	}
	if k.linked.execs == nil {
		k.linked.boxes, k.linked.execs = make(map[*box]*standing), make(map[string]*execution)
	}
	k.linked.current, k.linked.linger = t.conn, orphans
	if k.linked.expiry != nil {
		k.linked.expiry.Stop()
	}
	return true
}

// isMaking says whether a request changes what there is.
func isMaking(k kind) bool {
	return k == linkOpen || k == linkExec || k == linkFreeze || k == linkPort
}

// accepts counts a request that is to be carried out, unless another server has
// come.
func (k *Keeper) accepts(t *tie, request kind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !t.over && isMaking(request) {
		t.making.Add(1)
	}
	return !t.over
}

func (t *tie) done(request kind) {
	if isMaking(request) {
		t.making.Done()
	}
}

// hangUp ends a connection on which somebody else reads.
func (c *conn) hangUp() {
	if raw, err := c.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}

// unlink lets sandboxes wait for another server.
func (k *Keeper) unlink(c *conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.linked.current != c {
		return
	}
	k.linked.current = nil
	k.linked.expiry = time.AfterFunc(k.linked.linger, k.abandon)
}

// abandon ends what no server came back for.
func (k *Keeper) abandon() {
	k.mu.Lock()
	if k.linked.current != nil {
		k.mu.Unlock()
		return
	}
	var boxes []*box
	for b := range k.linked.boxes {
		boxes = append(boxes, b)
	}
	k.mu.Unlock()
	for _, b := range boxes {
		<-b.ready
		if b.err != nil {
			continue
		}
		k.mu.Lock()
		freezer := k.linked.takeFreezer(b)
		k.mu.Unlock()
		if freezer != nil {
			freezer.Close() // what stands still does not end
		}
		b.resident.Close()
	}
}

// tell sends something to the server, if there is one.
func (k *Keeper) tell(kind kind, message any) {
	k.mu.Lock()
	c := k.linked.current
	k.mu.Unlock()
	if c != nil {
		_ = c.send(kind, message) // it asks when it comes back
	}
}

// handle answers a request of type T. An error is one of the connection.
func handle[T any](c *conn, r *received, ref func(*T) uint64, do func(*T) (any, []*os.File, error)) error {
	var request T
	if err := r.decode(&request); err != nil {
		return err
	}
	answer := reply{Ref: ref(&request)}
	result, files, err := do(&request)
	switch {
	case err != nil:
		f := failureOf(err)
		answer.Failure = &f
	case result != nil:
		answer.Data = wire.Append(nil, result)
	}
	defer closeAll(files)
	return c.send(tellReply, answer, files...)
}

func (k *Keeper) serveLink(c *conn, r *received) error {
	switch r.kind {
	case linkOpen:
		return handle(c, r, func(o *Open) uint64 { return o.Ref }, k.open)
	case linkExec:
		return handle(c, r, func(e *Exec) uint64 { return e.Ref }, k.exec)
	case linkAttach:
		return handle(c, r, refOfName, k.attach)
	case linkSignal:
		return handle(c, r, func(s *Signal) uint64 { return s.Ref }, k.signal)
	case linkTag:
		return handle(c, r, func(t *Tag) uint64 { return t.Ref }, k.tag)
	case linkFinish:
		return handle(c, r, refOfName, k.finishInput)
	case linkForget:
		return handle(c, r, refOfName, k.forgetExec)
	case linkStop:
		return handle(c, r, func(s *Stopping) uint64 { return s.Ref }, k.stopOne)
	case linkFreeze:
		return handle(c, r, func(f *Freeze) uint64 { return f.Ref }, k.freeze)
	case linkRoot:
		return handle(c, r, func(o *Root) uint64 { return o.Ref }, k.root)
	case linkUsage:
		return handle(c, r, refOfName, k.used)
	case linkReload:
		return handle(c, r, func(u *Rules) uint64 { return u.Ref }, k.changeRules)
	case linkList:
		return handle(c, r, refOfName, k.state)
	case linkEvents:
		return handle(c, r, refOfName, k.happened)
	case linkPort:
		return handle(c, r, func(p *Port) uint64 { return p.Ref }, k.changePort)
	}
	return fmt.Errorf("no request on a link is %q", r.kind)
}

func refOfName(n *Name) uint64 { return n.Ref }

// standing returns a sandbox of the server's that stands.
func (k *Keeper) standing(name string) (*box, error) {
	k.mu.Lock()
	b := k.boxes[name]
	_, ok := k.linked.boxes[b]
	k.mu.Unlock()
	if b == nil || !ok {
		return nil, fmt.Errorf("%w: %s", ErrMissing, name)
	}
	<-b.ready
	return b, b.err
}

// open makes a sandbox.
func (k *Keeper) open(o *Open) (any, []*os.File, error) {
	if err := CheckName(o.Name); err != nil {
		return nil, nil, err
	}
	if old := k.ending(o.Name); old != nil {
		<-old.resident.Done() // what it writes to must be free
	}
	k.mu.Lock()
	if k.boxes[o.Name] != nil {
		k.mu.Unlock()
		return nil, nil, fmt.Errorf("there is a sandbox %s already", o.Name)
	}
	b := newBox(k, o.Name, nil)
	k.boxes[o.Name], k.all[b] = b, struct{}{}
	k.linked.boxes[b] = &standing{}
	b.count(true, 1)
	k.mu.Unlock()
	b.err = b.raise(&o.Plan, func(string) {})
	if b.err != nil {
		k.mu.Lock()
		delete(k.linked.boxes, b)
		k.mu.Unlock()
		k.forget(b)
		close(b.ready)
		return nil, nil, b.err
	}
	b.resident.AtEnd(func() { k.lose(b) })
	close(b.ready)
	go b.attend()
	return b.standing(), nil, nil
}

// standing is what the server is told of a sandbox that stands.
func (b *box) standing() Standing {
	r := b.resident
	return Standing{
		Name: b.name, Pid: r.Pid, Since: Moment(b.created.UnixNano()), Ports: b.ports, Owner: r.Owner, Partial: r.Partial,
		Timeout: time.Duration(b.spec.TimeoutMillis) * time.Millisecond,
	}
}

// lose forgets a sandbox that has ended, with its commands, and says so.
func (k *Keeper) lose(b *box) {
	k.mu.Lock()
	s := k.linked.boxes[b]
	delete(k.linked.boxes, b)
	for id, x := range k.linked.execs {
		if x.Box == b.name {
			x.close()
			delete(k.linked.execs, id)
		}
	}
	k.mu.Unlock()
	if s != nil && s.freezer != nil {
		s.freezer.Close()
	}
	k.forget(b)
	k.tell(tellGone, Name{Name: b.name})
}

// state lists what there is.
func (k *Keeper) state(*Name) (any, []*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var s State
	for b, extra := range k.linked.boxes {
		if b.resident != nil {
			st := b.standing()
			st.Frozen, st.Ending = extra.freezer != nil, b.leaving
			s.Boxes = append(s.Boxes, st)
		}
	}
	for _, x := range k.linked.execs {
		s.Execs = append(s.Execs, x.Execution)
	}
	return s, nil, nil
}

// ending returns a sandbox of the server's that was asked to end, or nil.
func (k *Keeper) ending(name string) *box {
	k.mu.Lock()
	defer k.mu.Unlock()
	for b := range k.linked.boxes {
		if b.name == name && b.leaving && b.resident != nil {
			return b
		}
	}
	return nil
}

// stopOne ends a sandbox. For one that ends already it waits.
func (k *Keeper) stopOne(s *Stopping) (any, []*os.File, error) {
	if b := k.ending(s.Name); b != nil {
		<-b.resident.Done()
		return nil, nil, nil
	}
	b, err := k.standing(s.Name)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	b.leaving = true
	if k.boxes[b.name] == b {
		delete(k.boxes, b.name)
	}
	freezer := k.linked.takeFreezer(b)
	k.mu.Unlock()
	if freezer != nil {
		freezer.Close()
	}
	b.stop(s.Grace)
	return nil, nil, nil
}

func (l *linked) takeFreezer(b *box) *limits.Freezer {
	s := l.boxes[b]
	if s == nil {
		return nil
	}
	f := s.freezer
	s.freezer = nil
	return f
}

// freeze stops everything in a sandbox where it is, or lets it go on.
func (k *Keeper) freeze(f *Freeze) (any, []*os.File, error) {
	b, err := k.standing(f.Name)
	if err != nil {
		return nil, nil, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	if f.Thaw {
		k.mu.Lock()
		freezer := k.linked.takeFreezer(b)
		k.mu.Unlock()
		if freezer != nil {
			freezer.Close()
		}
		return nil, nil, nil
	}
	k.mu.Lock()
	s := k.linked.boxes[b]
	k.mu.Unlock()
	if s == nil || s.freezer != nil {
		return nil, nil, nil
	}
	freezer, err := b.resident.Freeze(b.processes)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	s.freezer = freezer
	k.mu.Unlock()
	return nil, nil, nil
}

// processes are those that must stand still for the sandbox to do so. Of one with a kernel
// of its own that is this kernel: without it nothing is read or written, and its helpers
// do not bear to be interrupted.
func (b *box) processes() []int {
	if b.resident.Partial {
		return []int{b.resident.Pid}
	}
	return inNamespaceOf(b.resident.Pid)
}

// inNamespaceOf lists the processes of a sandbox, process 1 included.
func inNamespaceOf(first int) (pids []int) {
	namespace, err := os.Readlink(processes.File(first, "ns/pid"))
	if err != nil {
		return nil
	}
	processes.Each(func(pid int, ns string) {
		if ns == namespace {
			pids = append(pids, pid)
		}
	})
	return pids
}

// root opens a directory as it is seen inside.
func (k *Keeper) root(r *Root) (any, []*os.File, error) {
	b, err := k.standing(r.Name)
	if err != nil {
		return nil, nil, err
	}
	root, err := unix.Open(b.resident.Root(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the root directory of %s: %w", r.Name, err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, strings.TrimPrefix(r.Dir, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s in %s: %w", r.Dir, r.Name, err)
	}
	return nil, []*os.File{os.NewFile(uintptr(fd), r.Dir)}, nil
}

// used is what was counted of a sandbox.
func (k *Keeper) used(n *Name) (any, []*os.File, error) {
	b, err := k.standing(n.Name)
	if err != nil {
		return nil, nil, err
	}
	var u Used
	u.Usage, u.Known = b.resident.Used()
	u.Denials, _ = b.recent.Denials()
	return u, nil, nil
}

// stir tells the server once that there are events it has not asked for.
func (b *box) stir() {
	k := b.keeper
	k.mu.Lock()
	s := k.linked.boxes[b]
	tell := s != nil && !s.told
	if tell {
		s.told = true
	}
	k.mu.Unlock()
	if tell {
		k.tell(tellEvent, Name{Name: b.name})
	}
}

// happened returns the events of a sandbox.
func (k *Keeper) happened(n *Name) (any, []*os.File, error) {
	b, err := k.standing(n.Name)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	if s := k.linked.boxes[b]; s != nil {
		s.told = false // before they are read: none is missed
	}
	k.mu.Unlock()
	var h Happened
	for _, e := range b.recent.Events() {
		h.Numbers = append(h.Numbers, e.Number)
		h.Lines = append(h.Lines, e.Event.AppendLine(nil))
	}
	return h, nil, nil
}

// changeRules gives a sandbox other network rules.
func (k *Keeper) changeRules(r *Rules) (any, []*os.File, error) {
	b, err := k.standing(r.Change.Name)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, b.reload(&r.Change)
}

// changePort exposes a port of a sandbox, or withdraws it, and tells all that are
// exposed then.
func (k *Keeper) changePort(p *Port) (any, []*os.File, error) {
	b, err := k.standing(p.Name)
	if err != nil {
		return nil, nil, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	if p.Withdraw {
		b.gate.Withdraw(p.Exposure.Inside)
	} else if _, err := b.gate.Expose(p.Exposure); err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b.ports = b.gate.Exposed()
	return Standing{Name: b.name, Pid: b.resident.Pid, Since: Moment(b.created.UnixNano()), Ports: b.ports}, nil, nil
}

// exec starts a command.
func (k *Keeper) exec(e *Exec) (any, []*os.File, error) {
	if len(e.Argv) == 0 || e.ID == "" {
		return nil, nil, errors.New("a command has arguments and a name")
	}
	b, err := k.standing(e.Box)
	if err != nil {
		return nil, nil, err
	}
	x := &execution{Execution: Execution{
		ID: e.ID, Box: e.Box, Argv: e.Argv, Tag: e.Tag, Input: e.Input, Terminal: e.Terminal != nil, Fleeting: e.Fleeting, Started: Now(),
	}}
	k.mu.Lock()
	taken := k.linked.execs[e.ID] != nil
	if !taken {
		b.count(false, 1)
	}
	k.mu.Unlock()
	if taken {
		return nil, nil, fmt.Errorf("there is a command %s already", e.ID)
	}
	if err := k.launch(b, x, e); err != nil {
		b.release(false)
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if x.Fleeting {
		files := x.files
		x.files = nil
		return x.Execution, files, nil
	}
	files, err := x.lend()
	return x.Execution, files, err
}

// lend returns copies of a command's ends. The keeper's mutex is held.
func (x *execution) lend() (copies []*os.File, err error) {
	for _, f := range x.files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(copies)
			return nil, os.NewSyscallError("dup", err)
		}
		copies = append(copies, os.NewFile(uintptr(fd), f.Name()))
	}
	return copies, nil
}

// launch starts the command with streams of its own.
func (k *Keeper) launch(b *box, x *execution, e *Exec) error {
	streams, outer, err := makeStreams(e)
	if err != nil {
		return err
	}
	defer closeAll(streams[:])
	x.files = outer
	x.before, _ = b.resident.Used()
	x.job, err = b.resident.Start(native.Launch{
		Argv: e.Argv, Env: merged(b.spec.Env, e.Env), Dir: e.Dir, Umask: -1, Streams: streams, Terminal: e.Terminal,
	})
	if err != nil {
		x.close()
		return err
	}
	if x.job.Terminal != nil {
		x.files = []*os.File{x.job.Terminal}
	}
	x.Pid = x.job.Pid()
	k.mu.Lock()
	k.linked.execs[x.ID] = x
	if e.Timeout > 0 {
		x.timer = time.AfterFunc(e.Timeout, func() { k.expireExec(x) })
	}
	k.mu.Unlock()
	b.add(x.job, &command{argv: e.Argv})
	go k.await(b, x)
	return nil
}

// expireExec ends a command whose time is over.
func (k *Keeper) expireExec(x *execution) {
	k.mu.Lock()
	x.TimedOut = x.Ended == 0
	k.mu.Unlock()
	_ = x.job.Kill() // it may just have ended
}

// await waits for a command's end, and tells it.
func (k *Keeper) await(b *box, x *execution) {
	<-x.job.Done()
	st := x.job.State()
	now, ok := b.resident.Used()
	k.mu.Lock()
	x.Ended, x.Wait, x.Killed = Now(), uint32(st.Wait), st.Killed
	x.Starved, x.Spent = ok && now.Since(x.before).Killed > 0, spent(&st.Rusage)
	if x.timer != nil {
		x.timer.Stop()
	}
	told := x.Execution
	if x.Fleeting {
		delete(k.linked.execs, x.ID)
	}
	k.mu.Unlock()
	k.tell(tellExit, told)
	b.remove(x.job)
}

// makeStreams makes a command's streams: its own ends, and those of the server.
func makeStreams(e *Exec) (inner [3]*os.File, outer []*os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return inner, nil, err
	}
	if e.Terminal != nil {
		e.Terminal.Streams = [3]bool{true, true, true}
		return [3]*os.File{null, null, null}, nil, nil
	}
	inner[0] = null
	pairs := [3]func() (outer, inner *os.File, err error){inward, outward, outward}
	switch e.Input {
	case InputNone:
		pairs[0] = nil
	case InputSocket:
		pairs[0] = socketPair
	}
	for i, pair := range pairs {
		if pair == nil {
			continue
		}
		out, in, err := pair()
		if err != nil {
			closeAll(inner[:])
			closeAll(outer)
			return [3]*os.File{}, nil, err
		}
		if inner[i] != nil {
			_ = inner[i].Close()
		}
		inner[i], outer = in, append(outer, out)
	}
	return inner, outer, nil
}

// outward makes a pipe for what a command writes. Its ends block: who reads it
// may decide otherwise for that end.
func outward() (outer, inner *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// inward makes one for what it reads.
func inward() (outer, inner *os.File, err error) {
	inner, outer, err = outward()
	return outer, inner, err
}

func socketPair() (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// merged sets variables over an environment.
func merged(env, over []string) []string {
	env = slices.Clone(env)
	for _, v := range over {
		name, _, _ := strings.Cut(v, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		env = append(env, v)
	}
	return env
}

// known returns a command. The keeper's mutex is held.
func (k *Keeper) known(id string) (*execution, error) {
	x := k.linked.execs[id]
	if x == nil {
		return nil, fmt.Errorf("%w: there is no command %s", ErrMissing, id)
	}
	return x, nil
}

// attach gives the ends of a command out once more.
func (k *Keeper) attach(n *Name) (any, []*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.known(n.Name)
	if err != nil {
		return nil, nil, err
	}
	files, err := x.lend()
	return x.Execution, files, err
}

// signal passes a signal on. For a command that has ended it does nothing.
func (k *Keeper) signal(s *Signal) (any, []*os.File, error) {
	k.mu.Lock()
	x, err := k.known(s.ID)
	k.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	if unix.Signal(s.Number) == unix.SIGKILL {
		err = x.job.Kill()
	} else {
		err = x.job.Signal(unix.Signal(s.Number))
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return nil, nil, err
}

func (k *Keeper) tag(t *Tag) (any, []*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.known(t.ID)
	if err == nil {
		x.Tag = t.Tag
	}
	return nil, nil, err
}

// finishInput closes the keeper's end of what a command reads. When the server has
// closed its own, the command finds the end.
func (k *Keeper) finishInput(n *Name) (any, []*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.known(n.Name)
	if err == nil && x.Input != InputNone && len(x.files) == 3 {
		_ = x.files[0].Close()
		x.files, x.Input = x.files[1:], InputNone
	}
	return nil, nil, err
}

// forgetExec forgets a command that has ended; of one that runs, nothing that it
// writes will be read any more.
func (k *Keeper) forgetExec(n *Name) (any, []*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.linked.execs[n.Name]; x != nil {
		x.close()
		delete(k.linked.execs, n.Name)
	}
	return nil, nil, nil
}
