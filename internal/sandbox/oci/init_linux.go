package oci

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// statusFD is the first process's end of the pipe by which it tells what becomes of
// the command.
const statusFD = 3

// What the first process tells: a wait status, or one of these.
const (
	toldStarted = 1 << 32
	toldFailed  = 1 << 33 // plus the error: the command could not be executed
	toldWaiting = 1 << 34 // it is ready for an assignment
	toldBegun   = 1 << 35 // from here on the command may run
	// The listener of the command's filter comes with it.
	toldListener = 1 << 36
	// Plus the length of a text that follows, filled up to a multiple of toldSize: why a
	// wall could not be put up.
	toldRefused = 1 << 37
	// What the command and all that it left have used follows, in usedWords numbers.
	toldUsed = 1 << 38
)

const usedWords = 5

const toldSize = 8

// Words on the first process's command line: whether it is told of walls that it has the
// command put up, before which it starts nothing.
const (
	wallsWord = "walls"
	bareWord  = "bare"
)

// initArgs is the command line of the first process: its name, whether it is told of
// walls, the stream that is the command's terminal, how many programs to try, these, and
// the command.
func initArgs(s *spec.Spec, walls string, stream int) []string {
	args := []string{initPath, walls, strconv.Itoa(stream), strconv.Itoa(len(s.Exec))}
	return append(append(args, s.Exec...), s.Argv...)
}

// first is the first process of a sandbox. It has the command's user and filter and
// no privilege; what it does the command could do as well.
type first struct {
	stream int  // descriptor of the command's terminal, or -1
	waits  bool // for the command; see await
	walled bool // there must be walls
	walls  *landlock.Walls
	// listen hands out the listener of the command's filter.
	listen func(fd int) error

	exec []string
	argv []string
	env  []string
	dir  string
	// relayed says that somebody outside reads the command's streams for whoever
	// has their other ends, and tells of a broken pipe by its signal.
	relayed bool
	pid     int
}

func parseFirst(args []string) (*first, bool) {
	if len(args) < 3 || args[1] != wallsWord && args[1] != bareWord {
		return nil, false
	}
	f := &first{stream: -1, walled: args[1] == wallsWord, listen: tellListener}
	if len(args) == 3 && args[2] == waitWord {
		f.waits = true
		return f, true
	}
	if len(args) < 4 {
		return nil, false
	}
	stream, err := strconv.Atoi(args[2])
	count, err2 := strconv.Atoi(args[3])
	rest := args[4:]
	if err != nil || err2 != nil || count < 0 || count >= len(rest) {
		return nil, false
	}
	f.stream, f.exec, f.argv, f.env = stream, rest[:count], rest[count:], os.Environ()
	return f, true
}

