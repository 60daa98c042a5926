package landlock

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// Process is a command that runs, and whatever it has started.
type Process struct {
	// Pid is the command's own.
	Pid int
	// Err says why calls that need a decision fail, if they all do.
	Err error
	// Listeners are for the network gate, if the Spec has one.
	Listeners []native.Listener
	// AtEnd, if not nil, is called when the command has ended, before what it has
	// left behind is, and with it every other child of this process.
	AtEnd func()

	pidfd   int
	broker  *broker.Broker
	haven   *haven
	passage *passage // nil without a gate
}

// Start runs the command. Program is the bailey command, which is run once more to
// become it. Report, if not nil, is told what the broker refuses, from several
// threads.
//
// The calling process adopts what the command leaves behind, so it must have no
// other children. The command dies with the calling thread, which must be locked
// and is used to answer calls in Wait.
func (a *Alone) Start(program string, report func(broker.Denial)) (*Process, error) {
	h, err := newHaven()
	if err != nil {
		return nil, err
	}
	p := &Process{haven: h, pidfd: -1}
	if err := a.start(p, program, report); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

func (a *Alone) start(p *Process, program string, report func(broker.Denial)) error {
	options := broker.Options{Report: report, Alone: true}
	if a.spec.Network == spec.NetworkGate {
		way, err := newPassage(a.spec.Gate)
		if err != nil {
			return err
		}
		p.passage, p.Listeners, options.Lead = way, way.listeners(), way.lead
	}
	if err := p.haven.furnish(a.home, a.spec.Mounts, a.private); err != nil {
		return err
	}
	o, err := a.order(p.haven)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	socket, err := p.launch(program, o.encode(), a)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	p.broker = broker.New(a.spec, p.Pid, options)
	if err := p.hear(socket, a.spec.Argv[0]); err != nil {
		p.end()
		return err
	}
	return nil
}

// order is what the child is told.
func (a *Alone) order(h *haven) (*order, error) {
	a.admit(h.dir)
	streams, err := native.StreamRights(a.spec, a.streams, a.check.abi)
	if err != nil {
		return nil, err
	}
	o := &order{
		Walls: Walls{ABI: a.check.abi, Rules: grants(a.check.rules), Scopes: scopes, Filter: seccomp.Assemble(a.check.filterAlone())}, Streams: streams,
		Argv: a.spec.Argv, Exec: a.spec.Exec, Env: h.environ(a.rename(a.spec.Env), a.home), Dir: a.spec.Dir, Rlimits: a.spec.Rlimits,
	}
	if a.spec.Network != spec.NetworkHost {
		o.Walls.Net = netRights
	}
	if a.spec.Gate != nil && a.spec.Gate.Transparent {
		o.Env = spec.WithProxyOptions(o.Env)
	}
	return o, nil
}

// launch starts the child, and returns the socket on which it tells.
func (p *Process) launch(program string, order []byte, a *Alone) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()
	read, write, err := os.Pipe()
	if err != nil {
		_ = unix.Close(pair[0])
		return -1, err
	}
	defer write.Close()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // which the child inherits; see package native
	child, err := os.StartProcess(program, []string{ChildName}, &os.ProcAttr{
		Env:   []string{parentVariable + "=" + strconv.Itoa(os.Getpid())},
		Files: []*os.File{a.streams[0], a.streams[1], a.streams[2], read, theirs},
	})
	_ = read.Close()
	if err == nil {
		p.Pid = child.Pid
		p.pidfd, err = unix.PidfdOpen(child.Pid, 0)
		_ = child.Release()
	}
	if err == nil && a.begun != nil {
		a.begun(p.pidfd)
	}
	if err == nil {
		_, err = write.Write(order)
	}
	if err != nil {
		_ = unix.Close(pair[0])
		p.end()
		return -1, err
	}
	return pair[0], nil
}

// hear takes over the listener, and waits until the command runs or is known not
// to.
func (p *Process) hear(socket int, name string) error {
	listen := func(fd int) error {
		p.broker.Listen(fd, currentMask())
		return nil
	}
	return hear(socket, name, hearing{listen: listen, serve: p.broker.Serve})
}

