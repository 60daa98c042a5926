package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// becomeCommand is the whole program in a process that the landlock runtime has
// started to become a command.
func becomeCommand() {
	if os.Args[0] == landlock.ChildName {
		os.Exit(landlock.Become())
	}
}

// launchRestricted runs a command on a machine that refused to build a sandbox
// before the command's policy was known.
func launchRestricted(r *request, argv []string, log *trace.Log, cause error) int {
	if !lacksNamespaces(cause) {
		return startFailed(nil, cause)
	}
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	if wants, err := r.wantsImage(m); wants || err != nil {
		if err != nil {
			return fail(err)
		}
		return r.runCommand(log)
	}
	over, err := supposedOverlay(m)
	if err != nil {
		return fail(err)
	}
	s, status := r.compileWith(m, spec.Command{Argv: argv, Overlay: over}, log)
	if s == nil {
		return status
	}
	if s.Runtime == spec.RuntimeLandlock {
		cause = nil
	}
	return r.runRestricted(m, s, cause)
}

// runRestricted runs a Spec without namespaces if it can be held that way, and
// says otherwise why the machine refused them.
func (r *request) runRestricted(m *sandbox.Manager, s *spec.Spec, cause error) int {
	if cause != nil && (!lacksNamespaces(cause) || s.Runtime != "") {
		return startFailed(s, spec.Locate(cause, m.Loaded().Policy.Origins))
	}
	return r.runAlone(m.Loaded().Policy, s, cause)
}

// lacksNamespaces says whether a launch failed because namespaces, or what only
// exists in them, cannot be had here.
func lacksNamespaces(err error) bool {
	var e *native.LaunchError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Wall {
	case native.WallUser, native.WallMount, native.WallProc, native.WallIPC, native.WallUTS, native.WallCgroup, native.WallNetwork, native.WallInit:
		return slices.Contains([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL, unix.ENOSYS, unix.EUSERS}, e.Errno)
	}
	return false
}

// runAlone runs a Spec with Landlock, a filter and a broker, and nothing else. The
// cause is why there are no namespaces; nil if the policy wants none.
func (r *request) runAlone(p policy.Policy, s *spec.Spec, cause error) int {
	if err := r.checkAlone(p); err != nil {
		return refuseAlone(s, cause, spec.Locate(err, p.Origins))
	}
	a, err := landlock.PrepareAlone(s, landlock.Options{
		Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Begun: forwardAlone,
	})
	if err != nil {
		return refuseAlone(s, cause, spec.Locate(err, p.Origins))
	}
	g, err := gate.Prepare(s)
	if err != nil {
		return fail(err)
	}
	defer g.Close()
	r.announceAlone(a, cause)
	run := &prepared{}
	signals.IgnoreStops()
	run.report.Of(s)
	proc, err := a.Start("/proc/self/exe", run.report.Denied)
	if err != nil {
		return refuseAlone(s, cause, spec.Locate(err, p.Origins))
	}
	g.Beside(proc.Pid, proc.Listeners, run.report.Network)
	proc.AtEnd = g.Close
	limit := sandbox.LimitTime(proc.Signal, s.TimeoutMillis)
	state := proc.Wait()
	expired := limit.Stop()
	if proc.Err != nil {
		say(tagError, proc.Err.Error())
	}
	return run.conclude(r, state, expired, s.TimeoutMillis)
}

// checkAlone refuses what needs more than a policy: a broker that only observes,
// an account of what is used, and walls that are insisted on.
func (r *request) checkAlone(p policy.Policy) error {
	const fix = "remove it, or " + landlock.Elsewhere
	var reasons []*spec.Unsupported
	refuse := func(key, value string) {
		reasons = append(reasons, &spec.Unsupported{Key: key, Value: value, Reason: "needs namespaces", Fix: fix})
	}
	if r.monitor {
		refuse("--monitor", "")
	}
	if r.stats {
		refuse("--stats", "")
	}
	for _, layer := range p.Require {
		if !slices.Contains([]string{"landlock", "seccomp"}, layer) {
			refuse("require", layer)
		}
	}
	if len(reasons) > 0 {
		return &spec.Refused{Reasons: reasons}
	}
	return nil
}

// refuseAlone says why nothing ran: what the landlock runtime cannot hold, and why
// it would have been needed.
func refuseAlone(s *spec.Spec, cause, err error) int {
	var refused *spec.Refused
	var exec *native.ExecError
	if cause == nil && errors.As(err, &refused) {
		for _, reason := range refused.Reasons {
			reason.Fix = strings.Replace(reason.Fix, landlock.Elsewhere, "leave out the runtime landlock", 1)
		}
	}
	if cause == nil || errors.As(err, &exec) {
		return startFailed(s, err)
	}
	status := startFailed(s, cause)
	if errors.As(err, &refused) {
		say(tagError, "without namespaces this policy cannot be held:\n"+err.Error())
	} else {
		say(tagError, "nor can it be done without namespaces: "+err.Error())
	}
	return status
}

// announceAlone says what the command has less, and what it shares. That its walls are
// weaker though nobody asked for that is said to those too who want to hear nothing.
func (r *request) announceAlone(a *landlock.Alone, cause error) {
	var missing *native.LaunchError
	if errors.As(cause, &missing) {
		say(tagWarning, fallenBack(missing))
	}
	if r.settledQuiet() {
		return
	}
	for _, w := range a.Warnings {
		say(tagWarning, w)
	}
	say(tagNote, "the landlock runtime is used: new directories for HOME and TMPDIR, and shared with everybody here are "+
		printable(strings.Join(a.Shared, ", ")))
}

// fallenBack names the wall for want of which the landlock runtime is used, in one line.
func fallenBack(e *native.LaunchError) string {
	text := "weaker walls: the landlock runtime is used, since a wall is missing: " + string(e.Wall)
	d := diagnose(e)
	if d.Cause == "" {
		return text + " (" + e.Error() + "); see: bailey doctor"
	}
	text += "; cause: " + d.Cause
	if d.Fix != "" {
		text += "; fix: " + d.Fix
	}
	return text
}

// forwardAlone passes on what people and programs send. The command is in the
// process group of this one, so what a terminal sends reaches both, and this one
// outlives it; without a terminal only this one gets it.
func forwardAlone(pidfd int) {
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return // signals end this process, and with it the command
	}
	list := []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
	if hasControllingTerminal() {
		signal.Ignore(unix.SIGINT, unix.SIGQUIT)
	} else {
		list = append(list, unix.SIGINT, unix.SIGQUIT)
	}
	signals.Forward(fd, list...)
}

func hasControllingTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
