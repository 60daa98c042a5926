package oci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// A sandbox can be built before its command is known. It is the same sandbox, from the
// same bundle; only its first process waits for an assignment on its socket, with which
// the command's streams come, instead of finding the command on its command line. So a
// command in it is behind the same walls as in one that was built for it, and nobody has
// used it before.

// waitWord is the first process's argument if it is to wait.
const waitWord = "wait"

// assignment is what a first process is told that waits.
type assignment struct {
	// Command is for a sandbox that was built before; its streams come along.
	Command *assigned
	// Walls are what the command puts up around itself.
	Walls *landlock.Walls
}

// assigned is a command for a sandbox that waits.
type assigned struct {
	Exec, Argv, Env []string
	Dir             string
	Umask           int
}

// maxAssignment bounds what the first process reads: more than any kernel executes.
const maxAssignment = 8 << 20

// Nursery builds sandboxes that wait. They end with this process, however it ends.
type Nursery struct {
	jobs   chan func()
	serial atomic.Uint32
}

// NewNursery returns a nursery. It works for as long as the process lives.
func NewNursery() *Nursery {
	n := &Nursery{jobs: make(chan func())}
	go n.work()
	return n
}

// work builds one sandbox after the other. Guards die with the thread that started
// them, so this one never ends.
func (n *Nursery) work() {
	runtime.LockOSThread()
	for job := range n.jobs {
		job()
	}
}

// Raise builds the sandbox of a Spec, by the runtime that the Spec names, and returns
// when its first process waits for a command.
func (n *Nursery) Raise(s *spec.Spec) (*Waiting, error) {
	e := engineOf(s.Runtime)
	if e == nil {
		return nil, errors.New("runtime " + s.Runtime + ": has no sandboxes that wait")
	}
	if err := e.Refuses(s); err != nil {
		return nil, err
	}
	if PortsOf(s) != nil {
		return nil, errors.New("a sandbox with ports that lead to the network gate is built for its command")
	}
	return n.raise(e, s)
}

func (n *Nursery) raise(e *Engine, s *spec.Spec) (w *Waiting, err error) {
	program, err := e.find()
	if err != nil {
		return nil, err
	}
	box := s.Box()
	box.Dir = "/"
	serial := n.serial.Add(1)
	c := &command{group: groupName(s), control: -1, pidfd: -1}
	if c.group != "" {
		c.group += "-" + strconv.FormatUint(uint64(serial), 10)
	}
	built := make(chan struct{})
	n.jobs <- func() {
		defer close(built)
		err = c.wait(box, e.order(s, program), identityIn(s.Identity, firstWaiting+serial%(rangeCount-firstWaiting)))
	}
	<-built
	if err != nil {
		c.finish()
		_ = c.gate.Close() // which may not be there
		return nil, err
	}
	return newWaiting(c), nil
}

// wait builds a sandbox up to where its first process waits.
func (c *command) wait(s *spec.Spec, r runtimeOrder, id Identity) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	c.streams.inner, c.streams.stream = [3]*os.File{null, null, null}, -1
	o := optionsOf(s, r.Name, id)
	o.Stream, o.Cgroup, o.Waits = -1, c.group, true
	orders, err := c.spawn(s.Identity, id)
	if err != nil {
		return err
	}
	err = instruct(orders, s, o, r)
	_ = orders.Close()
	if err != nil {
		return err
	}
	return c.begin(start{gated: gateSocket(s) != "", linked: LinksOf(s) != nil, waits: true})
}

// Waiting is a sandbox that waits for a command.
type Waiting struct {
	c    *command
	done chan struct{}
}

func newWaiting(c *command) *Waiting {
	w := &Waiting{c: c, done: make(chan struct{})}
	go func() {
		waitFor(c.guard)
		removeGroup(c.group)
		close(w.done)
	}()
	return w
}

