package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Bundle is a bundle that stands where a guard has its own, for programs that call a
// runtime themselves, such as one that measures it.
type Bundle struct {
	runtime runtimeOrder
	id      Identity
}

// Enclose has a command run in namespaces like a guard's, in which it can furnish a Bundle.
// It is process 1 there, and has to take in what runtimes leave.
func Enclose(c *exec.Cmd, caller spec.Identity) { c.SysProcAttr = guardAttributes(caller) }

// NewBundle makes the bundle of a Spec for the runtime that the Spec names. The process must
// have been started by Enclose. Its program is the sandbox's first process, so it calls
// Become before all else. Its commands put up no walls of their own. Platform is gVisor's, and
// group a control group's name for root.
func NewBundle(s *spec.Spec, program, platform, group string, serial uint32) (*Bundle, error) {
	unix.Umask(0o022)
	e := engineOf(s.Runtime)
	if e == nil {
		return nil, errors.New("runtime " + s.Runtime + ": has no bundles")
	}
	if LinksOf(s) != nil {
		return nil, errors.New("a protected path is a symbolic link, which nobody keeps in a bundle of one's own")
	}
	b := &Bundle{runtime: e.order(s, program)}
	if platform != "" {
		b.runtime.Platforms = []string{platform}
	}
	b.id = IdentityOf(s.Identity, serial)
	config, sources, err := configAlone(s, b.id, group)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return b, b.furnish(text, sources, b.id)
}

// configAlone is the configuration of a Bundle. Nobody is there to tell the first process of
// walls, so it is that of a sandbox whose commands put up none, as in one that stays.
func configAlone(s *spec.Spec, id Identity, group string) (*specs.Spec, []Source, error) {
	bare := *s
	bare.Runtime = bareName(s.Runtime)
	o := optionsOf(&bare, bare.Runtime, id)
	o.Stream, o.Umask = -1, 0o022
	if s.Identity.UID == 0 {
		o.Cgroup = "/" + groupPrefix + group
	}
	return Config(&bare, o)
}

func (b *Bundle) furnish(config []byte, sources []Source, id Identity) error {
	g := &keeper{order: order{Config: config, Sources: sources, Runtime: b.runtime}}
	return g.furnish(id, func() error { return nil })
}

// Command is a call of the runtime: a verb, its options, and the sandbox's name.
func (b *Bundle) Command(verb string, options ...string) []string {
	args := append([]string{b.runtime.Program}, b.runtime.global()...)
	args = append(append(args, verb), options...)
	return append(args, containerName)
}

// Create is the call that makes the sandbox, with its first process not started yet. The
// number of the process that stands for it is in PidFile afterwards.
func (b *Bundle) Create() []string {
	return b.Command("create", "--bundle", stage, "--pid-file", pidFile)
}

// Exec is the call that runs one more command in the sandbox, as the same user.
func (b *Bundle) Exec(argv ...string) []string {
	user := fmt.Sprintf("%d:%d", b.id.UID, b.id.GID)
	return append(b.Command("exec", "--user", user, "--cwd", "/"), argv...)
}

// PidFile is where the runtime says which process is the sandbox's.
func (b *Bundle) PidFile() string { return pidFile }

// Log is what the runtime last had to say about what it could not do.
func (b *Bundle) Log() string { return lastLine(logFile) }
