//go:build unix

package seatbelt

import (
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Program is what applies a profile and becomes the command. It belongs to the
// system, and is never looked for elsewhere.
const Program = "/usr/bin/sandbox-exec"

// Process is a command that runs under a profile, in a session of its own: so it
// cannot type into the caller's terminal, and has no other signals than those it is
// sent by Signal.
type Process struct {
	process *os.Process
	scratch *Scratch
}

// ExecError says that the command's program cannot be started.
type ExecError struct {
	Name string
	// Missing says that there is none; otherwise it cannot be executed.
	Missing bool
}

func (e *ExecError) Error() string {
	if e.Missing {
		return e.Name + ": command not found"
	}
	return e.Name + ": cannot be executed; chmod +x makes a program of a file"
}

// Start starts the command of a Spec. It changes the limits of the calling process,
// which the command inherits, and lets no descriptor be inherited but the streams.
func Start(s *spec.Spec, streams [3]*os.File) (*Process, error) { return start(Program, s, streams) }

func start(program string, s *spec.Spec, streams [3]*os.File) (*Process, error) {
	if err := Refuses(s, Options{}); err != nil {
		return nil, err
	}
	if err := CheckSpelling(s, truename); err != nil {
		return nil, err
	}
	argv, err := resolve(s)
	if err != nil {
		return nil, err
	}
	scratch, err := NewScratch(s)
	if err != nil {
		return nil, err
	}
	process, err := launch(program, s, argv, scratch, streams)
	if err != nil {
		scratch.Remove()
		return nil, err
	}
	return &Process{process, scratch}, nil
}

func launch(program string, s *spec.Spec, argv []string, scratch *Scratch, streams [3]*os.File) (*os.Process, error) {
	profile, err := New(s, Options{Scratch: scratch.Dir})
	if err != nil {
		return nil, err
	}
	if err := setLimits(s.Rlimits); err != nil {
		return nil, err
	}
	if err := keepDescriptors(); err != nil {
		return nil, err
	}
	return os.StartProcess(program, append([]string{program}, profile.Arguments(argv)...), &os.ProcAttr{
		Dir: s.Dir, Env: scratch.Environ(s), Files: streams[:], Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// resolve replaces the command's name by its program.
func resolve(s *spec.Spec) ([]string, error) {
	missing := true
	for _, file := range s.Exec {
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		if unix.Access(file, unix.X_OK) == nil {
			return append([]string{file}, s.Argv[1:]...), nil
		}
		missing = false
	}
	return nil, &ExecError{s.Argv[0], missing}
}

// rlimits are those that hold for a process here as they do on Linux.
var rlimits = map[string]int{"core": unix.RLIMIT_CORE, "nofile": unix.RLIMIT_NOFILE}

func setLimits(list []spec.Rlimit) error {
	for _, l := range list {
		if err := unix.Setrlimit(rlimits[l.Name], &unix.Rlimit{Cur: l.Value, Max: l.Value}); err != nil {
			return errors.New("limit " + l.Name + " of " + strconv.FormatUint(l.Value, 10) + ": " + err.Error())
		}
	}
	return nil
}

// keepDescriptors keeps those that the caller left open from being inherited.
func keepDescriptors() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Signal sends a signal to the command and what it started, as far as that is in
// its process group. After its end it does nothing.
func (p *Process) Signal(sig syscall.Signal) error { return unix.Kill(-p.process.Pid, sig) }

// Wait returns how the command ended, and whether the limit of time, if that is not
// zero, ended it. What is left of its process group is killed.
func (p *Process) Wait(limit time.Duration) (status syscall.WaitStatus, expired bool, err error) {
	defer p.scratch.Remove()
	stop := p.endAfter(limit)
	state, err := p.process.Wait()
	expired = stop()
	_ = p.Signal(syscall.SIGKILL) // there may be nobody left
	if err != nil {
		return 0, expired, err
	}
	return state.Sys().(syscall.WaitStatus), expired, nil
}

// endAfter asks the command to end when its time is over, and kills it if it does
// not. The function it returns says that it has ended, and reports whether it was
// asked to.
func (p *Process) endAfter(limit time.Duration) (stop func() bool) {
	const grace = 2 * time.Second
	if limit <= 0 {
		return func() bool { return false }
	}
	var expired atomic.Bool
	ask := time.AfterFunc(limit, func() {
		expired.Store(true)
		_ = p.Signal(syscall.SIGTERM) // it may just have ended
		_ = p.Signal(syscall.SIGCONT)
	})
	kill := time.AfterFunc(limit+grace, func() { _ = p.Signal(syscall.SIGKILL) })
	return func() bool {
		ask.Stop()
		kill.Stop()
		return expired.Load()
	}
}
