package sandbox

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/bwrap"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// alone is a command in a sandbox of its own.
type alone struct {
	mu    sync.Mutex
	proc  *native.Process // nil once it has ended
	pid   int
	done  chan struct{}
	state State
	limit *Limit
	gate  *gate.Gate
	ask   gate.AskFunc
	// environ is what the gate has for its environment, this process's if it is nil.
	environ []string

	limits *spec.Limits
}

// Launch starts the command of a Spec. A thread is set apart for the sandbox,
// which would otherwise die with whichever thread started it.
func (m *Manager) Launch(s *spec.Spec, streams [3]*os.File) (Running, error) {
	r := &alone{done: make(chan struct{}), limits: s.Limits, ask: m.config.Ask, environ: m.outside()}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the broker makes the thread unfit for others
		proc, err := r.start(s, native.Options{Streams: streams})
		if err == nil {
			r.proc, r.pid = proc, proc.Pid
			r.limit = LimitTime(r.Signal, s.TimeoutMillis)
		}
		started <- err
		if err == nil {
			r.wait(proc)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

// start starts the sandbox, with a network gate if it needs one.
func (r *alone) start(s *spec.Spec, o native.Options) (*native.Process, error) {
	g, err := gate.Prepare(s)
	if err != nil {
		return nil, err
	}
	if g != nil {
		g.Environ = r.environ
	}
	start := native.Start
	if s.Runtime == spec.RuntimeBwrap {
		start = bwrap.Start
	}
	proc, err := start(s, o)
	if err != nil {
		g.Close()
		return nil, err
	}
	if g.Asks() {
		g.Ask = r.ask
	}
	r.gate = g
	_ = g.Attend(proc, nil) // if it fails, connections are refused
	return proc, nil
}

// Limit is the policy's timeout for a command that runs.
type Limit struct {
	expired atomic.Bool
	ask     *time.Timer
	kill    *time.Timer
}

// LimitTime ends a command after a while: first it is asked to end, and soon
// after killed. Zero milliseconds are no limit.
func LimitTime(signal func(unix.Signal) error, millis int64) *Limit {
	const grace = 2 * time.Second
	l := &Limit{}
	if millis <= 0 {
		return l
	}
	after := time.Duration(millis) * time.Millisecond
	l.ask = time.AfterFunc(after, func() {
		l.expired.Store(true)
		_ = signal(unix.SIGTERM) // it may just have ended
		_ = signal(unix.SIGCONT)
	})
	l.kill = time.AfterFunc(after+grace, func() { _ = signal(unix.SIGKILL) })
	return l
}

// Stop says that the command has ended, and reports whether that was the
// limit's doing.
func (l *Limit) Stop() bool {
	if l.ask != nil {
		l.ask.Stop()
		l.kill.Stop()
	}
	return l.expired.Load()
}

// wait collects the end. The process is forgotten before its number can be
// given to another.
func (r *alone) wait(proc *native.Process) {
	for {
		st := proc.Peek()
		if st.Stopped() {
			continue
		}
		r.mu.Lock()
		end := proc.Finish(st)
		r.proc = nil
		r.mu.Unlock()
		r.gate.Close()
		r.state = stateOf(end)
		r.state.TimedOut = r.limit.Stop()
		r.state.Met = metBy(proc.Used, r.limits)
		r.state.Changes = proc.Changes
		close(r.done)
		return
	}
}

func (r *alone) Done() <-chan struct{} { return r.done }

func (r *alone) Pid() int { return r.pid }

func (r *alone) State() State { return r.state }

func (r *alone) Signal(sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return os.ErrProcessDone
	}
	return r.proc.Signal(sig)
}

// metBy names the limits that were met.
func metBy(used limits.Usage, l *spec.Limits) (names []string) {
	for _, h := range used.Hits(l) {
		names = append(names, h.Name)
	}
	return names
}

func stateOf(st native.State) State {
	switch {
	case st.Wait.Exited() && !st.Killed:
		return State{Code: st.Wait.ExitStatus()}
	case st.Wait.Signaled():
		return State{Code: -1, Signal: int(st.Wait.Signal()), Killed: st.Killed}
	}
	return State{Code: -1, Killed: true}
}
