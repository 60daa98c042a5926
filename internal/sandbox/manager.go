// Package sandbox is the life of a sandbox as every face of Bailey uses it:
// find the policy, compile it for a command, run that command behind the walls.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Config says where a Manager finds its policy. The zero value searches as the
// command does, from the working directory.
type Config struct {
	// Dir is where commands run; the caller's working directory if empty.
	Dir string
	// Settings and Preset name a policy; at most one is set.
	Settings, Preset string
	// Agent is the preset of an agent, which holds besides the policy.
	Agent string
	// Policy, if not empty, is the policy as text, as in a file, and nothing is
	// searched; further texts only take away.
	Policy []string
	// Overrides are merged last.
	Overrides policy.Policy
	// Ask answers questions about hosts, with a decision that package config has;
	// nil if nobody can be asked.
	Ask func(context.Context, config.Message) (decision string)
	// Environ is what the environment allow-list chooses from and what the network
	// gate has; the caller's environment if nil.
	Environ []string
	// Outside is what the network gate has, if that is not Environ: which optional
	// credentials there are is decided by it.
	Outside []string
	// Home is what ~ means; the caller's home directory if empty.
	Home string
	// Place, if not nil, is where commands run instead of Dir, in a sandbox that
	// stays: files of its own, under a name that the host need not have.
	Place *spec.Overlay
	// Image, if not nil, is the system of a sandbox that stays.
	Image *spec.Image
	// Hidden are files and directories that no sandbox sees, whatever the policy says.
	Hidden []string
	// Closed are hidden, too, as far as they are there.
	Closed []string
	// Authority is where the certificate authority of the network gate is, or is made;
	// among the state of the caller's if empty.
	Authority string
	// Permit, if not nil, says whether a policy may be gone by, before anything is made
	// for it.
	Permit func(*policy.Policy) error
}

// Manager holds a policy that is ready to be applied to commands. Its methods
// may be called from several goroutines once Initialize has returned.
type Manager struct {
	config Config
	facts  *host.Facts
	loaded *policy.Loaded
}

// New returns a Manager that is not initialised yet.
func New(c Config) *Manager { return &Manager{config: c} }

// Initialize finds and reads the policy and looks at the machine. It starts
// nothing.
func (m *Manager) Initialize() error {
	if named(m.config.Settings != "", m.config.Preset != "", len(m.config.Policy) > 0) > 1 {
		return errors.New("only one of settings, preset and policy can be given")
	}
	facts, err := host.New()
	if err != nil {
		return err
	}
	caller := &facts.Caller
	if m.config.Home != "" {
		caller.Home = m.config.Home
	}
	if m.config.Place != nil {
		caller.Dir = m.config.Place.Source
	} else if m.config.Dir != "" {
		if caller.Dir, err = realDir(m.config.Dir); err != nil {
			return err
		}
	}
	if m.config.Environ != nil {
		caller.Environ = m.config.Environ
	}
	loaded, err := m.load(caller)
	if err != nil {
		return err
	}
	caller.OwnDirs = OwnDirs(caller.Home)
	caller.DataDir, caller.Hidden, caller.Closed = DataDir(caller.Home), m.config.Hidden, m.config.Closed
	caller.PolicyFiles = append(loaded.Files, userPolicy(caller.Home)...)
	if loaded.Status == policy.Trusted {
		caller.Root = loaded.Root
	}
	settle(caller, loaded)
	outside := m.outside()
	if outside == nil {
		outside = caller.Environ
	}
	dropMissing(&loaded.Policy.Network, outside)
	if m.config.Permit != nil {
		if err := m.config.Permit(&loaded.Policy); err != nil {
			return err
		}
	}
	if opensTLS(loaded.Policy) {
		if caller.Authority, err = openAuthority(m.authority(caller.Home), outside); err != nil {
			return err
		}
	}
	m.facts, m.loaded = facts, loaded
	return nil
}

// outside is what the network gate has for its environment, this process's if it is nil.
func (m *Manager) outside() []string {
	if m.config.Outside != nil {
		return m.config.Outside
	}
	return m.config.Environ
}

func (m *Manager) authority(home string) string {
	if m.config.Authority != "" {
		return m.config.Authority
	}
	return filepath.Join(StateHome(home), "bailey", "authority")
}

