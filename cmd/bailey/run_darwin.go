package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox/seatbelt"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// prepared is a command about to run under Seatbelt.
type prepared struct {
	macOS   policy.MacOS
	refused func(error) int
}

func discard() {}

// prepare refuses what the flags ask for and Seatbelt has no part in.
func prepare(r *request, _ *trace.Log) (*prepared, error) {
	switch {
	case r.monitor:
		return nil, errors.New("--monitor: the seatbelt runtime cannot tell what a command misses; run it without")
	case r.stats:
		return nil, errors.New("--stats: the seatbelt runtime does not account for what a sandbox uses; run it without")
	}
	return &prepared{}, nil
}

func (p *prepared) foresee(from policy.Policy) { p.macOS = from.MacOS }

func (*prepared) draft(*spec.Spec) {}

func (*prepared) abandon() {}

// run runs a Spec to its end and returns the exit status.
func (p *prepared) run(_ *request, s *spec.Spec) int {
	if err := refuseMacOS(p.macOS); err != nil {
		return fail(err)
	}
	arrived := make(chan os.Signal, 16)
	signal.Notify(arrived, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH)
	proc, err := seatbelt.Start(s, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		return startFailed(s, err)
	}
	go forwardTo(proc, arrived)
	limit := time.Duration(s.TimeoutMillis) * time.Millisecond
	status, expired, err := proc.Wait(limit)
	switch {
	case err != nil:
		return fail(err)
	case expired:
		say(tagError, "timed out after "+limit.String())
		return foreground.TimedOut
	case status.Signaled():
		return foreground.Signalled + int(status.Signal())
	}
	return status.ExitStatus()
}

// refuseMacOS refuses services beyond those that every command has. The policy's
// key is not a part of a Spec, which is the same on every system.
func refuseMacOS(m policy.MacOS) error {
	const fix = " is not carried out by this version; remove it"
	isTrue := func(b *bool) bool { return b != nil && *b }
	switch {
	case len(m.Mach.Lookup) > 0 || len(m.Mach.Register) > 0:
		return errors.New("macos.mach" + fix)
	case isTrue(m.AllowTrustd):
		return errors.New("macos.allowTrustd" + fix)
	case isTrue(m.AllowAppleEvents):
		return errors.New("macos.allowAppleEvents" + fix)
	case isTrue(m.EnableWeakerSandbox):
		return errors.New("macos.enableWeakerNestedSandbox" + fix)
	}
	return nil
}

// forwardTo passes signals on to the command. It has a session without a terminal,
// in which a request to stop from the keyboard has no effect, so it is stopped by
// force, and this process with it.
func forwardTo(proc *seatbelt.Process, arrived <-chan os.Signal) {
	for sig := range arrived {
		if sig == syscall.SIGTSTP {
			_ = proc.Signal(syscall.SIGSTOP)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			continue
		}
		_ = proc.Signal(sig.(syscall.Signal)) // fails only when the command has ended
	}
}

// startFailed says why nothing ran.
func startFailed(_ *spec.Spec, err error) int {
	var exec *seatbelt.ExecError
	if !errors.As(err, &exec) {
		return fail(err)
	}
	say(tagError, err.Error())
	if exec.Missing {
		return foreground.NotFound
	}
	return foreground.NotRunnable
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
