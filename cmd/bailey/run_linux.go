package main

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// prepared is a sandbox on the way, and the caller's terminal.
type prepared struct {
	embryo  *native.Embryo
	tty     *terminal.Session
	report  report
	net     counters
	account account
	started bool // the command ran
	// refused, if not nil, is called when the machine refuses to build the sandbox.
	refused func(error) int
}

// prepare begins the part of a sandbox that no policy changes, so that it is
// made while this process reads and compiles the policy.
func prepare(r *request, log *trace.Log) (*prepared, error) {
	o := native.Options{Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Trace: log, Account: r.stats}
	p := &prepared{}
	if r.stats {
		p.account.begun = time.Now()
	}
	if r.monitor {
		p.report.monitor = newMonitor(&p.report, r.json)
		o.Observe = p.report.monitor.observe
	}
	return p, p.begin(o)
}

// begin begins the sandbox with these options.
func (p *prepared) begin(o native.Options) (err error) {
	if p.tty, err = terminal.Open(o.Streams); err != nil {
		return err
	}
	o.Report = p.report.denied
	if p.tty != nil {
		o.Terminal = &native.Terminal{Streams: p.tty.Streams, Termios: &p.tty.Termios, Size: &p.tty.Size}
	}
	p.embryo, err = native.Begin(o)
	return err
}

// foresee has what can be known of the network begun as well.
func (p *prepared) foresee(from policy.Policy) { p.embryo.Foresee(spec.Foresee(from)) }

func (p *prepared) abandon() { p.embryo.Abandon() }

// run runs a Spec to its end and returns the exit status.
func (p *prepared) run(r *request, s *spec.Spec) int {
	if m := p.report.monitor; m != nil {
		if err := m.watch(s, p.tty); err != nil {
			p.abandon()
			return fail(err)
		}
	}
	g, err := gate.Prepare(s)
	if err != nil {
		p.abandon()
		return fail(err)
	}
	r.tell(g.Chosen())
	proc, err := p.embryo.Start(s)
	if err != nil {
		g.Close()
		if p.refused != nil {
			return p.refused(err)
		}
		return startFailed(s, err)
	}
	p.started = true
	p.begins(s, proc)
	if proc.Uncaptured && !r.settledQuiet() {
		say(tagWarning, "this kernel cannot capture connections (nftables): only programs that use the proxy variables get out")
	}
	if g.Asks() {
		g.Ask = newAsker(r, p.tty, true, func() { _ = proc.Signal(unix.SIGWINCH) }).askFunc()
	}
	if err := g.Attend(proc, p.report.network); err != nil {
		say(tagError, err.Error())
	}
	// From here on the command runs. What follows happens beside it and adds
	// nothing to its start; a signal before this ends everything, as it would
	// end a program that has not installed its handlers yet.
	if s.Network == spec.NetworkNone && !r.settledQuiet() {
		p.net = openCounters(proc.Pid)
	}
	state, expired := follow(proc, forwardTo(proc), p.tty, proc.Terminal, s.TimeoutMillis)
	g.Close() // it tells what it has still to tell
	if proc.Err != nil {
		say(tagError, proc.Err.Error())
	}
	return p.conclude(r, state, expired, s.TimeoutMillis)
}

// process is a command that runs.
type process interface {
	Wait() native.State
	Signal(sig unix.Signal) error
}

// forwarder has signals of this process sent to the command.
type forwarder func(list ...unix.Signal)

func forwardTo(proc *native.Process) forwarder {
	pidfd, err := unix.PidfdOpen(proc.Pid, 0)
	if err != nil { // the command has ended, or the kernel has no memory left
		return func(...unix.Signal) {}
	}
	return func(list ...unix.Signal) { signals.Forward(pidfd, list...) }
}

// follow waits for a command while people, programs and the caller's terminal
// have their way with it.
func follow(proc process, forward forwarder, tty *terminal.Session, master *os.File, millis int64) (state native.State, expired bool) {
	if tty != nil {
		defer tty.Suspend() // also when something here panics
		tty.Attach(master)
	}
	forwardSignals(proc, forward, tty)
	limit := sandbox.LimitTime(proc.Signal, millis)
	state = wait(proc, tty, millis > 0)
	expired = limit.Stop()
	if tty != nil {
		tty.Close() // before anything is said
		interruptJob(state, tty.Alone())
	}
	return state, expired
}

