package keeper

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/rulefs/views"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// box is a resident sandbox.
type box struct {
	keeper  *Keeper
	name    string
	key     []byte
	created time.Time
	output  output // of detached commands
	recent  event.Recent

	// Valid once ready is closed.
	ready    chan struct{}
	err      error
	spec     *spec.Spec
	resident *native.Resident
	gate     *gate.Gate  // nil without network rules
	view     *views.View // nil without path permissions that need one
	frame    []byte      // key of what cannot change while it stands
	roots    []string    // variables that name the gate's

	workspace *delta.Delta  // that its changes go to, if it holds one
	image     io.Closer     // that it holds, or nil
	gone      chan struct{} // closed when nothing is left of it

	changing sync.Mutex     // held while the network rules change
	now      *config.Config // those that hold, if they were changed
	ports    []string       // of the host that lead inside

	// Guarded by the keeper's mutex.
	linger   time.Duration
	users    int // commands that run or start
	holds    int // clients that keep it
	held     bool
	leaving  bool // it takes no commands any more
	used     time.Time
	timer    *time.Timer
	commands map[*native.Job]*command
	early    []denied      // of commands that are not known yet
	added    chan struct{} // closed when a command is known, nil if nobody waits
}

func newBox(k *Keeper, name string, key []byte) *box {
	return &box{
		keeper: k, name: name, key: key, created: time.Now(), ready: make(chan struct{}), gone: make(chan struct{}),
		commands: make(map[*native.Job]*command),
	}
}

// make builds the sandbox from the plan that the client is asked for.
func (b *box) make(c *conn) {
	defer close(b.ready)
	b.err = b.build(c)
	if b.err != nil {
		b.keeper.forget(b)
		return
	}
	go b.attend()
}

// attend clears up after the sandbox.
func (b *box) attend() {
	<-b.resident.Done()
	b.closeView()
	b.output.end()
	b.leave()
	close(b.gone)
	b.keeper.forget(b)
}

func (b *box) build(c *conn) error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	b.keeper.mu.Lock()
	b.key = p.Key
	b.keeper.mu.Unlock()
	return b.raise(p, func(line string) { _ = c.send(tellNote, Note{line}) }) // it may be gone
}

// raise builds the sandbox of a plan, and says what its user should know.
func (b *box) raise(p *Plan, note func(line string)) (err error) {
	b.spec = &p.Spec
	b.frame, b.roots = frameKey(b.spec), chosen(p.Environ, rootVariables)
	if err := b.hold(); err != nil {
		return err
	}
	b.resident, b.gate, err = b.open(p)
	if err != nil {
		b.leave()
		return err
	}
	if err := b.nameSandbox(); err != nil {
		b.resident.Close()
		b.leave()
		return err
	}
	b.ports = b.gate.Exposed()
	for _, line := range b.gate.Chosen() {
		note(line)
	}
	return nil
}

// House builds a sandbox that stays, by a runtime that the Spec names.
type House func(s *spec.Spec) (*native.Resident, error)

// open has the runtime of a plan build its sandbox.
func (b *box) open(p *Plan) (*native.Resident, *gate.Gate, error) {
	ours := b.spec.Runtime == "" || b.spec.Runtime == spec.RuntimeNative || b.spec.Runtime == spec.RuntimeBwrap
	if house := b.keeper.house; house != nil && !ours {
		return sandbox.OpenResidentBy(func() (*native.Resident, error) { return house(b.spec) }, b.spec, p.Environ, b.network, b.ask)
	}
	o := native.Options{Report: b.denied, Files: p.Files, View: b.openView}
	if b.spec.Runtime != spec.RuntimeBwrap {
		o.Nascent = b.keeper.takeExpected(b.name).begun()
	}
	r, g, err := sandbox.OpenResident(b.spec, o, p.Environ, b.network, b.ask)
	if err != nil && o.Nascent != nil {
		o.Nascent.Abandon()
	}
	return r, g, err
}

// network records what the network gate tells. A denial is told to whom it
// concerns, once, and if that is not known to everybody who waits for a command.
func (b *box) network(e *event.Event) {
	e.Sandbox = b.name
	b.keeper.audit.Emit(e)
	b.recent.Emit(e)
	b.stir()
	if e.Kind != event.Deny {
		return
	}
	for _, line := range event.Summary([]event.Event{*e}) {
		only, _ := b.concerned(e.Pid)
		for _, c := range b.unaware(line, only) {
			_ = c.send(tellNote, Note{line}) // it may be gone
		}
	}
}

