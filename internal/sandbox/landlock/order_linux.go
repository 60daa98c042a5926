package landlock

import (
	"errors"
	"io"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// ChildName is what a program of Bailey's is called by itself to confine itself
// and become a command: see Become.
const ChildName = "bailey-become"

// order says what a child is to become.
type order struct {
	Walls     Walls
	Streams   [3]uint64
	Argv      []string
	Exec, Env []string
	Dir       string
	Rlimits   []spec.Rlimit
}

// Descriptors of a child besides its streams.
const (
	fdOrder = 3 // a pipe with the order
	fdTell  = 4 // a socket for what happens
)

// What a child tells: that it listens, with the listener, or why nothing runs.
const (
	tellListener = 'L'
	tellFailed   = 'F' // followed by a failure
	tellNoExec   = 'X' // followed by the error's number
)

// failure is a native.LaunchError, as it is told.
type failure struct {
	Step  string
	Errno uint64
	Wall  string
}

// Become reads an order, confines the calling thread and becomes the command. It
// returns only if that fails, with an exit status. A program whose name is
// ChildName must call it before anything else, on its main thread.
func Become() int {
	err := become()
	var exec *native.ExecError
	var launch *native.LaunchError
	switch {
	case errors.As(err, &exec):
		tell([]byte{tellNoExec, byte(exec.Errno), byte(exec.Errno >> 8)})
	case errors.As(err, &launch):
		tell(wire.Append([]byte{tellFailed}, failure{launch.Step, uint64(launch.Errno), string(launch.Wall)}))
	default:
		tell(wire.Append([]byte{tellFailed}, failure{err.Error(), uint64(unix.EIO), string(native.WallInit)}))
	}
	return 125
}

// tell says something to the one who started this process; if that is gone there
// is nobody to hear it.
func tell(message []byte) { _, _ = unix.Write(fdTell, message) }

func become() error {
	data, err := io.ReadAll(os.NewFile(fdOrder, "order"))
	if err != nil {
		return err
	}
	var o order
	if err := wire.Decode(data, &o); err != nil {
		return err
	}
	p := &Plan{spec: &spec.Spec{Argv: o.Argv, Exec: o.Exec, Env: o.Env, Dir: o.Dir, Rlimits: o.Rlimits}}
	for _, step := range []func() error{
		p.limits, p.enter, closeOthers, noNewPrivileges, dropCapabilities, dieWithParent,
		func() error { return restrict(&o.Walls, o.Streams) },
		o.Walls.listen,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	// What the thread had from its parent; see package native.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	return p.execute()
}

// dieWithParent ends the command with the one who answers its calls.
func dieWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return failed(native.WallInit, "die with the launcher", err)
	}
	if strconv.Itoa(unix.Getppid()) != os.Getenv(parentVariable) {
		return failed(native.WallInit, "die with the launcher", unix.ESRCH) // it has died already
	}
	return nil
}

// parentVariable tells a child its parent's number. The command does not get it:
// its environment is in the order.
const parentVariable = "BAILEY_PARENT"

// listen installs the filter and hands out the listener.
func (w *Walls) listen() error {
	if len(w.Filter) == 0 {
		return nil
	}
	// A call that was taken by the broker is not interrupted by signals, or it would be
	// performed twice.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, errno := Install(w.Filter, flags)
	switch errno {
	case 0:
	case unix.EBUSY:
		return failed(native.WallSeccomp, "ask a broker, which the sandbox around this one does already", errno)
	default:
		return failed(native.WallSeccomp, "install the system call filter", errno)
	}
	if !w.Datagrams {
		err := unix.Sendmsg(fdTell, []byte{tellListener}, unix.UnixRights(fd), nil, 0)
		return failed(native.WallSeccomp, "hand out the listener", err)
	}
	// Nobody can be asked about this message yet. What lets it through is taken back at
	// once.
	if err := unix.Sendmsg(fdTell, []byte{tellListener}, unix.UnixRights(fd), nil, seccomp.HandOut); err != nil {
		return failed(native.WallSeccomp, "hand out the listener", err)
	}
	if _, errno := Install(seccomp.Assemble(seccomp.HandedOut()), 0); errno != 0 {
		return failed(native.WallSeccomp, "install the system call filter", errno)
	}
	return nil
}

// Install adds a filter to the calling thread's.
func Install(filter []seccomp.Instruction, flags uintptr) (int, unix.Errno) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return int(fd), errno
}

// encode is the order in the form that a child reads.
func (o *order) encode() []byte { return wire.Append(nil, *o) }
