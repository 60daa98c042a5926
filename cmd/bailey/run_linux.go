package main

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/foreground"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox/bwrap"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// prepared is a sandbox on the way, and the caller's terminal.
type prepared struct {
	options native.Options
	embryo  *native.Embryo // nil if another runtime is asked for
	tty     *terminal.Session
	report  report
	net     counters
	views   []*keeper.Shown
	started bool // the command ran
	// changes is what it has written to an overlay in memory, or nil.
	changes *os.File
	// lesson, if not nil, answers what the network gate asks and hears what it tells.
	lesson *lesson
	// refused, if not nil, is called when the machine refuses to build the sandbox.
	refused func(error) int
}

// discard lets go what was begun for a command before the arguments were read.
func discard() { native.Discard() }

// prepare begins the part of a sandbox that no policy changes, so that it is
// made while this process reads and compiles the policy.
func prepare(r *request, log *trace.Log) (*prepared, error) {
	o := native.Options{Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Trace: log, Account: r.stats}
	p := &prepared{}
	if r.stats {
		p.report.Account.Begun = time.Now()
	}
	if r.monitor {
		p.report.Monitor = newMonitor(&p.report, r.json)
		o.Observe = p.report.Monitor.Observe
	}
	err := p.open(o)
	switch {
	case err != nil:
	case r.runtime == "" || r.runtime == "auto" || r.runtime == spec.RuntimeNative:
		p.embryo, err = native.Begin(p.options)
	case r.runtime == spec.RuntimeBwrap:
		p.embryo, err = bwrap.Begin(p.options)
	}
	return p, err
}

// begin begins the sandbox with these options.
func (p *prepared) begin(o native.Options) (err error) {
	if err = p.open(o); err == nil {
		p.embryo, err = native.Begin(p.options)
	}
	return err
}

// open looks for the caller's terminal.
func (p *prepared) open(o native.Options) (err error) {
	if p.tty, err = terminal.Open(o.Streams); err != nil {
		return err
	}
	o.Report, o.Begun, o.View = p.report.Denied, forwardEarly, p.view
	if p.tty != nil {
		o.Terminal = &native.Terminal{Streams: p.tty.Streams, Termios: &p.tty.Termios, Size: &p.tty.Size}
	}
	p.options = o
	return nil
}

// view has the keeper show the project, or an overlay, under path permissions.
func (p *prepared) view(r *spec.Rules, dir *os.File) (*os.File, error) {
	shown, err := keeper.OpenView(r, dir)
	if err != nil {
		return nil, err
	}
	p.views = append(p.views, shown) // for as long as this process runs
	return shown.Mount, nil
}

// foresee has what can be known of the network begun as well.
func (p *prepared) foresee(from policy.Policy) {
	if p.embryo != nil {
		p.embryo.Foresee(spec.Foresee(from))
	}
}

// draft has mounts made before all else is known.
func (p *prepared) draft(s *spec.Spec) {
	if p.embryo != nil {
		p.embryo.Draft(s)
	}
}

func (p *prepared) abandon() {
	if p.embryo != nil {
		p.embryo.Abandon()
	}
}

// start starts the command with the runtime that the Spec names.
func (p *prepared) start(s *spec.Spec) (*native.Process, error) {
	if s.Runtime == spec.RuntimeBwrap && !p.embryo.Helped() {
		p.abandon()
		return bwrap.Start(s, p.options)
	}
	return p.embryo.Start(s)
}

// run runs a Spec to its end and returns the exit status.
func (p *prepared) run(r *request, s *spec.Spec) int {
	if m := p.report.Monitor; m != nil {
		if err := m.Watch(s, p.tty); err != nil {
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
	signals.IgnoreStops()
	p.report.Of(s)
	proc, err := p.start(s)
	if err != nil {
		g.Close()
		if p.refused != nil {
			return p.refused(err)
		}
		return startFailed(s, err)
	}
	p.started = true
	p.begins(s, proc)
	p.changes = proc.Changes
	if proc.Uncaptured && !r.settledQuiet() {
		say(tagWarning, "this kernel cannot capture connections (nftables): only programs that use the proxy variables get out")
	}
	if g.Asks() {
		g.Ask = newAsker(r, p.tty, true, func() { _ = proc.Signal(unix.SIGWINCH) }).askFunc()
	}
	told := p.report.Network
	if p.lesson != nil && g != nil {
		g.Ask, told = p.lesson.listen(g.Ask, told)
	}
	if err := g.Attend(proc, told); err != nil {
		say(tagError, err.Error())
	}
	// From here on the command runs. What follows happens beside it and adds
	// nothing to its start; a signal before this ends everything, as it would
	// end a program that has not installed its handlers yet.
	if s.Network == spec.NetworkNone && !r.settledQuiet() {
		p.net = openCounters(proc.Pid)
	}
	state, expired := foreground.Follow(proc, forwardTo(proc), p.tty, proc.Terminal, s.TimeoutMillis)
	g.Close() // it tells what it has still to tell
	if proc.Err != nil {
		say(tagError, proc.Err.Error())
	}
	return p.conclude(r, state, expired, s.TimeoutMillis)
}

// forwardEarly is forwardTo for a command that is about to run.
func forwardEarly(pidfd int) {
	if fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		signals.Forward(fd, foreground.Passed()...)
	}
}

// forwardTo has signals of this process sent to process 1, which passes them on.
func forwardTo(proc *native.Process) foreground.Forwarder {
	pidfd, err := unix.PidfdOpen(proc.Pid, 0)
	if err != nil { // the command has ended, or the kernel has no memory left
		return func(...unix.Signal) {}
	}
	return func(list ...unix.Signal) { signals.Forward(pidfd, list...) }
}

// conclude says what there is to say at the end and returns the exit status.
func (p *prepared) conclude(r *request, state native.State, expired bool, millis int64) int {
	if p.report.Monitor != nil {
		p.report.Monitor.Show()
	}
	if !r.settledQuiet() {
		p.report.show()
		if state.Wait.Exited() && state.Wait.ExitStatus() != 0 && !expired && p.net.wasTried() {
			say(tagWarning, "the network is closed, and the command tried to use it; if that is why it failed: --allow-network")
		}
	}
	if r.settledDebug() {
		say(tagNote, "the command ended: "+foreground.Describe(state))
	}
	hits := p.tellLimits()
	if expired {
		p.report.Log(account.Event(limits.Hit{Name: "timeout"}))
	}
	p.report.Ended(state.Wait, state.Killed)
	status, text := foreground.Status(state, expired, millis)
	if text != "" {
		say(tagError, text)
	}
	if r.stats && p.report.Account.Used != nil {
		p.tellStats(r, p.report.Account.Stats(hits, expired, status))
	}
	return status
}

// startFailed says why nothing ran.
func startFailed(s *spec.Spec, err error) int {
	var refused *native.LaunchError
	var exec *native.ExecError
	var helper *native.HelperError
	switch {
	case errors.As(err, &refused):
		say(tagError, err.Error())
		explainLaunch(refused)
		return exitOwn
	case errors.As(err, &exec):
		return explainExec(s, exec)
	case errors.As(err, &helper):
		defer explain(host.NamespacesOff())
	}
	return fail(err)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
