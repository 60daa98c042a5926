package sandbox

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Running is a command in its sandbox, for programs that go on with other
// things meanwhile.
type Running struct {
	mu    sync.Mutex
	proc  *native.Process // nil once it has ended
	pid   int
	done  chan struct{}
	state State
	limit *Limit
}

// State is how a command ended.
type State struct {
	Code     int  // exit status, or -1
	Signal   int  // the signal that ended it, or 0
	Killed   bool // the sandbox was ended from outside
	TimedOut bool // the policy's timeout ended it
}

// Launch starts the command of a Spec. A thread is set apart for the sandbox,
// which would otherwise die with whichever thread started it.
func Launch(s *spec.Spec, streams [3]*os.File) (*Running, error) {
	r := &Running{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the broker makes the thread unfit for others
		proc, err := native.Start(s, native.Options{Streams: streams})
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
func (r *Running) wait(proc *native.Process) {
	for {
		st := proc.Peek()
		if st.Stopped() {
			continue
		}
		r.mu.Lock()
		end := proc.Finish(st)
		r.proc = nil
		r.mu.Unlock()
		r.state = stateOf(end)
		r.state.TimedOut = r.limit.Stop()
		close(r.done)
		return
	}
}

// Done is closed when the sandbox has ended and nothing of it is left.
func (r *Running) Done() <-chan struct{} { return r.done }

// Pid is process 1 of the sandbox, in the caller's numbering.
func (r *Running) Pid() int { return r.pid }

// State is how the command ended; it is valid once Done is closed.
func (r *Running) State() State { return r.state }

// Signal passes a signal on to the command. After its end it does nothing.
func (r *Running) Signal(sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return os.ErrProcessDone
	}
	return r.proc.Signal(sig)
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
