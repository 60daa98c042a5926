package oci

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// Engine is one runtime.
type Engine struct {
	name      string
	program   string   // in PATH
	platforms []string // see runtimeOrder
}

var _ engine.Engine = (*Engine)(nil)

// Engines are all runtimes of this package, whether or not they are installed. A
// program that has them calls Become first.
func Engines() []engine.Engine {
	one := []string{""}
	return []engine.Engine{
		&Engine{Runc, "runc", one}, &Engine{Crun, "crun", one},
		// Not kvm: where it works at all it needs a device that few may open.
		&Engine{Gvisor, "runsc", []string{"systrap", "ptrace"}},
	}
}

// engineOf is the engine of a name, or nil.
func engineOf(name string) *Engine {
	for _, e := range Engines() {
		if e.Name() == name {
			return e.(*Engine)
		}
	}
	return nil
}

func (e *Engine) Name() string { return e.name }

// find returns the runtime's program: in PATH, beside Bailey's own, or where only an
// administrator's PATH leads.
func (e *Engine) find() (string, error) {
	if file, err := exec.LookPath(e.program); err == nil {
		return file, nil
	}
	if file := host.Beside(e.program); file != "" {
		return file, nil
	}
	for _, dir := range []string{"/usr/local/sbin/", "/usr/sbin/", "/sbin/"} {
		if unix.Access(dir+e.program, unix.X_OK) == nil {
			return dir + e.program, nil
		}
	}
	fix := "install the package " + e.program
	if e.name == Gvisor {
		fix = "build it with scripts/build-runsc, and put it in PATH or beside bailey"
	}
	return "", fmt.Errorf("runtime %s: the program %s is not in PATH; %s", e.name, e.program, fix)
}

// Start starts the command of a Spec.
func (e *Engine) Start(s *spec.Spec, o engine.Options) (engine.Command, error) {
	program, err := e.find()
	if err != nil {
		return nil, err
	}
	sweepGroups()
	c := &command{name: s.Argv[0], group: groupName(s), control: -1, pidfd: -1, used: limits.Unknown()}
	r := e.order(s, program)
	r.Grouped = r.Grouped || o.Account && c.group != ""
	if err := c.start(s, o, r); err != nil {
		c.finish()
		for _, f := range []*os.File{c.terminal, c.gate} {
			_ = f.Close() // which may not be there
		}
		closePorts(c.ports)
		return nil, err
	}
	return c, nil
}

// order says how the runtime is to be called for a Spec.
func (e *Engine) order(s *spec.Spec, program string) runtimeOrder {
	return runtimeOrder{
		Name: e.name, Program: program, Rootless: os.Geteuid() != 0, Grouped: s.Limits.NeedGroup(),
		Platforms: e.platforms, Open: !s.Network.IsOwn(), Sockets: allowsUnix(s),
	}
}

// command is a sandbox that runs.
type command struct {
	name    string
	group   string   // its control group, or ""
	guard   int      // process, or 0
	pinned  bool     // its links are kept
	stays   bool     // it takes commands for as long as it stands
	process int      // that which stands for it, if it stays, or 0
	pidfd   int      // of the guard, if that is another process's child, or -1
	status  *os.File // what the first process tells
	streams streams
	// rusage is what processes have used that the first has waited for, and used all that is
	// known at the end.
	rusage *unix.Rusage
	used   limits.Usage
	// attendance is the broker, if the Spec wants one.
	attendance *Attendance

	mu       sync.Mutex
	control  int // socket to the guard; -1 once it has ended
	terminal *os.File
	gate     *os.File // its socket, if the Spec wants one
	ports    []native.Listener
}

func (c *command) start(s *spec.Spec, o engine.Options, r runtimeOrder) error {
	if err := c.streams.open(o); err != nil {
		return err
	}
	c.terminal = c.streams.terminal
	options := optionsOf(s, r.Name, IdentityOf(s.Identity, uint32(os.Getpid())))
	options.Console, options.Stream, options.Cgroup, options.Umask = c.streams.console, c.streams.stream, c.group, uint32(Umask())
	if o.Terminal != nil && o.Terminal.Size != nil {
		options.Size = [2]uint16{o.Terminal.Size.Row, o.Terminal.Size.Col}
	}
	walls, err := wallsOf(s, r.Name)
	if err != nil {
		return err
	}
	orders, err := c.spawn(s.Identity, options.Identity)
	if err != nil {
		return err
	}
	// While the guard starts.
	err = instruct(orders, s, options, r)
	_ = orders.Close()
	if err != nil {
		return err
	}
	return c.begin(start{spec: s, walls: walls, terminal: o.Terminal, gated: gateSocket(s) != "", linked: LinksOf(s) != nil, interrupt: o.Interrupt, asked: o.Broker()})
}

