package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/ready"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Program finds the gate beside the running program, which is where it is
// installed, or in PATH for programs that embed Bailey.
func Program() (string, error) {
	const name = "bailey-gate"
	if file := host.Beside(name); file != "" {
		return file, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", errors.New("the network gate, " + name + ", is not beside bailey: network rules need it; install it, or close the network")
}

// Gate is a network gate, from the moment its sockets exist.
type Gate struct {
	// Ask answers the gate's questions; nil if nobody can be asked. It is set
	// before Attend or Keep.
	Ask AskFunc
	// Environ is what the gate has for its environment, if that is not this
	// process's: see config.Config. It is set before Attend or Keep.
	Environ []string

	program   string
	config    config.Config
	listeners []native.Listener                 // inside
	exposed   []exposed                         // outside
	inlet     *inlet                            // nil if nothing can be exposed later
	beget     func() ([]native.Listener, error) // for its way inside, nil if that is among the listeners
	report    func(*event.Event)
	process   int // the sandbox's first, if what it does is recorded

	mu      sync.Mutex
	started bool
	control *os.File // its end is the gate's end
	events  *os.File
	line    []byte // of which the end has not come yet
	pid     int

	messages  *config.Conn  // over control
	hungUp    chan struct{} // closed when nothing comes over it any more
	reloading sync.Mutex    // held by who waits for:
	reloaded  chan string   // why a configuration was refused

	waiting []*os.File    // see wait
	done    chan struct{} // closed when wait returns, nil if it was not called
}

// Prepare gets what the gate of a Spec needs before anything runs: its program,
// and the ports of the host that are to lead inside. For a Spec that needs no
// gate it returns nil, on which every method does nothing. Attend, Keep or Close
// must follow.
func Prepare(s *spec.Spec) (*Gate, error) {
	if !s.NeedsGate() {
		return nil, nil
	}
	program, err := Program()
	if err != nil && (s.Gate != nil || len(s.Expose) > 0) {
		return nil, err // where ports only may be exposed later, it is missed then
	}
	g := &Gate{program: program, config: s.GateConfig()}
	if s.Inlet {
		g.inlet = &inlet{}
	}
	if err := g.expose(s.Expose); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Attend has the gate started when the first connection comes, and takes in what
// it tells, while the command is waited for; report may be nil. It takes over the
// sandbox's listeners. If it fails, every connection is refused.
func (g *Gate) Attend(p *native.Process, report func(*event.Event)) error {
	if g == nil {
		return nil
	}
	g.listeners = p.Listeners
	g.record(p.Pid, report)
	for _, fd := range g.doors() {
		if err := p.Watch(fd, func() bool { g.serve(p); return true }); err != nil {
			g.Close()
			return err
		}
	}
	return nil
}

// Keep is Attend for a sandbox that stays, until its end.
func (g *Gate) Keep(r *native.Resident, report func(*event.Event)) {
	if g == nil {
		return
	}
	g.listeners = r.Listeners
	g.record(r.Pid, report)
	g.keepInlet()
	go g.wait()
	r.AtEnd(g.Close)
}

// Beside is Attend for a sandbox that no Process is waited for: the gate waits by
// itself, until Close.
func (g *Gate) Beside(pid int, listeners []native.Listener, report func(*event.Event)) {
	if g == nil {
		return
	}
	g.listeners = listeners
	g.record(pid, report)
	go g.wait()
}

// doors are the sockets by which something comes for the gate.
func (g *Gate) doors() (fds []int) {
	for _, l := range g.listeners {
		if l.Role != config.RoleMint && l.Role != config.RoleSeed && l.Role != config.RolePeers {
			fds = append(fds, int(l.File.Fd()))
		}
	}
	for _, e := range g.exposed {
		fds = append(fds, int(e.file.Fd()))
	}
	return fds
}

// serve starts the gate in the middle of a run. If that fails, connections are
// refused, and the reason is told.
func (g *Gate) serve(p *native.Process) {
	for _, fd := range g.doors() {
		p.Unwatch(fd)
	}
	err := g.Start()
	if err == nil {
		err = p.Watch(int(g.events.Fd()), g.take)
	}
	if err != nil {
		g.failed(err)
	}
}

func (g *Gate) failed(err error) {
	e := event.New(event.Deny)
	e.Op, e.Rule, e.Sandbox = event.OpConnect, "the network gate could not be started: "+err.Error(), g.config.Sandbox
	g.report(e)
}

// wait blocks until a connection comes, and then starts the gate and takes in
// what it tells, until Close. It is for who has no Process to wait for.
func (g *Gate) wait() {
	g.mu.Lock()
	if g.started {
		g.mu.Unlock()
		return
	}
	g.done = make(chan struct{})
	g.waiting = copies(g.doors())
	g.mu.Unlock()
	defer close(g.done)
	if !g.waitForConnection() {
		return
	}
	if err := g.Start(); err != nil {
		g.failed(err)
		return
	}
	for g.events != nil && g.take() {
	}
}

// copies are the listeners once more, for the Go runtime to wait on: many gates
// may wait at once, and none needs a thread for that.
func copies(fds []int) []*os.File {
	var list []*os.File
	for _, fd := range fds {
		if f, err := ready.Copy(fd); err == nil {
			list = append(list, f)
		}
	}
	return list
}

// waitForConnection returns when one of the sockets has something for the gate,
// or with false when Close was called.
func (g *Gate) waitForConnection() bool {
	came := make(chan bool, len(g.waiting))
	for _, f := range g.waiting {
		go func() { came <- ready.Wait(f) }()
	}
	found := false
	for range g.waiting {
		if found = <-came; found {
			break
		}
	}
	g.stopWaiting()
	return found
}

func (g *Gate) stopWaiting() {
	for _, f := range g.waiting {
		_ = f.Close() // a second time it does nothing
	}
}

// Descriptors of the gate.
const (
	fdConfig  = 3
	fdEvents  = 4
	fdControl = 5
)

// Start starts the gate and hands it the sockets.
func (g *Gate) Start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return nil
	}
	g.started = true
	if g.beget != nil {
		way, err := g.beget()
		if err != nil {
			g.closeListeners()
			return err
		}
		g.listeners = append(g.listeners, way...)
	}
	told := g.told(g.config)
	configuration, err := inMemory(&told)
	if err != nil {
		return err
	}
	defer configuration.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	events := os.NewFile(uintptr(pipe[1]), "events")
	g.events = os.NewFile(uintptr(pipe[0]), "events")
	defer events.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil { // so that closing it ends reading
		return os.NewSyscallError("fcntl", err)
	}
	g.control = os.NewFile(uintptr(pair[0]), "control")
	control := os.NewFile(uintptr(pair[1]), "control")
	defer control.Close()

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	argv := []string{
		g.program, "serve", "--config", strconv.Itoa(fdConfig), "--events", strconv.Itoa(fdEvents), "--control", strconv.Itoa(fdControl),
	}
	files := []uintptr{null.Fd(), null.Fd(), null.Fd(), configuration.Fd(), events.Fd(), control.Fd()}
	argv, files = g.sockets(argv, files)
	g.pid, err = syscall.ForkExec(g.program, argv, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	g.closeListeners()
	if err != nil {
		return fmt.Errorf("%s: %w", g.program, err)
	}
	g.messages = config.NewConn(g.control)
	g.hungUp, g.reloaded = make(chan struct{}), make(chan string, 1)
	go g.converse(g.messages)
	return nil
}

// sockets adds the sockets to what the gate inherits, and which is which to its
// arguments.
func (g *Gate) sockets(argv []string, files []uintptr) ([]string, []uintptr) {
	add := func(flag, name string, fd uintptr) {
		argv = append(argv, flag, name+"="+strconv.Itoa(len(files)))
		files = append(files, fd)
	}
	mint := ""
	for _, l := range g.listeners {
		switch l.Role {
		case config.RoleMint:
			mint = strconv.Itoa(len(files))
			files = append(files, l.File.Fd())
		case config.RoleSeed: // the next after its mint
			add("--inside", mint, l.File.Fd())
		default:
			add("--listen", string(l.Role), l.File.Fd())
		}
	}
	for _, e := range g.exposed {
		add("--expose", strconv.Itoa(int(e.want.Inside)), e.file.Fd())
	}
	return argv, files
}

func (g *Gate) closeListeners() {
	for _, l := range g.listeners {
		_ = l.File.Close()
	}
	for _, e := range g.exposed {
		_ = e.file.Close()
	}
}

// inMemory is the configuration as a file that nobody else can see.
func inMemory(c *config.Config) (*os.File, error) {
	fd, err := unix.MemfdCreate("gate", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "gate")
	if err := c.Write(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// take takes in what the gate tells. It reports false when there will be nothing
// more.
func (g *Gate) take() bool {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(int(g.events.Fd()), buf)
	if err == unix.EINTR || err == unix.EAGAIN {
		return true
	}
	if n <= 0 || err != nil {
		return false
	}
	g.line = append(g.line, buf[:n]...)
	for {
		line, rest, found := bytes.Cut(g.line, []byte("\n"))
		if !found {
			return true
		}
		g.line = rest
		e := new(event.Event)
		if e.UnmarshalJSON(line) == nil {
			g.report(e)
		}
	}
}

// Close ends the gate, and waits until it has told what it had to tell.
func (g *Gate) Close() {
	if g == nil {
		return
	}
	g.inlet.close()
	g.mu.Lock()
	if !g.started {
		g.started = true
		g.closeListeners()
		g.stopWaiting()
	}
	if g.control != nil {
		_ = g.control.Close()
	}
	done, hungUp := g.done, g.hungUp
	g.mu.Unlock()
	if hungUp != nil {
		<-hungUp
	}
	if done != nil {
		<-done
	} else if g.events != nil {
		for g.take() {
		}
	}
	if g.events != nil {
		_ = g.events.Close()
	}
	if g.pid > 0 {
		reap(g.pid)
	}
}

// reap collects a process.
func reap(pid int) (ws unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws
		}
	}
}

// MakeAuthority has the gate make its certificate authority: it knows how to
// sign.
func MakeAuthority(dir string) error {
	program, err := Program()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	n := null.Fd()
	pid, err := syscall.ForkExec(program, []string{program, "authority", dir}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{n, n, os.Stderr.Fd()},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if ws := reap(pid); !ws.Exited() || ws.ExitStatus() != 0 {
		return errors.New("the certificate authority of the network gate could not be made in " + dir)
	}
	return nil
}