// hearing is what is done with what a child tells before it is the command.
type hearing struct {
	listen func(fd int) error // takes the listener of its filter
	// walled says that it has none. Otherwise it must hand one over, after which serve, if
	// not nil, answers its calls until it tells something more.
	walled bool
	serve  func(until int) error
}

// hear waits until a child is the command, or is known not to become it.
func hear(socket int, name string, h hearing) error {
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for {
		if h.walled && h.serve != nil {
			if err := h.serve(socket); err != nil {
				return err
			}
		}
		n, control, _, _, err := unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("recvmsg", err)
		case n == 0 && h.walled:
			return nil // it has been executed, which closed the other end, or has ended
		case n == 0:
			return &native.LaunchError{Step: "start the child", Errno: unix.ECHILD, Wall: native.WallInit}
		case buf[0] != tellListener:
			return told(buf[:n], name)
		}
		fd, err := descriptorIn(oob[:control])
		if err == nil {
			err = h.listen(fd)
		}
		if err != nil {
			return err
		}
		h.walled = true
	}
}

// told is the error that a child tells of.
func told(message []byte, name string) error {
	if message[0] == tellNoExec && len(message) == 3 {
		return &native.ExecError{Name: name, Errno: unix.Errno(uint16(message[1]) | uint16(message[2])<<8)}
	}
	var f failure
	if err := wire.Decode(message[1:], &f); err != nil {
		return err
	}
	return &native.LaunchError{Step: f.Step, Errno: unix.Errno(f.Errno), Wall: native.Wall(f.Wall)}
}

func descriptorIn(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return -1, errors.New("the child sent no listener")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("the child sent no listener")
	}
	return fds[0], nil
}

// currentMask is the file mode mask of this process, which its children have.
func currentMask() uint32 {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return uint32(mask)
}

// Wait answers the command's calls until it has ended, ends whatever it has left
// behind and tells how it ended.
func (p *Process) Wait() native.State {
	if err := p.broker.Serve(p.pidfd); err != nil {
		p.Err = err
		p.broker.Close() // nothing is decided any more, so nothing is allowed
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(p.Pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if p.AtEnd != nil {
		p.AtEnd()
	}
	p.endOthers()
	p.release()
	return native.State{Wait: ws}
}

// Signal passes a signal on to the command.
func (p *Process) Signal(sig unix.Signal) error { return unix.PidfdSendSignal(p.pidfd, sig, nil, 0) }

// end kills a child that did not become the command.
func (p *Process) end() {
	if p.Pid != 0 {
		_ = unix.Kill(p.Pid, unix.SIGKILL)
		_, _ = unix.Wait4(p.Pid, nil, 0, nil)
	}
	p.endOthers()
}

func (p *Process) release() {
	if p.broker != nil {
		p.broker.Close()
	}
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
	}
	p.passage.close()
	p.haven.remove()
}

// endOthers kills every descendant of this process, which adopts those whose
// parents have ended, and reaps them. One that starts another meanwhile is found
// in the next round, and none can get away: to leave its parent is to come here.
func (p *Process) endOthers() {
	for {
		for _, d := range descendants(os.Getpid()) {
			d.kill()
		}
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // there are none
		}
	}
}

// descendant is a process and its parent.
type descendant struct{ pid, parent int }

// kill ends it, unless its number belongs to another by now.
func (d descendant) kill() {
	fd, err := unix.PidfdOpen(d.pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if parent, ok := parentOf(d.pid); ok && (parent == d.parent || parent == os.Getpid()) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
	}
}

// descendants are the processes that come from one, by the table of them all.
func descendants(root int) []descendant {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]descendant)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], descendant{pid, parent})
		}
	}
	list := children[root]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].pid]...)
	}
	return list
}

// parentOf reads the fourth field of a line such as this, in which the second may
// hold anything:
//
//	4711 (a (b) c) S 1 4711 4711 0 -1 ...
func parentOf(pid int) (int, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
