package oci

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// guardName is what a guard is called, by which Become knows it.
const guardName = "bailey-guard"

const stateName = "state" // in the stage: the runtime's own

// Descriptors of a guard besides the command's streams.
const (
	guardControl = 3 // socket to whoever started it
	guardStatus  = 4 // the first process's end of its pipe
	guardOrder   = 5 // what it is to do
)

// order is what a guard is to do.
type order struct {
	Config  []byte // of the bundle
	Sources []Source
	Console bool
	Gate    bool // there is a socket for the network gate
	Stays   bool // the first process is native.GuestProgram
	Overlay *spec.Overlay
	Links   []string // that are to stay what they are
	// Ports has what the ports that lead to the network gate are made by; nil without.
	Ports   *spec.Spec
	Runtime runtimeOrder
}

// What a guard says when it hands over a descriptor.
const (
	saysTerminal = "terminal"
	saysGate     = "gate"
	saysProcess  = "process"
	saysPorts    = "ports " // followed by their roles
	saysPinned   = "pinned" // without a descriptor: the links are kept
)

// guardArgs is the command line of a guard: what it can begin with before it is told
// the rest.
func guardArgs(id Identity) []string {
	args := []string{guardName}
	for _, n := range []uint32{id.First, id.Count, id.UID, id.GID} {
		args = append(args, strconv.FormatUint(uint64(n), 10))
	}
	return args
}

func parseGuard(args []string) (id Identity, err error) {
	if len(args) != 5 {
		return id, errors.New(guardName + " is not for people")
	}
	for i, to := range []*uint32{&id.First, &id.Count, &id.UID, &id.GID} {
		n, err := strconv.ParseUint(args[i+1], 10, 32)
		if err != nil {
			return id, err
		}
		*to = uint32(n)
	}
	return id, nil
}

// Become does what a process of this package's is for, if this process is one, and
// returns the status to exit with. A program with an OCI engine calls it before all
// else.
func Become() (status int, is bool) {
	switch os.Args[0] {
	case initPath:
		if len(os.Args) == 1 {
			return 0, false // it belongs to another engine; see RunFirst
		}
		f, ok := parseFirst(os.Args)
		if !ok {
			return 1, true
		}
		return f.run(), true
	case landlock.ChildName:
		runtime.LockOSThread()
		return landlock.Become(), true
	case guardName:
		return guard(), true
	}
	return 0, false
}

// guard builds the bundle, starts the runtime, and stays as process 1 of everything
// until whoever started it is gone.
func guard() int {
	runtime.LockOSThread()
	// What is made here is read by whoever is root inside. The command's own is in the
	// bundle.
	unix.Umask(0o022)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	for _, fd := range []int{guardControl, guardStatus, guardOrder} {
		unix.CloseOnExec(fd)
	}
	g := &keeper{}
	if err := g.launch(); err != nil {
		g.say(err.Error(), nil)
		return 1
	}
	leaveStreams()
	go g.reap()
	g.obey()
	return 0
}