// unaware are the clients that have not been told something. Now they have. If it
// concerns only one of them, the others need not know.
func (b *box) unaware(line string, only *command) (list []*conn) {
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	for _, c := range b.commands {
		if only != nil && c != only {
			continue
		}
		if c.conn != nil && !slices.Contains(c.told, line) && len(c.told) < maxTold {
			c.told = append(c.told, line)
			list = append(list, c.conn)
		}
	}
	return list
}

// maxTold is as many lines as somebody would read.
const maxTold = 20

// count counts a user or a hold. The keeper's mutex is held.
func (b *box) count(hold bool, n int) {
	if hold {
		b.holds += n
		b.held = true
	} else {
		b.users += n
	}
	b.announce()
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *box) setLinger(d time.Duration) {
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	if d > 0 {
		b.linger = d
	}
}

// isWanted says whether somebody uses it. One that is held is there for its
// holders: commands that they left behind do not keep it.
func (b *box) isWanted() bool { return b.holds > 0 || !b.held && b.users > 0 }

// release is called by who has acquired it. One that is wanted by nobody ends
// after a while, or at once if it takes no commands any more.
func (b *box) release(hold bool) {
	b.keeper.mu.Lock()
	b.count(hold, -1)
	b.used = time.Now()
	end := false
	switch {
	case b.isWanted() || b.resident == nil:
	case b.leaving:
		end = true
	case b.linger > 0:
		b.timer = time.AfterFunc(b.linger, b.expire)
	}
	b.keeper.mu.Unlock()
	if end {
		b.resident.Close()
	}
}

// expire ends a sandbox that nobody wanted for long enough.
func (b *box) expire() {
	b.keeper.mu.Lock()
	if b.isWanted() {
		b.keeper.mu.Unlock()
		return
	}
	b.leaving = true
	if b.keeper.boxes[b.name] == b {
		delete(b.keeper.boxes, b.name)
	}
	b.keeper.mu.Unlock()
	b.resident.Close()
}

// finish ends a sandbox that takes no commands any more, unless some still run:
// the last of those ends it.
func (b *box) finish() {
	<-b.ready
	b.keeper.mu.Lock()
	wanted := b.holds > 0 || b.users > 0
	b.keeper.mu.Unlock()
	if b.err == nil && !wanted {
		b.resident.Close()
		<-b.gone // the next one may want the same workspace
	}
}

