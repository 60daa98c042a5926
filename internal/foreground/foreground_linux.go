package foreground

import (
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Process is a command that runs.
type Process interface {
	Wait() native.State
	Signal(sig unix.Signal) error
}

// Forwarder has signals of this process sent to the command.
type Forwarder func(list ...unix.Signal)

// Follow waits for a command while people, programs and the caller's terminal
// have their way with it. Master is the command's own terminal if tty is not nil.
// It must run on the main thread: see stopSelf.
func Follow(proc Process, forward Forwarder, tty *terminal.Session, master *os.File, millis int64) (state native.State, expired bool) {
	if tty != nil {
		defer tty.Suspend() // also when something here panics
		tty.Attach(master)
	}
	ForwardSignals(proc, forward, tty)
	limit := sandbox.LimitTime(proc.Signal, millis)
	state = wait(proc, tty, millis > 0)
	expired = limit.Stop()
	if tty != nil {
		tty.Close() // before anything is said
		interruptJob(state, tty.Alone())
	}
	return state, expired
}

// wait returns how the command ended. When it stops, this process stops.
// A command under a time limit could stop this process, and the limit with it,
// so then it is left to stop alone.
func wait(p Process, tty *terminal.Session, limited bool) native.State {
	for {
		state := p.Wait()
		if !state.Stopped() {
			return state
		}
		if limited {
			continue
		}
		if tty != nil {
			tty.Drain() // what was said before the stop is seen before it
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

// ForwardSignals passes on what people and programs send. What faults cause
// stays this process's own.
func ForwardSignals(p Process, forward Forwarder, tty *terminal.Session) {
	forward(Passed()...)
	if tty == nil {
		forward(unix.SIGCONT, unix.SIGWINCH)
		return
	}
	go followTerminal(p, tty)
}

// Passed are the signals that the command gets, terminal or not. They should be
// passed on before it runs: it may tell somebody that it is ready for them.
func Passed() []unix.Signal {
	return []unix.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP,
	}
}

// followTerminal does what signals about the caller's terminal ask for.
func followTerminal(p Process, tty *terminal.Session) {
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

// Status is the exit status that tells how a command ended, and what there is to
// say about it, if anything.
func Status(state native.State, expired bool, millis int64) (status int, text string) {
	ws := state.Wait
	switch {
	case expired:
		return TimedOut, "timed out after " + (time.Duration(millis) * time.Millisecond).String()
	case state.Killed:
		return Signalled + int(unix.SIGKILL), "the sandbox was killed from outside"
	case ws.Signaled():
		return Signalled + int(ws.Signal()), ""
	}
	return ws.ExitStatus(), ""
}

// Describe says how a command ended.
func Describe(state native.State) string {
	switch {
	case state.Killed:
		return "killed from outside"
	case state.Wait.Signaled():
		return "signal " + unix.SignalName(state.Wait.Signal())
	}
	return "status " + strconv.Itoa(state.Wait.ExitStatus())
}