// dropMissing leaves out the optional credentials that this user does not have.
// Those that are left must be had: no request that needs one is sent without.
func dropMissing(n *policy.Network, environ []string) {
	n.Inject = slices.DeleteFunc(n.Inject, func(i policy.Injection) bool {
		set := func(v string) bool { return strings.HasPrefix(v, i.FromEnv+"=") && len(v) > len(i.FromEnv)+1 }
		return i.Optional != nil && *i.Optional && !slices.ContainsFunc(environ, set)
	})
}

// opensTLS says whether the network gate needs a certificate authority.
func opensTLS(p policy.Policy) bool {
	inspected := func(r policy.NetworkRule) bool { return r.Inspect != nil && *r.Inspect }
	return len(p.Network.Inject) > 0 || slices.ContainsFunc(p.Network.Rules, inspected)
}

// userPolicy returns the user's own policy file, which may be a link into a
// repository, whether or not this run goes by it: the next one may.
func userPolicy(home string) []string {
	file := policy.UserFile(ConfigHome(home))
	real, err := filepath.EvalSymlinks(file)
	if err != nil || real == file {
		return nil // its directory is protected
	}
	return []string{real}
}

func named(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}

func (m *Manager) load(caller *spec.Host) (*policy.Loaded, error) {
	o := policy.Options{
		Dir: caller.Dir, Home: caller.Home,
		ConfigHome: ConfigHome(caller.Home), StateHome: StateHome(caller.Home),
		Settings: m.config.Settings, Preset: m.config.Preset, Agent: m.config.Agent, Overrides: m.config.Overrides,
	}
	if len(m.config.Policy) > 0 {
		return policy.Inline(o, "--policy", m.config.Policy...)
	}
	o.Translate = translator(o)
	return policy.Load(o)
}

// Loaded is the policy and where it came from.
func (m *Manager) Loaded() *policy.Loaded { return m.loaded }

// Dir is where commands run.
func (m *Manager) Dir() string { return m.facts.Caller.Dir }

// Compile decides what the policy means for one command.
func (m *Manager) Compile(argv []string) (*spec.Spec, error) {
	return m.CompileCommand(spec.Command{Argv: argv})
}

// CompileOver is Compile with changes to the project kept apart.
func (m *Manager) CompileOver(argv []string, over *spec.Overlay) (*spec.Spec, error) {
	return m.CompileCommand(spec.Command{Argv: argv, Overlay: over})
}

// CompileCommand is Compile for who begins to carry the Spec out before it is
// whole, or has a place for changes to the project; see spec.Command.
func (m *Manager) CompileCommand(c spec.Command) (*spec.Spec, error) {
	if m.loaded == nil {
		return nil, errNotInitialized
	}
	if err := checkArgv(c.Argv); err != nil {
		return nil, err
	}
	return spec.Compile(m.loaded.Policy, overlaid(m.facts, c.Overlay), c)
}

// Home is the caller's home directory, as the caller names it.
func (m *Manager) Home() string { return m.facts.Caller.Home }

// IsClosed says whether a file exists that its permissions, or those of a directory
// above it, keep the caller from reading.
func (m *Manager) IsClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission) || err == nil && !m.facts.Readable(path)
}

// Project is the directory that an overlay lies over; empty if there is none.
func (m *Manager) Project() string { return spec.Project(m.facts) }

// OverlaidProject is Project where there must be one.
func (m *Manager) OverlaidProject() (string, error) {
	project := m.Project()
	if project == "" {
		return "", errors.New("overlay: " + plain.Text(m.Dir()) + " is not a project, so nothing here can be kept apart; cd into a project")
	}
	return project, nil
}

// WantsImage is the image that the policy has commands run in, as the command line would
// name it, or "". A path is relative to what the policy's paths are relative to.
func (m *Manager) WantsImage() string {
	image := m.loaded.Policy.Image
	if image == nil {
		return ""
	}
	if rest, ok := strings.CutPrefix(*image, "~/"); ok {
		return filepath.Join(m.facts.Caller.Home, rest)
	}
	if strings.HasPrefix(*image, "./") || strings.HasPrefix(*image, "../") {
		return filepath.Join(m.loaded.Root, *image)
	}
	return *image
}

// WantsOverlay says whether the policy keeps changes to the project apart.
func (m *Manager) WantsOverlay() bool {
	mode := m.loaded.Policy.Workspace.Mode
	return mode != nil && *mode == "overlay"
}

