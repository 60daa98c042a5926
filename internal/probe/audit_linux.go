package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Config is what an audit goes by.
type Config struct {
	// Spec is the policy compiled for Argv, with the variables of Environ to
	// choose from. The audit shows the prober's program in addition, and changes
	// nothing else.
	Spec *spec.Spec
	// Policy is what Spec was compiled from.
	Policy policy.Policy
	// Program is Bailey's executable on the host.
	Program string
	Home    string
	// PolicyFiles and OwnDirs decide what later runs may do.
	PolicyFiles, OwnDirs []string
	// Started, if not nil, is called when the sandbox runs, and before anything
	// is made on the host: signals that end the prober first let Run clean up.
	Started func(*native.Process)

	// alter breaks a wall, for tests: the sandbox is made by what it leaves, and
	// judged by Spec.
	alter func(*spec.Spec)
}

// baits are variables that would enter by their name, if nothing looked at what
// they hold or mean.
var baits = [...]string{
	"npm_config_bailey_audit_token=none",
	"CARGO_BAILEY_AUDIT=ghp_0123456789abcdefghijABCDEFGHIJ012345",
}

// Environ adds to an environment what must not enter.
func Environ(environ []string) []string { return append(slices.Clone(environ), baits[:]...) }

// maxDuration is far more than an audit takes; what is not done then hangs.
const maxDuration = 4 * time.Second

// audit is one run.
type audit struct {
	Config
	token    string
	dir      string // where the prober starts
	scratch  string // a directory that the prober can write
	shared   bool   // which is the host's
	rows     []row
	controls controls
	tries    []*try // of all rows and controls, in the order they are made

	mu      sync.Mutex
	denials []broker.Denial

	pid       int // process 1, in the host's numbering
	closers   []func()
	lingering bool // something of the sandbox was left at its end
}

// Run starts the sandbox, attacks it from inside, and judges. It leaves nothing
// behind on the host.
func Run(c Config) (Report, error) {
	a := &audit{Config: c, dir: c.Spec.Dir, token: newToken()}
	sweep(a.dir)
	defer a.close()
	if err := a.attack(); err != nil {
		return nil, err
	}
	return a.report(), nil
}

func (a *audit) close() {
	for _, f := range slices.Backward(a.closers) {
		f()
	}
}

// finally has something done at the end of the audit.
func (a *audit) finally(f func()) { a.closers = append(a.closers, f) }

// pipes are the prober's streams, each with its end here.
type pipes struct{ in, out, errs [2]*os.File }

func (a *audit) openPipes() (*pipes, error) {
	p := &pipes{}
	for _, ends := range []*[2]*os.File{&p.in, &p.out, &p.errs} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, os.NewSyscallError("pipe2", err)
		}
		for i, fd := range fds {
			ends[i] = os.NewFile(uintptr(fd), "pipe")
			a.finally(func() { _ = ends[i].Close() })
		}
	}
	return p, nil
}

// attack runs the prober and collects what it reports.
func (a *audit) attack() error {
	p, err := a.openPipes()
	if err != nil {
		return err
	}
	if err := a.plantDescriptor(); err != nil {
		return err
	}
	proc, ended, err := a.launch([3]*os.File{p.in[0], p.out[1], p.errs[1]})
	if err != nil {
		return err
	}
	a.pid = proc.Pid
	for _, f := range []*os.File{p.in[0], p.out[1], p.errs[1]} {
		_ = f.Close()
	}
	timer := time.AfterFunc(maxDuration, func() { _ = proc.Kill() })
	defer timer.Stop()
	if a.Started != nil {
		a.Started(proc)
	}
	a.build()
	outcomes, err := a.converse(p)
	state := <-ended
	said := a.lastWords(int(p.errs[0].Fd()))
	if err == nil && len(outcomes) != len(a.tries) {
		err = errors.New("the prober did not report everything")
	}
	if err != nil {
		return fmt.Errorf("audit: %w (%s)%s", err, describe(state), said)
	}
	for i := range outcomes {
		a.tries[i].out = outcomes[i]
	}
	return nil
}

// plantDescriptor opens something that an exec would pass on.
func (a *audit) plantDescriptor() error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	a.finally(func() { _ = unix.Close(fd) })
	return nil
}

// launch starts the sandbox on a thread of its own: serving the broker makes a
// thread unfit for looking at the host.
func (a *audit) launch(streams [3]*os.File) (*native.Process, <-chan native.State, error) {
	s := a.carried()
	started := make(chan error)
	ended := make(chan native.State, 1)
	var proc *native.Process
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		proc, err = native.Start(s, native.Options{Streams: streams, Report: a.denied})
		started <- err
		if err != nil {
			return
		}
		state := proc.Wait()
		for state.Stopped() {
			state = proc.Wait()
		}
		ended <- state
	}()
	err := <-started
	return proc, ended, err
}

// carried is the Spec with the prober's program in it.
func (a *audit) carried() *spec.Spec {
	s := *a.Spec
	s.Mounts = append(slices.Clone(s.Mounts), spec.Mount{Kind: spec.Bind, Source: a.Program, Target: program, File: true, Why: "prober"})
	s.Landlock.Rules = append(slices.Clone(s.Landlock.Rules), spec.LandlockRule{Path: program, File: true, Read: true, Execute: true})
	if a.alter != nil {
		a.alter(&s)
	}
	return &s
}

func (a *audit) denied(d broker.Denial) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denials = append(a.denials, d)
}

// denial returns what the broker said about a path, or nil.
func (a *audit) denial(path string) *broker.Denial {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.denials {
		if a.denials[i].Path == path {
			return &a.denials[i]
		}
	}
	return nil
}

// converse tells the prober what to do, and returns what it reports.
func (a *audit) converse(p *pipes) ([]outcome, error) {
	todo := plan{Token: a.token}
	for _, t := range a.tries {
		todo.Attempts = append(todo.Attempts, t.attempt)
	}
	text, err := json.Marshal(todo)
	if err != nil {
		return nil, err
	}
	if err := writeAll(int(p.in[1].Fd()), text); err != nil {
		return nil, fmt.Errorf("tell the prober: %w", err)
	}
	_ = p.in[1].Close()
	if text, err = readAll(int(p.out[0].Fd())); err != nil {
		return nil, fmt.Errorf("hear the prober: %w", err)
	}
	var outcomes []outcome
	if err := json.Unmarshal(text, &outcomes); err != nil {
		return nil, fmt.Errorf("understand the prober: %w", err)
	}
	return outcomes, nil
}

// lastWords reads the prober's stderr. Every process that it left behind has
// that open, so that its end says that there is none.
func (a *audit) lastWords(fd int) string {
	const grace = 200 // milliseconds
	var said []byte
	buf := make([]byte, 4<<10)
	for {
		if !ready(fd, unix.POLLIN, grace) {
			a.lingering = true
			break
		}
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			break
		}
		said = append(said, buf[:n]...)
	}
	if len(said) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(said))
}

func describe(state native.State) string {
	switch {
	case state.Killed:
		return "the sandbox was killed"
	case state.Wait.Signaled():
		return "it ended by " + unix.SignalName(state.Wait.Signal())
	}
	return "its status was " + strconv.Itoa(state.Wait.ExitStatus())
}