// leaveStreams lets go of the command's streams: whoever reads them sees their end when
// the command closes them.
func leaveStreams() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range guardControl {
		if err == nil {
			err = unix.Dup3(null, fd, 0)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
}

// keeper is a guard at work.
type keeper struct {
	order
	pid int // the sandbox's first process
}

func (g *keeper) launch() error {
	id, err := parseGuard(os.Args)
	if err != nil {
		return err
	}
	if err := g.build(id); err != nil {
		return err
	}
	var terminal net.Listener
	if g.Console {
		if terminal, err = net.Listen("unix", consoleSocket); err != nil {
			return err
		}
		defer terminal.Close()
	}
	if err := g.start(terminal); err != nil {
		return err
	}
	return g.arrange()
}

// arrange makes what only stands in the sandbox itself. The first process waits until it
// does.
func (g *keeper) arrange() error {
	if len(g.Links) == 0 && g.Ports == nil {
		return nil
	}
	pidfd, err := unix.PidfdOpen(g.pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	if len(g.Links) > 0 {
		if err := PinLinks(pidfd, g.Links); err != nil {
			return err
		}
		g.say(saysPinned, nil)
	}
	if g.Ports == nil {
		return nil
	}
	return g.openPorts(pidfd)
}

// openPorts makes the ports of the network gate, in the sandbox's network, and hands them
// over.
func (g *keeper) openPorts(pidfd int) error {
	list, err := OpenPorts(pidfd, g.Ports)
	if err != nil {
		return err
	}
	roles, rights := HandPorts(list)
	g.say(saysPorts+roles, rights)
	closePorts(list)
	return nil
}

// build makes the bundle, and the socket of the network gate.
func (g *keeper) build(id Identity) error {
	if err := g.furnish(id, g.receiveOrder); err != nil || !g.Gate {
		return err
	}
	fd, err := listen(stage, gateName)
	if err != nil {
		return err
	}
	g.say(saysGate, unix.UnixRights(fd))
	return unix.Close(fd)
}

func (g *keeper) receiveOrder() error {
	text, err := io.ReadAll(os.NewFile(guardOrder, "order"))
	if err != nil {
		return err
	}
	return wire.Decode(text, &g.order)
}

// furnish makes the bundle. What is the same for every bundle is done before the order
// is received.
func (g *keeper) furnish(id Identity, receive func() error) error {
	if err := prepare(); err != nil {
		return err
	}
	userns := -1
	if id.Count > 1 {
		var err error
		if userns, err = exchange(id); err != nil {
			return err
		}
		defer func() { _ = unix.Close(userns) }()
	}
	program, err := ownProgram()
	if err != nil {
		return err
	}
	if err := receive(); err != nil {
		return err
	}
	if g.Stays {
		_ = unix.Close(program)
		program = -1
	}
	list, err := take(g.Sources, g.Overlay, program, userns)
	if err != nil {
		return err
	}
	layers, err := takeLayers(g.Overlay, id)
	if err != nil {
		return err
	}
	if err := g.Runtime.arrange(); err != nil {
		return err
	}
	return furnish(list, layers, g.Config, id)
}

// ownProgram is a mount of this program, which is the sandbox's first process too.
func ownProgram() (int, error) {
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /proc/self/exe", err)
	}
	defer func() { _ = unix.Close(exe) }()
	return clone(exe, &spec.Mount{Kind: spec.Bind, File: true, Source: "the first process"}, -1)
}

// start has the runtime start the sandbox. The runtime ends then, and what it started
// becomes this process's child.
func (g *keeper) start(terminal net.Listener) error {
	received := make(chan error, 1)
	if terminal != nil {
		go func() { received <- g.receiveConsole(terminal) }()
	}
	if err := g.run(); err != nil {
		return err
	}
	if terminal != nil {
		// What the runtime has sent is taken still. If it sent nothing, nothing will come.
		if err := closeEntrance(terminal); err != nil {
			return err
		}
	}
	// From here on the pipe's end is the first process's end. Where the runtime fails it
	// is this process's, which says why before.
	_ = unix.Close(guardStatus)
	if terminal != nil {
		if err := <-received; err != nil {
			return err
		}
	}
	text, err := os.ReadFile(pidFile)
	if err == nil {
		g.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err == nil && g.Stays {
		err = g.handProcess()
	}
	return err
}

// handProcess hands over the process that stands for the sandbox: its number means
// nothing outside.
func (g *keeper) handProcess() error {
	fd, err := unix.PidfdOpen(g.pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	g.say(saysProcess, unix.UnixRights(fd))
	return unix.Close(fd)
}

// run runs the runtime. GVisor is tried with one platform after the other: which of
// them work is known only then.
func (g *keeper) run() (err error) {
	attr := &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2, guardStatus},
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	for platforms := g.Runtime.Platforms; len(platforms) > 0; platforms = platforms[1:] {
		g.Runtime.Platforms = platforms
		pid, failed := g.Runtime.execute(g.Runtime.arguments(g.Console), attr)
		if failed != nil {
			return fmt.Errorf("%s: %w", g.Runtime.Program, failed)
		}
		ws := reapUntil(pid)
		if ws.Exited() && ws.ExitStatus() == 0 {
			return nil
		}
		err = fmt.Errorf("%s could not start the sandbox (status %#x)%s", g.Runtime.Name, uint32(ws), lastLine(logFile))
	}
	return err
}

var (
	consoleSocket = filepath.Join(stage, "console")
	pidFile       = filepath.Join(stage, "pid")
	logFile       = filepath.Join(stage, "log")
)

// closeEntrance has Accept fail once it has returned every connection that was made.
func closeEntrance(l net.Listener) error {
	raw, err := l.(*net.UnixListener).SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// receiveConsole hands on the outer end of the command's terminal, which the runtime
// sends.
func (g *keeper) receiveConsole(from net.Listener) error {
	conn, err := from.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	data, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, control)
	if err != nil {
		return err
	}
	fds, err := Descriptors(control[:n])
	if err != nil || len(fds) != 1 {
		return errors.New("the runtime sent no terminal")
	}
	g.say(saysTerminal, unix.UnixRights(fds[0]))
	return unix.Close(fds[0])
}

// lastLine is what the runtime last wrote to its log.
func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return ": " + lines[len(lines)-1]
}

// say tells whoever started this process why there is no sandbox, or hands over a
// descriptor.
func (g *keeper) say(text string, rights []byte) {
	_ = unix.Sendmsg(guardControl, []byte(text), rights, nil, 0) // they may be gone
}

// reap takes in what the runtime left and what ends.
func (g *keeper) reap() { reapUntil(0) }

// reapUntil takes in every child that ends, up to one, or for as long as there are any.
// While the runtime runs as well: one whose sandbox dies early waits for that process to
// be gone, and as an orphan it is this process's to take in.
func reapUntil(last int) (ws unix.WaitStatus) {
	for {
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if err == unix.ECHILD || err == nil && pid == last {
			return ws
		}
	}
}

// obey passes signals on that it is told of, each a byte, until it is told no more.
func (g *keeper) obey() {
	var sig [1]byte
	for {
		n, err := unix.Read(guardControl, sig[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || unix.Signal(sig[0]) == unix.SIGKILL {
			return
		}
		_ = g.Runtime.signal(g.pid, unix.Signal(sig[0])) // it may just have ended
	}
}
