package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

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

	mu       sync.Mutex
	closed   bool
	life     *life // nil while no gate runs
	broken   error // why none will run any more
	restarts int   // since:
	since    time.Time

	reloading  sync.Mutex
	conversing sync.WaitGroup
	waiting    []*os.File    // see wait
	done       chan struct{} // closed when wait returns, nil if it was not called
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
	if err := g.watch(p); err != nil {
		g.Close()
		return err
	}
	return nil
}

// watch has the gate started when a connection comes.
func (g *Gate) watch(p *native.Process) error {
	for _, fd := range g.doors() {
		if err := p.Watch(fd, func() bool { g.serve(p); return true }); err != nil {
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
	g.goWait()
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
	g.goWait()
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

// serve starts the gate in the middle of a run, and again if it ends before that
// does. If it cannot be, connections are refused, and the reason is told.
func (g *Gate) serve(p *native.Process) {
	for _, fd := range g.doors() {
		p.Unwatch(fd)
	}
	l := g.start()
	if l == nil {
		return
	}
	events := int(l.events.Fd())
	err := p.Watch(events, func() bool {
		if l.take(g.report) {
			return true
		}
		p.Unwatch(events)
		if g.missed(l) {
			if err := g.watch(p); err != nil {
				g.giveUp(err)
			}
		}
		return true
	})
	if err != nil {
		g.giveUp(err)
	}
}

// wait blocks until a connection comes, and then starts the gate and takes in
// what it tells, until Close. It is for who has no Process to wait for.
func (g *Gate) wait(done chan struct{}) {
	defer close(done)
	for g.waitForConnection() {
		l := g.start()
		if l == nil {
			return
		}
		for l.take(g.report) {
		}
		if !g.missed(l) {
			return
		}
	}
}

// goWait calls wait, unless Close was called.
func (g *Gate) goWait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.done = make(chan struct{})
		go g.wait(g.done)
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
func (g *Gate) waitForConnection() (found bool) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	waiting := copies(g.doors())
	g.waiting = waiting
	g.mu.Unlock()
	came := make(chan bool, len(waiting))
	for _, f := range waiting {
		go func() { came <- ready.Wait(f) }()
	}
	for range waiting {
		if found = <-came; found {
			break
		}
	}
	stopWaiting(waiting)
	return found
}

func stopWaiting(list []*os.File) {
	for _, f := range list {
		_ = f.Close() // a second time it does nothing
	}
}

// Descriptors of the gate.
const (
	fdConfig  = 3
	fdEvents  = 4
	fdControl = 5
)

// start starts the gate and hands it the sockets. They stay open here as well, so
// that those who connect wait for the next gate if this one ends. It returns nil
// if there is none.
func (g *Gate) start() *life {
	g.mu.Lock()
	if g.closed || g.broken != nil {
		g.mu.Unlock()
		return nil
	}
	l, err := g.begin()
	if err == nil {
		g.life = l
		g.conversing.Go(func() { g.converse(l) })
	}
	g.mu.Unlock()
	if err != nil {
		g.giveUp(fmt.Errorf("it could not be started: %w", err))
		return nil
	}
	return l
}

func (g *Gate) begin() (*life, error) {
	if g.beget != nil {
		way, err := g.beget()
		if err != nil {
			return nil, err
		}
		g.listeners, g.beget = append(g.listeners, way...), nil
	}
	told := g.told(g.config)
	configuration, err := inMemory(&told)
	if err != nil {
		return nil, err
	}
	defer configuration.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	l, theirs, err := newLife()
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	argv := []string{
		g.program, "serve", "--config", strconv.Itoa(fdConfig), "--events", strconv.Itoa(fdEvents), "--control", strconv.Itoa(fdControl),
	}
	files := []uintptr{null.Fd(), null.Fd(), l.said.Fd(), configuration.Fd(), theirs.events.Fd(), theirs.control.Fd()}
	argv, files = g.sockets(argv, files)
	l.pid, err = syscall.ForkExec(g.program, argv, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", g.program, err), l.close())
	}
	return l, nil
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
	f, err := memory("gate")
	if err != nil {
		return nil, err
	}
	if err := c.Write(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// memory is an empty file without a name.
func memory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Close ends the gate, and waits until it has told what it had to tell.
func (g *Gate) Close() {
	if g == nil {
		return
	}
	g.inlet.close()
	g.mu.Lock()
	l, done := g.life, g.done
	g.closed, g.life = true, nil
	stopWaiting(g.waiting)
	if l != nil {
		_ = l.control.Close()
	}
	g.mu.Unlock()
	g.conversing.Wait()
	if done != nil {
		<-done
	} else if l != nil {
		for l.take(g.report) {
		}
	}
	g.closeListeners()
	if l != nil {
		reap(l.pid)
		_ = l.close() // but for what was closed above it cannot fail
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