// run starts the command and stays until it has ended. It returns the command's status,
// for those who call a runtime by hand; it is told exactly.
func (f *first) run() int {
	runtime.LockOSThread()
	// Nothing inside may trace this process or use its descriptors.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.CloseOnExec(statusFD)
	arrived := make(chan os.Signal, 64)
	signal.Notify(arrived)
	// A session of its own: the caller's terminal is out of reach.
	_, _ = unix.Setsid() // the runtime may have done it
	if f.stream >= 0 {
		_ = unix.IoctlSetInt(f.stream, unix.TIOCSCTTY, 0) // and this
	}
	if f.waits || f.walled && f.walls == nil {
		if err := f.await(); err != nil || f.walled != (f.walls != nil) {
			return 1 // whoever waits for an answer sees the end of this process
		}
	}
	tell(toldBegun)
	if err := f.start(); err != nil {
		return tellFailure(err)
	}
	tell(toldStarted)
	// The command's streams are its own: whoever reads them sees their end when the
	// command closes them.
	for fd := range statusFD {
		_ = unix.Close(fd)
	}
	go func() {
		for sig := range arrived {
			f.pass(sig.(unix.Signal))
		}
	}()
	ws := f.reap()
	if ws.Signaled() {
		return foreground.Signalled + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// tellFailure tells why there is no command, and returns the status to exit with.
func tellFailure(err error) int {
	var wall *native.LaunchError
	if !errors.As(err, &wall) {
		tell(toldFailed | uint64(native.ErrnoOf(err)))
		return foreground.NotFound
	}
	text := wall.Error()
	tell(toldRefused | uint64(len(text)))
	padded := append([]byte(text), make([]byte, -len(text)&(toldSize-1))...)
	_, _ = unix.Write(statusFD, padded)
	return foreground.Own
}

// tellListener hands out a listener, and closes it.
func tellListener(fd int) error {
	err := unix.Sendmsg(statusFD, binary.NativeEndian.AppendUint64(nil, toldListener), unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	_ = unix.Close(fd)
	return os.NewSyscallError("hand out the listener", err)
}

// start starts the command, behind its walls if there are some.
func (f *first) start() (err error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if f.stream >= 0 {
		attr = &syscall.SysProcAttr{Foreground: true, Ctty: f.stream}
	}
	if f.walls == nil {
		return f.startBare(&syscall.ProcAttr{Env: f.env, Dir: f.dir, Files: []uintptr{0, 1, 2}, Sys: attr})
	}
	in := &landlock.Inner{Walls: *f.walls, Exec: f.exec, Argv: f.argv, Env: f.env, Dir: cmp.Or(f.dir, ".")}
	f.pid, err = in.Start(initPath, [3]uintptr{0, 1, 2}, attr, f.listen)
	return err
}

// startBare tries the programs in order. That one is missing is no reason not to try the
// next, and neither is one that may not be executed, but then that is the error.
func (f *first) startBare(attr *syscall.ProcAttr) (err error) {
	err = unix.ENOENT
	for _, name := range f.exec {
		var tried error
		f.pid, tried = syscall.ForkExec(name, f.argv, attr)
		switch {
		case tried == nil:
			return nil
		case errors.Is(tried, unix.EACCES):
			err = tried
		case !errors.Is(tried, unix.ENOENT) && !errors.Is(tried, unix.ENOTDIR):
			return tried
		}
	}
	return err
}

// pass hands a signal on. HUP, INT, QUIT, CONT, TSTP and WINCH concern the whole job,
// as from a terminal.
func (f *first) pass(sig unix.Signal) {
	pid := f.pid
	switch sig {
	case unix.SIGPIPE:
		if !f.relayed {
			return
		}
		pid = -pid
	case unix.SIGCHLD, unix.SIGURG, unix.SIGTTIN, unix.SIGTTOU: // of this process's own doing
		return
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGCONT, unix.SIGTSTP, unix.SIGWINCH:
		pid = -pid
	}
	_ = unix.Kill(pid, sig)
}

// reap takes in every child that has something to tell, until the command has ended.
func (f *first) reap() (ws unix.WaitStatus) {
	for {
		pid, err := unix.Wait4(-1, &ws, unix.WUNTRACED|unix.WCONTINUED, nil)
		if err == unix.EINTR {
			continue
		}
		if pid == f.pid && (ws.Exited() || ws.Signaled()) {
			tellUsed()
		}
		if pid == f.pid {
			tell(uint64(uint32(ws)))
		}
		if err != nil || pid == f.pid && (ws.Exited() || ws.Signaled()) {
			return ws
		}
	}
}

// tellUsed tells what the processes have used that this one has taken in.
func tellUsed() {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) != nil {
		return
	}
	text := binary.NativeEndian.AppendUint64(nil, toldUsed)
	for _, n := range [usedWords]int64{used.Utime.Nano(), used.Stime.Nano(), used.Maxrss, used.Inblock, used.Oublock} {
		text = binary.NativeEndian.AppendUint64(text, uint64(n))
	}
	_, _ = unix.Write(statusFD, text)
}

// usedIn is what was told so.
func usedIn(text []byte) *unix.Rusage {
	number := func(i int) int64 { return int64(binary.NativeEndian.Uint64(text[i*toldSize:])) }
	return &unix.Rusage{
		Utime: unix.NsecToTimeval(number(0)), Stime: unix.NsecToTimeval(number(1)),
		Maxrss: number(2), Inblock: number(3), Oublock: number(4),
	}
}

func tell(what uint64) {
	_, _ = unix.Write(statusFD, binary.NativeEndian.AppendUint64(nil, what))
}
