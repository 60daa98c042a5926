package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// Names of runtimes, as policies say them.
const (
	Docker      = "docker"
	DockerRunsc = "docker+runsc"
)

// What engines call runc, which every engine has, and gVisor.
const (
	runc  = "runc"
	runsc = "runsc"
)

// Engine is a Docker engine with one of its runtimes.
type Engine struct {
	name    string
	runtime string // as the engine calls it
	version string // of the engine's interface, once it is known
}

var _ engine.Engine = (*Engine)(nil)

// Engines are all engines of this package, whether or not they can be reached. A program
// that has them calls Become first.
func Engines() []engine.Engine {
	return []engine.Engine{&Engine{name: Docker, runtime: runc}, &Engine{name: DockerRunsc, runtime: runsc}}
}

func (e *Engine) Name() string { return e.name }

// Start starts the command of a Spec.
func (e *Engine) Start(s *spec.Spec, o engine.Options) (engine.Command, error) {
	c := &command{engine: e, name: s.Argv[0], control: -1, used: limits.Unknown()}
	if err := c.start(e, s, o); err != nil {
		c.finish()
		for _, f := range []*os.File{c.terminal, c.gate} {
			_ = f.Close() // which may not be there
		}
		for _, l := range c.ports {
			_ = l.File.Close()
		}
		return nil, err
	}
	return c, nil
}

// command is a container that runs, seen through its guard.
type command struct {
	engine   *Engine
	name     string
	guard    int // process, or 0
	terminal *os.File
	gate     *os.File // its socket, if the Spec wants one
	ports    []native.Listener
	// attendance is the broker, if the Spec wants one.
	attendance *oci.Attendance
	used       limits.Usage

	mu      sync.Mutex
	control int // socket to the guard; -1 once it has ended
}

func (c *command) start(e *Engine, s *spec.Spec, o engine.Options) error {
	order := order{Spec: *s, Runtime: e.runtime, Name: e.name, Account: o.Account || s.Limits.NeedGroup()}
	order.Umask = oci.Umask()
	streams := o.Streams
	if t := o.Terminal; t != nil {
		inside, err := c.openTerminal(t)
		if err != nil {
			return err
		}
		defer inside.Close()
		order.Terminal, order.Termios, order.Size = t.Streams, t.Termios, t.Size
		for i, is := range t.Streams {
			if is {
				streams[i] = inside
			}
		}
	}
	orders, err := c.spawn(streams, e.variables())
	if err != nil {
		return err
	}
	// If the guard is gone, what it has said tells more than this.
	_, _ = orders.Write(wire.Append(nil, order))
	_ = orders.Close()
	return c.begin(&order, o)
}

// openTerminal makes the terminal that stands for the command's, which is in the
// container. It hands everything on, unless only some of the streams are one: then the
// command has none, and this one does what a terminal does with lines.
func (c *command) openTerminal(t *native.Terminal) (inside *os.File, err error) {
	own := *t
	if t.Termios != nil && t.Streams == whole {
		raw := terminal.Raw(*t.Termios)
		own.Termios = &raw
	}
	c.terminal, inside, err = oci.OpenTerminal(&own)
	return inside, err
}

// whole says that all streams are the terminal.
var whole = [3]bool{true, true, true}