// IsReady says whether it still waits. One that has something to say has ended.
func (w *Waiting) IsReady() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.c.status.Fd()), Events: unix.POLLIN}, {Fd: int32(w.c.control), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// Done is closed when nothing of it is left.
func (w *Waiting) Done() <-chan struct{} { return w.done }

// Release returns what another process takes the sandbox over by; see Adopt. From then
// on it ends with whoever holds these descriptors, too.
func (w *Waiting) Release() (files []*os.File, pid int, group string, err error) {
	pidfd, err := unix.PidfdOpen(w.c.guard, 0)
	if err != nil {
		return nil, 0, "", os.NewSyscallError("pidfd_open", err)
	}
	files = []*os.File{os.NewFile(uintptr(w.c.control), "control"), w.c.status, os.NewFile(uintptr(pidfd), "guard")}
	if w.c.gate != nil {
		files = append(files, w.c.gate)
	}
	return files, w.c.guard, w.c.group, nil
}

// End ends it. The guard ends when nobody holds the other end of its socket.
func (w *Waiting) End() {
	_ = unix.Close(w.c.control)
	_ = w.c.status.Close()
	_ = w.c.gate.Close() // which may not be there
	<-w.done
}

var _ engine.Pooled = (*Engine)(nil)

// Adopt starts the command of a Spec in a sandbox that was built for it and waits.
func (e *Engine) Adopt(s *spec.Spec, o engine.Options, w engine.Waiting) (engine.Command, error) {
	if len(w.Files) < 3 || o.Terminal != nil {
		return nil, errors.New("a sandbox that waits has three descriptors, and no terminal")
	}
	c := &command{name: s.Argv[0], group: w.Group, guard: w.Pid, status: w.Files[1], used: limits.Unknown()}
	var err error
	c.control, err = unix.FcntlInt(w.Files[0].Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		c.pidfd, err = unix.FcntlInt(w.Files[2].Fd(), unix.F_DUPFD_CLOEXEC, 3)
	}
	_, _ = w.Files[0].Close(), w.Files[2].Close()
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if len(w.Files) > 3 {
		c.gate = w.Files[3]
	}
	if err := c.assign(e.name, s, o); err != nil {
		c.finish()
		_ = c.gate.Close() // which may not be there
		return nil, err
	}
	return c, nil
}

// assign gives a sandbox that waits its command.
func (c *command) assign(runtime string, s *spec.Spec, o engine.Options) error {
	walls, err := wallsOf(s, runtime)
	if err != nil {
		return err
	}
	if err := c.streams.open(o); err != nil {
		return err
	}
	a := assignment{Command: &assigned{Exec: s.Exec, Argv: s.Argv, Env: s.Env, Dir: s.Dir, Umask: Umask()}, Walls: walls}
	err = send(int(c.status.Fd()), a, c.streams.inner)
	c.streams.started()
	if err != nil {
		return fmt.Errorf("tell the sandbox its command: %w", err)
	}
	return c.begin(start{spec: s, walls: walls, interrupt: o.Interrupt, asked: o.Broker()})
}

// send writes an assignment: its length, itself, and with the first byte the streams of a
// command.
func send(to int, a assignment, streams [3]*os.File) error {
	text := wire.Append(make([]byte, toldSize), a)
	binary.NativeEndian.PutUint64(text, uint64(len(text)-toldSize))
	var rights []byte
	if a.Command != nil {
		rights = unix.UnixRights(int(streams[0].Fd()), int(streams[1].Fd()), int(streams[2].Fd()))
	}
	for len(text) > 0 {
		n, err := unix.SendmsgN(to, text, rights, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("sendmsg", err)
		default:
			text, rights = text[n:], nil
		}
	}
	return nil
}

// await has the first process wait for an assignment and take it as its own.
func (f *first) await() error {
	tell(toldWaiting)
	var size [toldSize]byte
	rights := make([]byte, unix.CmsgSpace(4*3))
	n, rn, err := Receive(statusFD, size[:], rights)
	if err != nil || n == 0 {
		return io.EOF
	}
	if _, err := io.ReadFull(statusReader{}, size[n:]); err != nil {
		return err
	}
	length := binary.NativeEndian.Uint64(size[:])
	if length > maxAssignment {
		return unix.E2BIG
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(statusReader{}, text); err != nil {
		return err
	}
	var a assignment
	if err := wire.Decode(text, &a); err != nil {
		return err
	}
	f.walls = a.Walls
	if !f.waits {
		return nil // it knows its command
	}
	if a.Command == nil {
		return unix.EINVAL
	}
	f.exec, f.argv, f.env, f.dir = a.Command.Exec, a.Command.Argv, a.Command.Env, a.Command.Dir
	unix.Umask(a.Command.Umask)
	return takeStreams(rights[:rn])
}

// takeStreams puts what came with an assignment in the place of the streams.
func takeStreams(rights []byte) error {
	fds, err := Descriptors(rights)
	if err != nil || len(fds) != statusFD {
		return errors.New("other than three streams came")
	}
	for i, fd := range fds {
		if err := unix.Dup3(fd, i, 0); err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	return nil
}

// statusReader reads what comes over the status descriptor without taking it over.
type statusReader struct{}

func (statusReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(statusFD, p)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
