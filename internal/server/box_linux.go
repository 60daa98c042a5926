package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// box is a sandbox that runs.
type box struct {
	id, owner string
	pid       int           // process 1, as the host numbers it
	shell     string        // that lines are given to
	user      uint32        // of its commands, if that is not the server's own, or 0
	partial   bool          // only its workspace can be opened
	output    int64         // bytes that are kept of a command's output
	timeout   time.Duration // of every command, by the policy; or 0
	idleAfter time.Duration

	mu     sync.Mutex
	frozen bool
	busy   int // commands and sessions
	idle   *time.Timer
	over   bool
	halted bool  // it is meant to end
	peak   int64 // bytes of memory, as far as somebody saw

	tree tree // the workspace, for files
}

// tree is a directory that is open for as long as somebody uses it and the
// sandbox stands: an open descriptor keeps its mounts.
type tree struct {
	mu   sync.RWMutex
	dir  *os.File
	over bool
}

// hold returns the directory, which is opened if it is not, and what lets go of
// it.
func (t *tree) hold(open func() (*os.File, error)) (dir *os.File, release func(), err error) {
	for {
		t.mu.RLock()
		switch {
		case t.over:
			t.mu.RUnlock()
			return nil, nil, keeper.ErrMissing
		case t.dir != nil:
			return t.dir, t.mu.RUnlock, nil
		}
		t.mu.RUnlock()
		if err := t.open(open); err != nil {
			return nil, nil, err
		}
	}
}

func (t *tree) open(open func() (*os.File, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.dir != nil {
		return nil
	}
	dir, err := open()
	t.dir = dir
	return err
}

// close waits until nobody uses the directory, and closes it for good.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.dir != nil {
		_ = t.dir.Close()
		t.dir = nil
	}
}

const usualOutput = 16 << 20

func (s *Server) newBox(k *kept, st *keeper.Standing) *box {
	b := &box{
		pid: st.Pid, user: st.Owner, partial: st.Partial, timeout: st.Timeout,
		shell: s.shellIn(k.sandbox.GetImage()),
		id:    k.sandbox.GetId(), owner: k.sandbox.GetOwner(), output: k.sandbox.GetResources().GetOutputBytes(),
	}
	if b.output <= 0 {
		b.output = usualOutput
	}
	if d := k.sandbox.GetIdleTimeout(); d != nil {
		b.idleAfter = d.AsDuration()
	}
	return b
}

// within is the time that a command may take which asks for some, or for as much as there
// is.
func (b *box) within(asked time.Duration) time.Duration {
	if b.timeout > 0 && (asked == 0 || asked > b.timeout) {
		return b.timeout
	}
	return asked
}

// add makes a sandbox known that runs.
func (s *Server) add(b *box) {
	s.mu.Lock()
	s.boxes[b.id] = b
	s.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	s.watchIdle(b)
}

// highest is the most memory that was seen, of one command that has ended or of all
// processes at a time, this one included.
func (b *box) highest(now int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peak = max(b.peak, now)
	return b.peak
}

// watchIdle begins to count the time without a command. The box's mutex is held.
func (s *Server) watchIdle(b *box) {
	if b.idle != nil {
		b.idle.Stop()
	}
	if b.idleAfter <= 0 || b.busy > 0 || b.over {
		return
	}
	b.idle = time.AfterFunc(b.idleAfter, func() {
		b.mu.Lock()
		busy := b.busy > 0
		b.mu.Unlock()
		if !busy {
			s.behind(func(ctx context.Context) { s.reap(ctx, b.id, "it was idle for "+b.idleAfter.String()) })
		}
	})
}

// enter counts a command that runs in a sandbox, leave its end.
func (s *Server) enter(b *box) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return failed("sandbox_not_running", errors.New("the sandbox has ended"), problem.About("sandbox_id", b.id), problem.Remedy("start it"))
	case b.frozen:
		return failed("sandbox_paused", errors.New("the sandbox is paused"), problem.About("sandbox_id", b.id), problem.Remedy("resume it"))
	}
	b.busy++
	if b.idle != nil {
		b.idle.Stop()
	}
	return nil
}

func (s *Server) leave(b *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	s.watchIdle(b)
}

// running finds a sandbox of the caller's that runs. It asks the store only if
// there is none.
func (s *Server) running(ctx context.Context, id string) (*box, error) {
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b != nil {
		if !caller.From(ctx).Sees(b.owner) {
			return nil, problem.NotFound("sandbox", id)
		}
		return b, nil
	}
	k, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	return nil, failed("sandbox_not_running", errors.New("the sandbox is "+stateName(k.sandbox.GetState())),
		problem.About("sandbox_id", id), problem.Remedy("start it"))
}

// drop forgets a sandbox that runs no longer, and ends what is left of it here.
func (s *Server) drop(id string) *box {
	s.mu.Lock()
	b := s.boxes[id]
	delete(s.boxes, id)
	var execs []*execution
	for _, e := range s.execs {
		if e.box.id == id {
			execs = append(execs, e)
		}
	}
	var shells []*session
	for _, shell := range s.sessions {
		if shell.box.id == id {
			shells = append(shells, shell)
		}
	}
	s.mu.Unlock()
	if b == nil {
		return nil
	}
	b.mu.Lock()
	b.over = true
	if b.idle != nil {
		b.idle.Stop()
	}
	b.mu.Unlock()
	end := keeper.Execution{Killed: true, Wait: killedStatus, Ended: keeper.Now()}
	for _, e := range execs {
		e.tell(end)
	}
	for _, shell := range shells {
		shell.tell(end)
	}
	b.tree.close()
	return b
}