// optionsOf are the options that do not depend on the command.
func optionsOf(s *spec.Spec, runtime string, id Identity) Options {
	o := Options{Dir: stage, Runtime: runtime, Identity: id}
	if s.Identity.UID != 0 {
		o.Group = uint32(s.Identity.GID)
	}
	return o
}

// instruct tells the guard what to do. A bundle that lacks a wall ends here.
func instruct(orders *os.File, s *spec.Spec, o Options, r runtimeOrder) error {
	config, sources, err := Config(s, o)
	if err != nil {
		return err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	// If the guard is gone, what it has said tells more than this.
	_, _ = orders.Write(wire.Append(nil, order{
		Config: text, Sources: sources, Console: o.Console, Gate: gateSocket(s) != "", Ports: PortsOf(s), Links: LinksOf(s), Stays: o.Stays, Overlay: s.Overlay, Runtime: r,
	}))
	return nil
}

// statusSocket is by what the first process tells what happens, and is told something
// itself. The kernel says with each message who it is.
func statusSocket() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
		return nil, nil, os.NewSyscallError("setsockopt", err)
	}
	return os.NewFile(uintptr(pair[0]), "status"), os.NewFile(uintptr(pair[1]), "status"), nil
}

// spawn starts the guard, in namespaces of its own, and returns where it expects to be
// told what to do.
func (c *command) spawn(caller spec.Identity, id Identity) (orders *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	c.control = pair[0]
	defer func() { _ = unix.Close(pair[1]) }()
	status, theirs, err := statusSocket()
	if err != nil {
		return nil, err
	}
	c.status = status
	defer theirs.Close()
	read, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	// By its path: what /proc/self/exe leads to is mounted in this namespace, and the
	// guard's own could not mount it again.
	program, err := guardProgram()
	if err != nil {
		return nil, err
	}
	if err := c.streams.keepNull(); err != nil {
		_ = orders.Close()
		return nil, err
	}
	attr := &syscall.ProcAttr{Env: []string{}, Sys: guardAttributes(caller)}
	for _, f := range c.streams.inner {
		attr.Files = append(attr.Files, f.Fd())
	}
	attr.Files = append(attr.Files, uintptr(pair[1]), theirs.Fd(), read.Fd())
	c.guard, err = syscall.ForkExec(program, guardArgs(id), attr)
	c.streams.started()
	if err != nil {
		c.guard = 0
		_ = orders.Close()
		return nil, &native.LaunchError{Step: "clone into new process and mount namespaces", Errno: native.ErrnoOf(err), Wall: native.WallUser}
	}
	return orders, nil
}

// guardProgram is what a guard is, and with it the first process inside: the program that
// is for it, if that is there, or this one.
func guardProgram() (string, error) {
	if file := host.Beside(guardName); file != "" {
		return file, nil
	}
	return os.Executable()
}

// guardAttributes are the namespaces that a guard is in. What a user may mount in
// there takes a user namespace, in which the user stays the same. It is in a session of its
// own, so a signal to all of this process's group, such as Ctrl-C, is for this process to
// pass on, and does not end the sandbox under the command.
func guardAttributes(id spec.Identity) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL, Setsid: true}
	if id.UID != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id.UID, HostID: id.UID, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: id.GID, HostID: id.GID, Size: 1}}
		for c := range uintptr(unix.CAP_LAST_CAP + 1) {
			attr.AmbientCaps = append(attr.AmbientCaps, c)
		}
	}
	return attr
}

// start is what begin needs to know.
type start struct {
	spec  *spec.Spec
	walls *landlock.Walls // that the command puts up, or nil
	waits bool            // no command is to run yet

	terminal  *native.Terminal
	gated     bool // the gate's socket comes
	linked    bool // there are links to be kept
	ported    bool // its ports come, and the sandbox stays
	interrupt int  // see engine.Options, or 0
	asked     broker.Options
}

