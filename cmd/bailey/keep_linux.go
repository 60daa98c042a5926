package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// launchKept runs a command in a sandbox that stays.
func launchKept(r *request, argv []string, log *trace.Log) int {
	if err := keeper.CheckName(r.keep.name); err != nil {
		return fail(err)
	}
	early := keeper.Connect()
	s, status := r.compileKept(argv, log)
	if s == nil {
		early.Close()
		return status
	}
	run := keeper.Run{
		Name: r.keep.name, Linger: r.keep.idle, Detach: r.keep.detach,
		Argv: s.Argv, Exec: s.Exec, Env: s.Env, Dir: s.Dir,
	}
	if run.Linger == 0 {
		run.Linger = defaultIdle
	}
	return runKept(r, early, run, s, log)
}

// compileKept is compileWith for a sandbox that stays.
func (r *request) compileKept(argv []string, log *trace.Log) (*spec.Spec, int) {
	m, err := r.manager()
	if err != nil {
		return nil, fail(err)
	}
	if wants, err := r.wantsImage(m); err != nil {
		return nil, fail(err)
	} else if wants {
		return nil, r.runCommand(log) // now that it is known where
	}
	over, err := r.keptOverlay(m, r.keep.name)
	if err != nil {
		return nil, fail(err)
	}
	return r.compileWith(m, spec.Command{Argv: argv, Overlay: over}, log)
}

// runKept runs a command of a sandbox that stays and returns the exit status.
// Without a Spec the sandbox must be there.
func runKept(r *request, early keeper.Early, run keeper.Run, s *spec.Spec, log *trace.Log) int {
	p := &prepared{}
	streams := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	if !run.Detach {
		var err error
		if p.tty, err = terminal.Open(streams); err != nil {
			early.Close()
			return fail(err)
		}
	}
	if p.tty != nil {
		run.Terminal = &native.Terminal{Streams: p.tty.Streams, Termios: &p.tty.Termios, Size: &p.tty.Size}
	}
	run.Umask = currentUmask()
	var cmd *keeper.Command
	var err error
	ask := askLater(func() *asker {
		return newAsker(r, p.tty, s != nil, func() { _ = cmd.Signal(unix.SIGWINCH) })
	})
	cmd, err = early.Start(run, s, streams, func(d keeper.Denial) { p.report.DeniedTo(d.Denial, d.Process) }, ask)
	if err != nil {
		return keptFailed(s, err)
	}
	defer cmd.Close()
	log.Mark("exec")
	if run.Detach {
		r.tell(cmd.Notes)
		return 0
	}
	var millis int64
	if s != nil {
		millis = s.TimeoutMillis
	}
	tell := func(list ...unix.Signal) { signals.Tell(cmd.Descriptor(), list...) }
	state, expired := foreground.Follow(cmd, tell, p.tty, cmd.Terminal, millis)
	r.tell(cmd.Notes)
	if cmd.Err != nil {
		return keptFailed(s, cmd.Err)
	}
	return p.conclude(r, state, expired, millis)
}

// tell says what the keeper wants the user to know.
func (r *request) tell(notes []string) {
	for _, note := range notes {
		if !r.settledQuiet() {
			say(tagNote, note)
		}
	}
}

func keptFailed(s *spec.Spec, err error) int {
	if s == nil {
		s = &spec.Spec{Dir: "/"}
	}
	if errors.Is(err, keeper.ErrMissing) {
		return fail(errors.New(err.Error() + "; see: bailey box ps"))
	}
	return startFailed(s, err)
}

// currentUmask returns the file mode mask, which can only be read by setting it.
func currentUmask() int {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return mask
}

// runBox does what "bailey box" is asked for.
func runBox(r *request) int {
	if insideSandbox() {
		return fail(errors.New("box: resident sandboxes are out of reach from inside one"))
	}
	if len(r.args) == 0 {
		return fail(r.usage())
	}
	word, rest := r.args[0], r.args[1:]
	switch {
	case word == "ps" && len(rest) == 0:
		return boxList(r)
	case word == "top" && len(rest) == 0:
		return boxTop(r)
	case word == "exec" && len(rest) > 1:
		run := keeper.Run{Name: rest[0], Argv: rest[1:], Term: os.Getenv("TERM")}
		return runKept(r, keeper.Connect(), run, nil, nil)
	case word == "stop" && r.keep.all != (len(rest) > 0):
		return boxStop(r, rest)
	case word == "reload" && len(rest) == 1:
		return boxReload(r, rest[0])
	case word == "logs" && len(rest) == 1:
		return boxLogs(r, rest[0])
	}
	return fail(r.usage())
}
