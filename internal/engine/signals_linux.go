package engine

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// signals are those of this process that are the command's. What arrives before it runs
// is kept for it; what would end it may end the start instead, see Options.
type signals struct {
	arrived   chan os.Signal
	interrupt int           // readable when a signal has come that would end the command
	first     atomic.Int32  // that signal
	command   chan Command  // the command, once it runs
	stopped   chan struct{} // closed when nobody waits for it any more
}

// ends are the signals that end a command which does nothing about them.
var ends = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}

func newSignals() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	s := &signals{arrived: make(chan os.Signal, 16), interrupt: fd, command: make(chan Command), stopped: make(chan struct{})}
	notify(s.arrived, foreground.Passed())
	go s.pass()
	return s, nil
}

// pass keeps signals until there is a command, and passes them on then: here nothing else
// waits for the processor.
func (s *signals) pass() {
	var kept []os.Signal
	for waiting := true; waiting; {
		select {
		case sig := <-s.arrived:
			kept = append(kept, sig)
			if slices.Contains(ends, sig.(unix.Signal)) && s.first.CompareAndSwap(0, int32(sig.(unix.Signal))) {
				_, _ = unix.Write(s.interrupt, []byte{1, 0, 0, 0, 0, 0, 0, 0})
			}
		case c := <-s.command:
			for _, sig := range kept {
				_ = c.Signal(sig.(unix.Signal)) // fails only when the command has ended
			}
			for sig := range s.arrived {
				_ = c.Signal(sig.(unix.Signal))
			}
		case <-s.stopped:
			waiting = false
		}
	}
}

// forwardTo gives the signals to a command that runs.
func (s *signals) forwardTo(c Command) foreground.Forwarder {
	s.command <- c
	return func(list ...unix.Signal) { notify(s.arrived, list) }
}

// notify leaves alone what the caller ignores, as nohup does.
func notify(to chan os.Signal, list []unix.Signal) {
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// startFailed says why nothing ran.
func (s *signals) startFailed(err error) int {
	close(s.stopped)
	var exec *native.ExecError
	switch {
	case errors.Is(err, ErrInterrupted):
		return foreground.Signalled + int(s.first.Load())
	case !errors.As(err, &exec):
		status := fail(err)
		if d := host.NamespacesOff(); d.Cause != "" {
			say("cause: " + d.Cause)
			say("fix: " + d.Fix)
		}
		return status
	}
	say(exec.Error())
	if exec.Errno == unix.ENOENT || exec.Errno == unix.ENOTDIR {
		return foreground.NotFound
	}
	return foreground.NotRunnable
}