// begin waits until the command runs, or a first process that is to wait does. It tells
// that, often before the runtime has ended; the guard tells what went wrong, and hands over
// what is served outside. Where interrupt becomes readable before the command can have
// begun, there will be none.
func (c *command) begin(s start) error {
	fds := []unix.PollFd{
		{Fd: int32(c.control), Events: unix.POLLIN}, {Fd: int32(c.status.Fd()), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN},
	}
	if s.interrupt > 0 {
		fds[2].Fd = int32(s.interrupt)
	}
	for running, waiting := false, false; !running || c.streams.console && c.terminal == nil || s.gated && c.gate == nil || s.linked && !c.pinned || c.stays && (c.process == 0 || s.ported && c.ports == nil); {
		if waiting && (!s.linked || c.pinned) && (s.spec == nil || PortsOf(s.spec) == nil || c.ports != nil) {
			waiting = false
			if err := send(int(c.status.Fd()), assignment{Walls: s.walls}, [3]*os.File{}); err != nil {
				return err
			}
		}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
		var err error
		switch {
		case fds[0].Revents != 0:
			err = c.hear(s.terminal)
		case fds[1].Revents != 0 && c.stays:
			if !native.Ready(c.status) {
				return c.whyNot()
			}
			running, fds[1].Fd = true, -1
		case fds[1].Revents != 0:
			var what uint64
			what, err = c.heed(&s)
			switch {
			case what == toldBegun:
				fds[2].Fd = -1 // from now on it is the command's
			case what == toldStarted || what == toldWaiting && s.waits:
				running, fds[1].Fd = true, -1
			case what == toldWaiting:
				waiting = true
			}
		case fds[2].Revents != 0:
			err = engine.ErrInterrupted
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// heed takes in what the first process tells until the command runs.
func (c *command) heed(s *start) (uint64, error) {
	what, came, ok := c.read()
	if !ok {
		return 0, c.whyNot()
	}
	switch {
	case what&toldFailed != 0:
		return 0, &native.ExecError{Name: c.name, Errno: unix.Errno(what &^ toldFailed)}
	case what&toldRefused != 0:
		return 0, c.readRefusal(int(what &^ toldRefused))
	case what == toldListener && s.spec != nil && c.attendance == nil && len(came.fds) == 1:
		var err error
		c.attendance, err = Attend(s.spec, Sender{Ucred: came.sender}, came.fds[0], uint32(Umask()), s.asked)
		return what, err
	case what == toldStarted && s.lacksBroker(c.attendance):
		return 0, errors.New("the command began without the filter that asks the broker")
	}
	return what, nil
}

// lacksBroker says whether nobody attends to a command that needs it.
func (s *start) lacksBroker(a *Attendance) bool {
	return a == nil && s.walls != nil && s.spec.Broker != nil
}

// readRefusal reads why a wall could not be put up.
func (c *command) readRefusal(size int) error {
	text := make([]byte, min(size, 4096)+toldSize)
	n, _, err := Receive(int(c.status.Fd()), text, nil)
	if err != nil {
		return err
	}
	return errors.New(string(bytes.TrimRight(text[:n], "\x00")))
}

// hear takes in what the guard tells: the command's terminal, the gate's socket, or why
// there is no sandbox.
func (c *command) hear(t *native.Terminal) error {
	text, rights := make([]byte, 64<<10), make([]byte, PortsSpace)
	n, rn, err := Receive(c.control, text, rights)
	switch {
	case err != nil:
		return err
	case n == 0:
		return errors.New("the guard of the sandbox ended before it stood")
	case rn == 0 && string(text[:n]) == saysPinned:
		c.pinned = true
		return nil
	case rn == 0:
		return errors.New(string(text[:n]))
	}
	fds, err := Descriptors(rights[:rn])
	if err != nil {
		return err
	}
	if roles, ok := strings.CutPrefix(string(text[:n]), saysPorts); ok {
		c.ports = TakePorts(roles, fds)
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), string(text[:n]))
	switch string(text[:n]) {
	case saysGate:
		c.gate = f
		return nil
	case saysProcess:
		defer f.Close()
		c.process, err = processOf(f)
		return err
	}
	c.terminal = f
	return furnishTerminal(f, t)
}

// whyNot is what the guard has said. If that is nothing, the runtime did its part.
func (c *command) whyNot() error {
	text := make([]byte, 64<<10)
	if n, _, _, _, err := unix.Recvmsg(c.control, text, nil, unix.MSG_DONTWAIT); err == nil && n > 0 {
		return errors.New(string(text[:n]))
	}
	return errors.New("the sandbox's first process ended before the command began")
}

// along is what comes with a message.
type along struct {
	sender *unix.Ucred
	fds    []int
}

// read returns the next that the first process tells, and false when it has ended.
func (c *command) read() (what uint64, with along, ok bool) {
	var buf [toldSize]byte
	oob := make([]byte, unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofUcred))
	for at := 0; at < len(buf); {
		n, rn, err := Receive(int(c.status.Fd()), buf[at:], oob)
		if err != nil || n == 0 {
			return 0, with, false
		}
		messages, _ := unix.ParseSocketControlMessage(oob[:rn]) // the kernel's own
		for i := range messages {
			if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
				with.sender = cred
			}
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				with.fds = append(with.fds, fds...)
			}
		}
		at += n
	}
	return binary.NativeEndian.Uint64(buf[:]), with, true
}