// CompileBox decides what the policy means for a sandbox that stays.
func (m *Manager) CompileBox() (*spec.Spec, error) { return m.CompileBoxOver(m.config.Place) }

// CompileBoxOver is CompileBox with changes to the project kept apart, if over is
// not nil.
func (m *Manager) CompileBoxOver(over *spec.Overlay) (*spec.Spec, error) {
	return m.CompileBoxIn(m.config.Image, over)
}

// CompileBoxIn is CompileBoxOver with another system, if image is not nil.
func (m *Manager) CompileBoxIn(image *spec.Image, over *spec.Overlay) (*spec.Spec, error) {
	return m.compileBox(spec.Command{Overlay: over, Image: image})
}

// CompileViewed is CompileBoxOver with all path permissions left to a view, for a
// sandbox that has one.
func (m *Manager) CompileViewed(over *spec.Overlay) (*spec.Spec, error) {
	return m.CompileViewedIn(m.config.Image, over)
}

// CompileViewedIn is CompileViewed with another system, if image is not nil.
func (m *Manager) CompileViewedIn(image *spec.Image, over *spec.Overlay) (*spec.Spec, error) {
	return m.compileBox(spec.Command{Overlay: over, Image: image, View: true})
}

func (m *Manager) compileBox(c spec.Command) (*spec.Spec, error) {
	if m.loaded == nil {
		return nil, errNotInitialized
	}
	c.Later = true
	return spec.Compile(m.loaded.Policy, overlaid(m.facts, c.Overlay), c)
}

var errNotInitialized = errors.New("the manager is not initialised")

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("no command")
	}
	for _, a := range argv {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("argument %q holds a NUL byte", a)
		}
	}
	return nil
}

// Wrap returns an argv that runs a command under this Manager's policy: any
// process of the same user can run it, from any directory. Program is the
// bailey executable.
func (m *Manager) Wrap(program string, argv []string) ([]string, error) {
	if _, err := m.Compile(argv); err != nil {
		return nil, err
	}
	p := m.loaded.Policy
	p.Extends = policy.StringList{"none"} // it is whole already
	out := []string{program, "--dir", m.Dir(), "--policy", string(policy.Marshal(p, ""))}
	for _, b := range p.Bounds {
		bound := p
		bound.Filesystem = b
		out = append(out, "--policy", string(policy.Marshal(bound, "")))
	}
	for _, rules := range p.RuleBounds {
		bound := p
		bound.Workspace.Rules = rules
		out = append(out, "--policy", string(policy.Marshal(bound, "")))
	}
	return append(append(out, "--"), argv...), nil
}

// Quote joins an argv to a line that a POSIX shell splits back into it.
func Quote(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.IndexFunc(a, needsQuote) < 0 {
			b.WriteString(a)
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}

func needsQuote(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=@%+,", r)
}

// ConfigHome is where the user's own policy lives.
func ConfigHome(home string) string { return baseDir("XDG_CONFIG_HOME", home, ".config") }

// StateHome is where the trust store lives.
func StateHome(home string) string { return baseDir("XDG_STATE_HOME", home, ".local/state") }

// DataDir is where workspaces are.
func DataDir(home string) string {
	if dir := os.Getenv("BAILEY_DATA"); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return filepath.Join(baseDir("XDG_DATA_HOME", home, ".local/share"), "bailey")
}

// RuntimeDir is where the socket to resident sandboxes is: in the user's runtime
// directory, or where there is none, in one of its own.
func RuntimeDir() string {
	uid := os.Geteuid()
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "bailey")
	}
	if uid == 0 {
		return "/run/bailey"
	}
	return "/tmp/bailey-" + strconv.Itoa(uid)
}

// OwnDirs are the directories whose content decides what later runs may do.
func OwnDirs(home string) []string {
	return []string{filepath.Join(ConfigHome(home), "bailey"), filepath.Join(StateHome(home), "bailey"), RuntimeDir()}
}

// baseDir follows the XDG rules: a relative value counts as unset. Without a
// home directory there is nothing of the user's own: a relative path would take
// it from the project.
func baseDir(name, home, fallback string) string {
	if dir := os.Getenv(name); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if home == "" {
		home = "/nonexistent"
	}
	return filepath.Join(home, fallback)
}

func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the directory to run in: %w; make it, or name another: mkdir -p %s", err, plain.Word(abs))
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(real); err != nil {
		return "", err
	} else if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return real, nil
}