// stop asks the commands to end, gives them some time, and ends everything.
func (b *box) stop(grace time.Duration) {
	<-b.ready
	if b.err != nil {
		return
	}
	b.keeper.mu.Lock()
	jobs := slices.Collect(maps.Keys(b.commands))
	b.keeper.mu.Unlock()
	for _, j := range jobs {
		_ = j.Signal(unix.SIGTERM) // it may just have ended
		_ = j.Signal(unix.SIGCONT)
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	for _, j := range jobs {
		select {
		case <-j.Done():
			continue
		case <-deadline.C:
		case <-b.resident.Done():
		}
		break
	}
	b.resident.Close()
	<-b.gone
}

// command is one that runs in a box.
type command struct {
	argv []string
	pid  uint32 // inside
	conn *conn  // of its client, or nil
	told []string

	questions questions
}

// denied is a call that was refused, and the processes it comes from, up to the
// first one below process 1, as they are numbered inside.
type denied struct {
	Denial
	from []uint32
}

// maxEarly bounds what is kept for commands that have only just started.
const maxEarly = 64

// denied tells the client whose command it was.
func (b *box) denied(d broker.Denial) {
	e := denied{Denial{d, broker.ProcessName(d.Pid)}, broker.Ancestors(d.Pid)}
	b.recent.Emit(e.event(b.name))
	b.stir()
	b.keeper.mu.Lock()
	var to *conn
	found := false
	for _, c := range b.commands {
		if slices.Contains(e.from, c.pid) {
			to, found = c.conn, true
		}
	}
	if !found && len(b.commands) < b.users && len(b.early) < maxEarly {
		b.early = append(b.early, e)
		b.keeper.mu.Unlock()
		return
	}
	b.keeper.mu.Unlock()
	b.deliver(to, e)
}

// deliver tells a client. What belongs to none is recorded.
func (b *box) deliver(to *conn, e denied) {
	if to != nil && to.send(tellDenial, e.Denial) == nil {
		return
	}
	b.keeper.audit.Emit(e.event(b.name))
}

// add makes a command known, and delivers what was denied to it before that.
func (b *box) add(j *native.Job, c *command) {
	c.pid = uint32(j.Pid())
	b.keeper.mu.Lock()
	b.commands[j] = c
	b.announce()
	early := b.early
	if len(b.commands) == b.users {
		b.early = nil
	} else {
		b.early = slices.DeleteFunc(slices.Clone(early), func(e denied) bool { return slices.Contains(e.from, c.pid) })
	}
	last := b.early == nil
	b.keeper.mu.Unlock()
	for _, e := range early {
		switch {
		case slices.Contains(e.from, c.pid):
			b.deliver(c.conn, e)
		case last:
			b.deliver(nil, e)
		}
	}
}

func (b *box) remove(j *native.Job) {
	b.keeper.mu.Lock()
	delete(b.commands, j)
	b.keeper.mu.Unlock()
	b.release(false)
}

// run runs a command for a client.
func (k *Keeper) run(c *conn, r *received) error {
	var run Run
	if err := r.decode(&run); err != nil {
		return err
	}
	if len(r.files) != 3 || len(run.Argv) == 0 {
		return errors.New("a command has arguments and three streams")
	}
	b, err := k.acquire(c, run.Name, run.Key, run.Linger, false)
	if err != nil {
		return err
	}
	launch := native.Launch{
		Exec: run.Exec, Argv: run.Argv, Env: run.Env, Dir: run.Dir, Umask: run.Umask, Terminal: run.Terminal,
		Streams: [3]*os.File(r.files),
	}
	if run.Key == nil {
		b.complete(&launch, run.Term)
	}
	if run.Detach {
		return b.detach(c, launch)
	}
	job, err := b.resident.Start(launch)
	r.close() // the command has its own
	if err != nil {
		b.release(false)
		return err
	}
	defer b.remove(job)
	if job.Terminal != nil {
		err = c.send(tellStarted, nil, job.Terminal)
		_ = job.Terminal.Close()
	}
	cmd := &command{argv: run.Argv, conn: c}
	defer cmd.questions.close()
	b.add(job, cmd)
	if err != nil {
		_ = job.Kill()
	}
	before, _ := b.resident.Used()
	c.follow(job, cmd.questions.answer, func() { b.tellLimits(c, before) })
	return nil
}

// complete fills in what a command gets from a sandbox that is known by name
// only.
func (b *box) complete(l *native.Launch, term string) {
	l.Exec = nil // found there
	l.Dir = b.spec.Dir
	l.Env = slices.Clone(b.spec.Env)
	if term == "" {
		return
	}
	l.Env = slices.DeleteFunc(l.Env, func(v string) bool { return strings.HasPrefix(v, "TERM=") })
	l.Env = append(l.Env, "TERM="+term)
}

// follow tells the client how its command fares, and passes on the signals and
// the answers it sends. A client that is gone takes its command along. Before its
// end is told, something else may be.
func (c *conn) follow(job *native.Job, answer func(byte), before func()) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		for {
			st := job.Wait()
			if !st.Stopped() {
				before()
			}
			_ = c.send(tellStatus, Status{uint32(st.Wait), st.Killed}) // its end is noticed below
			if !st.Stopped() {
				_ = c.file.SetReadDeadline(time.Unix(1, 0)) // there is nothing to read for any more
				return
			}
		}
	}()
	var buf [64]byte
	for {
		n, err := c.file.Read(buf[:])
		for _, sig := range buf[:n] {
			switch {
			case sig&answerBit != 0:
				answer(sig)
			case unix.Signal(sig) == unix.SIGKILL:
				_ = job.Kill()
			default:
				_ = job.Signal(unix.Signal(sig)) // it may just have ended
			}
		}
		if err != nil {
			break
		}
	}
	_ = job.Kill() // does nothing after its end
	<-told
}

// detach starts a command that nobody waits for.
func (b *box) detach(c *conn, l native.Launch) error {
	out, in, err := os.Pipe()
	if err != nil {
		b.release(false)
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.release(false)
		return errors.Join(err, out.Close(), in.Close())
	}
	l.Streams, l.Terminal = [3]*os.File{null, in, in}, nil
	job, err := b.resident.Start(l)
	_ = in.Close()
	_ = null.Close()
	if err != nil {
		_ = out.Close()
		b.release(false)
		return err
	}
	b.add(job, &command{argv: l.Argv})
	go func() {
		_, _ = io.Copy(&b.output, out) // until nobody holds the other end
		_ = out.Close()
	}()
	go func() {
		<-job.Done()
		b.remove(job)
	}()
	return c.send(tellStarted, nil)
}