func (c *command) Wait() native.State {
	for {
		what, _, ok := c.read()
		if ok && what == toldUsed {
			if ok = c.readUsed(); ok {
				continue
			}
		}
		if !ok {
			c.finish()
			return native.State{Killed: true, Wait: unix.WaitStatus(unix.SIGKILL)}
		}
		ws := unix.WaitStatus(what)
		switch {
		case ws.Continued():
		case ws.Stopped():
			return native.State{Wait: ws}
		default:
			c.finish()
			return native.State{Wait: ws}
		}
	}
}

// readUsed reads what the first process tells of what was used.
func (c *command) readUsed() bool {
	var text [usedWords * toldSize]byte
	for at := 0; at < len(text); {
		n, _, err := Receive(int(c.status.Fd()), text[at:], nil)
		if err != nil || n == 0 {
			return false
		}
		at += n
	}
	c.rusage = usedIn(text[:])
	return true
}

func (c *command) Used() limits.Usage { return c.used }

// countUsed sums up what was used: what the control group has counted, and what it has
// not by what the first process told.
func (c *command) countUsed() {
	c.used = limits.Unknown()
	if c.group != "" {
		c.used = limits.UsageAt(c.group)
	}
	if c.rusage != nil {
		c.used.Complete(c.rusage)
	}
}

// finish ends what is left. With the guard the kernel ends every process below it,
// and with the last of them their mounts are gone.
func (c *command) finish() {
	c.mu.Lock()
	control := c.control
	c.control = -1
	c.mu.Unlock()
	c.endGuard()
	c.attendance.End()
	if control >= 0 {
		_ = unix.Close(control)
	}
	if c.status != nil {
		_ = c.status.Close()
	}
	c.streams.finish()
	c.countUsed()
	removeGroup(c.group)
}

// endGuard ends the guard and waits for that. One that is another process's child is
// that one's to take in, but nothing is left of it.
func (c *command) endGuard() {
	switch {
	case c.pidfd >= 0:
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				break
			}
		}
		_ = unix.Close(c.pidfd)
	case c.guard != 0:
		_ = unix.Kill(c.guard, unix.SIGKILL)
		waitFor(c.guard)
	}
}

// waitFor waits for the end of a child.
func waitFor(pid int) (ws unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws
		}
	}
}

func (c *command) Signal(sig unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.control < 0 {
		return os.ErrProcessDone
	}
	switch {
	case sig == unix.SIGKILL && c.pidfd >= 0:
		return unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
	case sig == unix.SIGKILL:
		return unix.Kill(c.guard, sig)
	}
	_, err := unix.Write(c.control, []byte{byte(sig)})
	return os.NewSyscallError("write", err)
}

func (c *command) Pid() int { return c.guard }

func (c *command) Terminal() *os.File { return c.terminal }

func (c *command) Listeners() []native.Listener {
	if c.gate == nil {
		return c.ports
	}
	return []native.Listener{{Role: config.RoleUnix, File: c.gate}}
}

// groupName is the control group of a sandbox of this process, or "" if an ordinary
// user, who can make none, starts it.
func groupName(s *spec.Spec) string {
	if s.Identity.UID != 0 {
		return ""
	}
	return "/" + groupPrefix + strconv.Itoa(os.Getpid())
}
