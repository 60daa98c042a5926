package oci

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A runtime's own walls are not all. Where the host's kernel is the command's, the first
// process has the command put up two more around itself before it is executed: Landlock,
// and the filter that asks the broker, on top of the runtime's. It does that in the
// container, as the command's user, so it takes no privilege and can weaken nothing. The
// filter's listener goes out by the way by which the first process tells what happens.
//
// Runtimes could install such a filter themselves and send its listener to a socket. Those
// that distributions have do not take the flag by which a call that the broker performs is
// not interrupted and performed twice, and Landlock would be missing still.

// HasWalls says whether commands under a runtime can put up walls of their own: gVisor's
// kernel has neither Landlock nor listeners, and those of a sandbox that stays do not.
func HasWalls(runtime string) bool {
	return !slices.Contains(spec.Brokerless(), runtime) && !strings.HasSuffix(runtime, bareSuffix)
}

// wallsOf are the walls that a command under a runtime puts up, or nil.
func wallsOf(s *spec.Spec, runtime string) (*landlock.Walls, error) {
	if !HasWalls(runtime) {
		return nil, nil
	}
	return landlock.WallsOf(s)
}

// Attendance is the broker of a sandbox at work.
type Attendance struct {
	broker *broker.Broker
	stop   *os.File
	done   chan struct{}
}

// Sender is who sent a listener, as the kernel says: the first process of a sandbox.
type Sender struct {
	*unix.Ucred
	// Shared says that it is in the same user namespace as this process.
	Shared bool
}

// Attend has the calls of a sandbox answered that its listener tells of, from now on and
// until End, and told of as the options say. Commands of the sandbox begin with the given
// file mode mask.
func Attend(s *spec.Spec, from Sender, listener int, mask uint32, o broker.Options) (*Attendance, error) {
	if s.Broker == nil || from.Ucred == nil || from.Pid <= 0 {
		_ = unix.Close(listener)
		return nil, errors.New("a listener came that nobody asked for")
	}
	until, stop, err := os.Pipe()
	if err != nil {
		_ = unix.Close(listener)
		return nil, err
	}
	if int(from.Uid) != os.Geteuid() {
		o.User = &broker.User{UID: from.Uid, GID: from.Gid, Traces: from.Shared}
	}
	a := &Attendance{broker: broker.New(s, int(from.Pid), o), stop: stop, done: make(chan struct{})}
	a.broker.Listen(listener, mask)
	go a.serve(until)
	return a, nil
}

// serve answers calls. If it fails nothing is decided any more, so nothing is allowed.
func (a *Attendance) serve(until *os.File) {
	defer close(a.done)
	defer until.Close()
	runtime.LockOSThread() // never unlocked: the broker makes the thread unfit for others
	_ = a.broker.Serve(int(until.Fd()))
	a.broker.Close()
}

// End ends it. Calls that still wait fail.
func (a *Attendance) End() {
	if a == nil {
		return
	}
	_ = a.stop.Close()
	<-a.done
}