// spawn starts the guard and returns where it expects to be told what to do. It is in a
// session of its own, and does not die with this process: it has to clean up then.
func (c *command) spawn(streams [3]*os.File, env []string) (orders *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	c.control = pair[0]
	defer func() { _ = unix.Close(pair[1]) }()
	read, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	attr := &syscall.ProcAttr{Dir: "/", Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, f := range streams {
		attr.Files = append(attr.Files, f.Fd())
	}
	attr.Files = append(attr.Files, uintptr(pair[1]), read.Fd())
	c.guard, err = syscall.ForkExec("/proc/self/exe", []string{guardName}, attr)
	if err != nil {
		c.guard = 0
		_ = orders.Close()
		return nil, os.NewSyscallError("start the guard", err)
	}
	return orders, nil
}

// variables say where the engine is, and what it speaks, so that nobody need ask again.
func (e *Engine) variables() []string {
	list := []string{"DOCKER_API_VERSION=" + e.version}
	if v, ok := os.LookupEnv("DOCKER_HOST"); ok {
		list = append(list, "DOCKER_HOST="+v)
	}
	return list
}

// begin waits until the command runs, or there is a reason why it will not. Where
// Interrupt, if it is not 0, becomes readable before that, there will be none.
func (c *command) begin(order *order, o engine.Options) error {
	fds := []unix.PollFd{{Fd: int32(c.control), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	if o.Interrupt > 0 {
		fds[1].Fd = int32(o.Interrupt)
	}
	for {
		if _, err := unix.Poll(fds, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			return os.NewSyscallError("poll", err)
		}
		if fds[0].Revents == 0 {
			return engine.ErrInterrupted
		}
		said, rest, rights, err := c.hear()
		switch {
		case err != nil:
			return err
		case said == saysBegun:
			fds[1].Fd = -1 // from now on it is the command's
		case said == saysGate && len(rights) == 1:
			c.gate = os.NewFile(uintptr(rights[0]), "gate")
		case said == saysPorts:
			c.ports = oci.TakePorts(string(rest), rights)
		case said == saysAsks && len(rights) == 1 && c.attendance == nil:
			if err := c.attend(order, rest, rights[0], o); err != nil {
				return err
			}
		case said == saysStarted && c.attendance == nil && hasDoor(&order.Spec, kindOf(order.Runtime)):
			return errors.New("the command began without the filter that asks the broker")
		case said == saysStarted:
			return nil
		case said == saysNotRun && len(rest) == 8:
			return &native.ExecError{Name: c.name, Errno: unix.Errno(binary.NativeEndian.Uint64(rest))}
		default:
			return errors.New(string(rest))
		}
	}
}

// attend answers the calls of a container, whose processes are in no user namespace of
// their own.
func (c *command) attend(order *order, from []byte, listener int, o engine.Options) error {
	var sender unix.Ucred
	if err := wire.Decode(from, &sender); err != nil {
		_ = unix.Close(listener)
		return err
	}
	var err error
	c.attendance, err = oci.Attend(&order.Spec, oci.Sender{Ucred: &sender, Shared: true}, listener, uint32(order.Umask), o.Broker())
	return err
}

// hear takes in what the guard says: a letter, and what belongs to it.
func (c *command) hear() (said byte, rest []byte, rights []int, err error) {
	text, control := make([]byte, 64<<10), make([]byte, oci.PortsSpace)
	n, rn, err := oci.Receive(c.control, text, control)
	if err != nil {
		return 0, nil, nil, err
	}
	if n == 0 {
		return 0, nil, nil, errGuardGone
	}
	if rn > 0 {
		rights, err = oci.Descriptors(control[:rn])
	}
	return text[0], text[1:n], rights, err
}

var errGuardGone = errors.New("the guard of the container ended before it was done")

// Wait waits for the end, which comes when the container is gone.
func (c *command) Wait() native.State {
	state := native.State{Killed: true, Wait: unix.WaitStatus(unix.SIGKILL)}
	for {
		said, rest, _, err := c.hear()
		if err != nil {
			break
		}
		if said == saysUsed {
			_ = wire.Decode(rest, &c.used) // what cannot be read is not known
		}
		if said == saysEnded && len(rest) == 8 {
			state = native.State{Wait: unix.WaitStatus(binary.NativeEndian.Uint64(rest))}
			break
		}
		if said == saysKilled {
			break
		}
	}
	c.finish()
	return state
}

// finish tells the guard that nobody is left, and waits until it has taken everything
// down. If it was killed, this process does that in its place.
func (c *command) finish() {
	c.mu.Lock()
	if c.control >= 0 {
		_ = unix.Close(c.control)
	}
	c.control = -1
	c.mu.Unlock()
	defer c.attendance.End()
	if c.guard == 0 {
		return
	}
	for {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(c.guard, &ws, 0, nil); err != unix.EINTR {
			if err == nil && ws.Signaled() {
				c.engine.sweep()
			}
			return
		}
	}
}

// sweep removes what guards have left that were killed. Where the engine does not answer, the
// next start does it.
func (e *Engine) sweep() {
	api, err := e.connect()
	if err != nil {
		return
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	(&keeper{api: api}).sweepContainers(ctx)
	sweepStages()
}

func (c *command) Signal(sig unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.control < 0 {
		return os.ErrProcessDone
	}
	_, err := unix.Write(c.control, []byte{byte(sig)})
	return os.NewSyscallError("write", err)
}

func (c *command) Used() limits.Usage { return c.used }

func (c *command) Pid() int { return c.guard }

func (c *command) Terminal() *os.File { return c.terminal }

func (c *command) Listeners() []native.Listener {
	if c.gate == nil {
		return c.ports
	}
	return []native.Listener{{Role: config.RoleUnix, File: c.gate}}
}
