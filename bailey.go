// Package bailey runs commands in a sandbox from a Go program: with exactly the
// files, network and environment a policy grants.
//
// A Manager holds the policy. Its Command method returns a Cmd in the shape of
// os/exec:
//
//	m := bailey.New(bailey.Config{})
//	if err := m.Initialize(); err != nil { … }
//	defer m.Cleanup()
//	out, err := m.Command("npm", "test").Output()
//
// A Box is a sandbox that stays: commands in it share its files and processes,
// and start as fast as outside.
//
// Nothing has to be set up in the embedding program: the sandbox is built with
// system calls, so main needs no helper mode and no other program needs to be
// installed. The bailey executable is used by WrapCommand only.
package bailey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Config says where a Manager finds its policy. The zero value searches as the
// bailey command does, from the working directory.
type Config struct {
	// Dir is the directory commands run in, and from which a policy file is
	// searched; the working directory if empty.
	Dir string
	// Settings is a policy file, Preset the name of a preset. At most one of
	// Settings, Preset and Policy is set.
	Settings string
	Preset   string
	// Policy is a whole policy in JSON with comments, as in a policy file.
	Policy string
	// Runtime is what carries the sandbox, in the place of what the policy says:
	// "native", or "bwrap" for bubblewrap. WrapCommand takes those too that only
	// the command has.
	Runtime string
	// Env is what the environment allow-list chooses from and where the network
	// gate finds credentials, as "NAME=value"; the program's own environment if nil.
	Env []string
	// Ask is called when a command wants to reach a host about which the policy
	// says "ask"; nil denies. It is called from several goroutines at once if
	// there are several questions, but once only for a host, and when its context
	// ends nobody waits for the answer any more.
	Ask func(ctx context.Context, q Question) Answer
	// Binary is the bailey executable for WrapCommand. If empty it is looked
	// for beside the running program and in PATH.
	Binary string
}

// Manager applies one policy to commands. After Initialize its methods may be
// used from several goroutines.
type Manager struct {
	config Config
	m      *sandbox.Manager

	life   sync.RWMutex // held for reading while a sandbox starts
	closed bool

	mu      sync.Mutex
	running map[sandbox.Running]struct{}
	boxes   map[*sandbox.Box]struct{}
}

// New returns a Manager; Initialize must follow.
func New(c Config) *Manager {
	return &Manager{config: c, running: make(map[sandbox.Running]struct{}), boxes: make(map[*sandbox.Box]struct{})}
}

// Initialize reads the policy and looks at the machine. It starts no process
// and opens no connection.
func (m *Manager) Initialize() error {
	core := sandbox.New(m.config.core())
	if err := core.Initialize(); err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	m.m = core
	return nil
}

func (c *Config) core() sandbox.Config {
	core := sandbox.Config{Dir: c.Dir, Settings: c.Settings, Preset: c.Preset, Environ: c.Env}
	if c.Policy != "" {
		core.Policy = []string{c.Policy}
	}
	if c.Runtime != "" {
		core.Overrides.Runtime = &c.Runtime
	}
	if c.Ask != nil {
		core.Ask = askWith(c.Ask)
	}
	return core
}

// Wrapped is a command line that runs a command in the sandbox.
type Wrapped struct {
	// Argv can be executed by any process of the same user, from any directory.
	Argv []string
}

// String is Argv quoted for a POSIX shell.
func (w Wrapped) String() string { return sandbox.Quote(w.Argv) }

// WrapCommand builds a command line for another process to run. It runs
// nothing itself.
func (m *Manager) WrapCommand(argv ...string) (Wrapped, error) {
	if m.m == nil {
		return Wrapped{}, fmt.Errorf("bailey: %w", errNotInitialized)
	}
	program, err := m.binary()
	if err != nil {
		return Wrapped{}, err
	}
	out, err := m.m.Wrap(program, argv)
	if err != nil {
		return Wrapped{}, fmt.Errorf("bailey: %w", err)
	}
	return Wrapped{out}, nil
}

var errNotInitialized = errors.New("the manager is not initialised; call Initialize first")

func (m *Manager) binary() (string, error) {
	if m.config.Binary != "" {
		return filepath.Abs(m.config.Binary)
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "bailey"); isProgram(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath("bailey")
	if err != nil {
		return "", fmt.Errorf("bailey: %w; set Config.Binary", err)
	}
	return filepath.Abs(path)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Command returns a Cmd that runs a program in a sandbox of its own.
func (m *Manager) Command(name string, args ...string) *Cmd {
	return m.CommandContext(context.Background(), name, args...)
}

// CommandContext is like Command; the sandbox is ended when ctx is done.
func (m *Manager) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	if ctx == nil {
		panic("bailey: nil context")
	}
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, launch: m.start, forget: m.forget}
}

// Cleanup ends every sandbox that is still there and waits until nothing of
// them is left. The Manager can start nothing any more.
func (m *Manager) Cleanup() error {
	m.life.Lock()
	m.closed = true
	m.life.Unlock()
	// From here on none is added.
	m.mu.Lock()
	running := slices.Collect(maps.Keys(m.running))
	boxes := slices.Collect(maps.Keys(m.boxes))
	m.mu.Unlock()
	for _, r := range running {
		_ = r.Signal(syscall.SIGKILL) // it may have ended by itself
	}
	for _, b := range boxes {
		b.Close()
	}
	for _, r := range running {
		<-r.Done()
	}
	return nil
}

var errCleanedUp = errors.New("the manager has been cleaned up")

// start starts a sandbox that Cleanup knows of.
func (m *Manager) start(argv []string, streams [3]*os.File) (sandbox.Running, error) {
	if m.m == nil {
		return nil, errNotInitialized
	}
	s, err := m.m.Compile(argv)
	if err != nil {
		return nil, err
	}
	return m.launch(s, streams)
}

func (m *Manager) launch(s *spec.Spec, streams [3]*os.File) (sandbox.Running, error) {
	m.life.RLock()
	defer m.life.RUnlock()
	if m.closed {
		return nil, errCleanedUp
	}
	r, err := m.m.Launch(s, streams)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[r] = struct{}{}
	return r, nil
}

func (m *Manager) forget(r sandbox.Running) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, r)
	return nil
}