// conclude says what there is to say at the end and returns the exit status.
func (p *prepared) conclude(r *request, state native.State, expired bool, millis int64) int {
	if p.report.monitor != nil {
		p.report.monitor.show()
	}
	if !r.settledQuiet() {
		p.report.show()
		if state.Wait.Exited() && state.Wait.ExitStatus() != 0 && !expired && p.net.wasTried() {
			say(tagWarning, "the network is closed, and the command tried to use it; if that is why it failed: --allow-network")
		}
	}
	if r.settledDebug() {
		say(tagNote, "the command ended: "+describeState(state))
	}
	hits := p.tellLimits()
	if expired {
		p.report.limit(limits.Hit{Name: "timeout"})
	}
	status := exitStatus(state, expired, millis)
	if r.stats && p.account.used != nil {
		p.tellStats(r, p.stats(hits, expired, status))
	}
	return status
}

// wait returns how the command ended. When it stops, this process stops.
// A command under a time limit could stop this process, and the limit with it,
// so then it is left to stop alone.
func wait(p process, tty *terminal.Session, limited bool) native.State {
	for {
		state := p.Wait()
		if !state.Stopped() {
			return state
		}
		if limited {
			continue
		}
		if tty != nil {
			tty.Suspend()
		}
		stopSelf(unix.Signal(state.Wait.StopSignal()), tty != nil && tty.Alone())
		if tty != nil {
			tty.Resume()
		}
		_ = p.Signal(unix.SIGCONT)
		if tty != nil {
			_ = p.Signal(unix.SIGWINCH) // a full-screen program paints again
		}
	}
}

// stopSelf stops this process in the way the command was stopped, and returns
// when it is continued. If the command had the terminal for itself, Ctrl-Z was
// meant for the whole job, of which the caller's terminal knew nothing.
//
// It must run on the main thread, which the kernel prefers for signals: then
// the stop happens before kill returns.
func stopSelf(sig unix.Signal, job bool) {
	pid := unix.Getpid()
	if sig == unix.SIGSTOP {
		_ = unix.Kill(pid, sig)
		return
	}
	if job {
		pid = 0
	}
	// A job without a shell that could continue it does not stop by default.
	signals.WithDefault(sig, func() { _ = unix.Kill(pid, sig) })
}

// interruptJob dies of the interrupt that ended the command, together with the
// rest of the job, if the command had the terminal for itself: the caller's
// terminal took Ctrl-C for a byte, so a loop or a script around this program
// heard nothing of it and would go on.
func interruptJob(state native.State, alone bool) {
	sig := state.Wait.Signal()
	if !alone || state.Killed || !state.Wait.Signaled() || sig != unix.SIGINT && sig != unix.SIGQUIT {
		return
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // it is not this program that failed
	signals.WithDefault(sig, func() { _ = unix.Kill(0, sig) })
}

// forwardSignals passes on what people and programs send. What faults cause
// stays this process's own.
func forwardSignals(p process, forward forwarder, tty *terminal.Session) {
	forward(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP)
	if tty == nil {
		forward(unix.SIGCONT, unix.SIGWINCH)
		return
	}
	go followTerminal(p, tty)
}

// followTerminal does what signals about the caller's terminal ask for.
func followTerminal(p process, tty *terminal.Session) {
	arrived := make(chan os.Signal, 16)
	signal.Notify(arrived, unix.SIGWINCH, unix.SIGCONT)
	tty.Resize() // it may have changed before
	for sig := range arrived {
		if sig == unix.SIGWINCH {
			tty.Resize()
			continue
		}
		tty.Resume()
		_ = p.Signal(unix.SIGCONT) // fails only when the command has ended
	}
}

func exitStatus(state native.State, expired bool, millis int64) int {
	ws := state.Wait
	switch {
	case expired:
		say(tagError, "timed out after "+(time.Duration(millis)*time.Millisecond).String())
		return exitTimeout
	case state.Killed:
		say(tagError, "the sandbox was killed from outside")
		return exitSignal + int(unix.SIGKILL)
	case ws.Signaled():
		return exitSignal + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func describeState(state native.State) string {
	switch {
	case state.Killed:
		return "killed from outside"
	case state.Wait.Signaled():
		return "signal " + unix.SignalName(state.Wait.Signal())
	}
	return "status " + strconv.Itoa(state.Wait.ExitStatus())
}

// startFailed says why nothing ran.
func startFailed(s *spec.Spec, err error) int {
	var refused *native.LaunchError
	var exec *native.ExecError
	switch {
	case errors.As(err, &refused):
		say(tagError, err.Error())
		explainLaunch(refused)
		return exitOwn
	case errors.As(err, &exec):
		return explainExec(s, exec)
	}
	return fail(err)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