// killedStatus is the wait status of what SIGKILL has ended.
const killedStatus = 9

// lost is called when a sandbox has ended. If nobody here has ended it, that is
// written down.
func (s *Server) lost(id string) {
	b := s.drop(id)
	if b == nil {
		s.pool.lose(id)
		return
	}
	b.mu.Lock()
	halted := b.halted
	b.mu.Unlock()
	if !halted {
		s.behind(func(ctx context.Context) { s.writeOff(ctx, id) })
	}
}

// writeOff writes down that a sandbox has ended by itself, unless it was started
// again.
func (s *Server) writeOff(ctx context.Context, id string) {
	end := s.turns.take(id)
	defer end()
	s.mu.Lock()
	again := s.boxes[id] != nil
	s.mu.Unlock()
	if again {
		return
	}
	k, err := s.change(ctx, id, func(sb *baileyv1.Sandbox) error {
		if sb.GetState() == baileyv1.SandboxState_SANDBOX_STATE_RUNNING || sb.GetState() == baileyv1.SandboxState_SANDBOX_STATE_PAUSED {
			sb.State, sb.StateReason, sb.Ports = baileyv1.SandboxState_SANDBOX_STATE_FAILED, "its first process was ended from outside", nil
		}
		return nil
	})
	if err == nil {
		s.emitState(k.sandbox)
	}
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		s.log.Error("a sandbox that ended cannot be written down", "sandbox", id, "error", err)
	}
}

// recover takes over what an earlier server has left, and removes what belongs to
// nothing: nobody was ever told of it.
func (s *Server) recover(ctx context.Context) error {
	state, err := s.remote.State()
	if err != nil {
		return err
	}
	standing := make(map[string]keeper.Standing)
	for _, b := range state.Boxes {
		standing[b.Name] = b
	}
	page, err := s.store.List(ctx, store.Query{Kind: store.Sandboxes})
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, r := range page.Records {
		known[r.ID] = true
		k, err := load(r)
		if err != nil {
			s.setAside(err)
			continue
		}
		st, stands := standing[r.ID]
		if adopted, err := s.adopt(ctx, k, st, stands); err != nil {
			return err
		} else if adopted {
			delete(standing, r.ID)
		}
		s.plan(k)
	}
	for name := range standing {
		if err := s.remote.Stop(name, 0); err != nil && !errors.Is(err, keeper.ErrMissing) {
			return err
		}
	}
	spooled := s.adoptExecs(state.Execs)
	return errors.Join(s.followAll(ctx, known), s.sweepFiles(known), s.sweepSpool(spooled), s.sweepCodebases(ctx))
}

// sweepCodebases removes versions of codebases that are not current. Of a codebase
// whose record cannot be read all stay.
func (s *Server) sweepCodebases(ctx context.Context) error {
	page, err := s.store.List(ctx, store.Query{Kind: store.Codebases})
	if err != nil {
		return err
	}
	current, aside := map[string]bool{emptyCodebase: true}, make(map[string]bool)
	for _, r := range page.Records {
		c, err := loadCodebase(r)
		if err != nil {
			s.setAside(err)
			aside[r.ID] = true
			continue
		}
		current[c.place()] = true
	}
	list, err := s.files.Codebases()
	if err != nil {
		return err
	}
	for _, c := range list {
		if id, _, _ := strings.Cut(c.Name, "."); !current[c.Name] && !aside[id] {
			err = errors.Join(err, s.dropVersion(c.Name))
		}
	}
	return err
}

// adopt goes on with a sandbox that stands. One that should and does not has
// ended meanwhile.
func (s *Server) adopt(ctx context.Context, k *kept, st keeper.Standing, stands bool) (bool, error) {
	now := k.sandbox.GetState()
	runs := now == baileyv1.SandboxState_SANDBOX_STATE_RUNNING || now == baileyv1.SandboxState_SANDBOX_STATE_PAUSED
	if !runs {
		return false, nil
	}
	next, reason := baileyv1.SandboxState_SANDBOX_STATE_RUNNING, ""
	switch {
	case stands && st.Ending: // somebody wanted that, and was not told
		next, stands = baileyv1.SandboxState_SANDBOX_STATE_STOPPED, false
	case !stands:
		next, reason = baileyv1.SandboxState_SANDBOX_STATE_FAILED, "it ended while no server was there"
	case st.Frozen:
		next = baileyv1.SandboxState_SANDBOX_STATE_PAUSED
	}
	ports := portsOf(st.Ports) // which may have changed before that was written down
	if next != now || stands && !samePorts(ports, k.sandbox.GetPorts()) {
		if _, err := s.change(ctx, k.sandbox.GetId(), func(sb *baileyv1.Sandbox) error {
			sb.State, sb.StateReason = next, reason
			sb.Ports = ports
			if !stands {
				sb.Ports = nil
			}
			return nil
		}); err != nil {
			return false, err
		}
	}
	if stands {
		b := s.newBox(k, &st)
		b.frozen = st.Frozen
		s.add(b)
	}
	return stands, nil
}

// sweepFiles removes the files of sandboxes that are not known.
func (s *Server) sweepFiles(known map[string]bool) error {
	list, err := s.files.List()
	if err != nil {
		return err
	}
	for _, l := range list {
		if !known[l.Name] {
			err = errors.Join(err, s.removeFiles(l.Name))
		}
	}
	return err
}

// removeFiles removes what a sandbox wrote.
func (s *Server) removeFiles(id string) error {
	d, err := s.files.Store.Open(id, delta.Write)
	if errors.Is(err, delta.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Remove()
}
