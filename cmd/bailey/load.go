package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// launch compiles and runs a command, and returns the exit status.
func launch(r *request, argv []string, log *trace.Log) int {
	if r.json && !r.monitor && !r.stats {
		return fail(errors.New("--json goes with --monitor or --stats, or after a verb that has it"))
	}
	if err := r.checkStats(); err != nil {
		return fail(err)
	}
	if insideSandbox() {
		discard()
		return launchNested(r, argv, log)
	}
	if err := r.checkKeep(); err != nil {
		return fail(err)
	}
	if r.keep.name != "" {
		discard()
		return launchKept(r, argv, log)
	}
	p, err := prepare(r, log)
	if err != nil {
		return launchRestricted(r, argv, log, err)
	}
	m, err := r.manager()
	if err != nil {
		p.abandon()
		return fail(err)
	}
	if wants, err := r.wantsImage(m); wants || err != nil {
		p.abandon()
		if err != nil {
			return fail(err)
		}
		return r.runCommand(log) // now that it is known where
	}
	p.foresee(m.Loaded().Policy)
	w, err := r.openWorkspace(m)
	if err != nil {
		p.abandon()
		return fail(err)
	}
	s, status := r.compileWith(m, spec.Command{Argv: argv, Drafted: p.draft, Overlay: w.overlay()}, log)
	if s == nil {
		p.abandon()
		w.abandon()
		return status
	}
	if err := w.announce(s); err != nil {
		p.abandon()
		w.abandon()
		return fail(err)
	}
	status = r.carryOut(m, p, s)
	w.collect(p)
	return w.settle(r, status)
}

// carryOut runs a command with the runtime that its Spec names.
func (r *request) carryOut(m *sandbox.Manager, p *prepared, s *spec.Spec) int {
	if err := r.checkPool(s.Runtime); err != nil {
		p.abandon()
		return fail(err)
	}
	switch s.Runtime {
	case "", spec.RuntimeNative, spec.RuntimeBwrap, spec.RuntimeSeatbelt:
	case spec.RuntimeLandlock:
		p.abandon()
		return r.runAlone(m.Loaded().Policy, s, nil)
	default:
		p.abandon()
		return p.handOver(r, m.Loaded().Policy.Origins, s)
	}
	p.refused = func(err error) int { return r.runRestricted(m, s, err) }
	return p.run(r, s)
}

// compileWith decides what a command gets, and says what its user should know. If
// it gets nothing it returns the exit status.
func (r *request) compileWith(m *sandbox.Manager, c spec.Command, log *trace.Log) (*spec.Spec, int) {
	log.Mark("policy")
	c.Image = r.image.found
	s, err := m.CompileCommand(c)
	if err != nil {
		return nil, fail(err)
	}
	log.Mark("spec")
	if v := judgeTyped(m.Loaded().Policy, c.Argv); !v.Allowed {
		say(tagError, v.String())
		return nil, exitNotRunnable
	}
	r.announce(m.Loaded(), s)
	return s, 0
}

// judgeTyped refuses what was typed before anything of it runs. What only the
// shell will know is judged when it is executed.
func judgeTyped(p policy.Policy, argv []string) command.Verdict {
	saysSSH := p.SSH.AllowedHosts != nil || p.SSH.DeniedHosts != nil || p.SSH.DeniedCommands != nil
	if len(p.Command.Deny) == 0 && (p.Command.UseDefaults == nil || !*p.Command.UseDefaults) && !saysSSH {
		return command.Verdict{Allowed: true}
	}
	return command.FromPolicy(p).Compile().Typed(argv, command.Split)
}

// manager finds the effective policy.
func (r *request) manager() (*sandbox.Manager, error) {
	c, err := r.config()
	if err != nil {
		return nil, err
	}
	m := sandbox.New(c)
	return m, m.Initialize()
}

// config says where the policy is, from flags and environment.
func (r *request) config() (sandbox.Config, error) {
	c := sandbox.Config{Dir: r.dir, Settings: r.settings, Preset: r.preset, Agent: r.agent, Policy: r.inline}
	if c.Settings == "" && c.Preset == "" && len(c.Policy) == 0 {
		c.Settings, c.Preset = os.Getenv("BAILEY_SETTINGS"), os.Getenv("BAILEY_PRESET")
		if c.Settings != "" && c.Preset != "" {
			return c, errors.New("BAILEY_SETTINGS and BAILEY_PRESET are both set; unset one")
		}
	}
	if c.Settings != "" && c.Preset != "" {
		return c, errors.New("--settings and --preset exclude each other; a file can extend a preset")
	}
	if len(c.Policy) > 0 && (c.Settings != "" || c.Preset != "") {
		return c, errors.New("--policy excludes --settings and --preset; it can extend them")
	}
	var err error
	if c.Settings != "" {
		if c.Settings, err = filepath.Abs(c.Settings); err != nil {
			return c, err
		}
	}
	c.Overrides, err = r.overrides()
	return c, err
}

// overrides are the grants of the command line, held to the same rules as a
// file.
func (r *request) overrides() (policy.Policy, error) {
	p := r.grants
	if r.runtime != "" {
		p.Runtime = &r.runtime
	}
	if err := r.degrade(&p); err != nil {
		return p, err
	}
	if p.Filesystem.AllowRead == nil && p.Filesystem.AllowWrite == nil && p.Filesystem.DenyRead == nil &&
		p.Filesystem.DenyWrite == nil && p.Network.AllowedDomains == nil && p.Env.Allow == nil && p.Env.Set == nil && p.Runtime == nil {
		return p, nil
	}
	if _, err := policy.Parse("command line", policy.Marshal(p, "")); err != nil {
		var e *policy.Error
		if errors.As(err, &e) {
			e.Line = 0 // there are no lines to count
		}
		return p, err
	}
	return p, nil
}

// degrade leaves out what only a broker holds, where there is none and the caller says so.
func (r *request) degrade(p *policy.Policy) error {
	if !r.weaker {
		return nil
	}
	if !slices.Contains(spec.Brokerless(), r.runtime) {
		return errors.New("--allow-degraded goes with --runtime and one of " + strings.Join(spec.Brokerless(), ", "))
	}
	p.Filesystem.ProtectMissing = new(false)
	if !r.settledQuiet() {
		say(tagWarning, "degraded: the "+r.runtime+" runtime has no broker, so protected names that do not exist yet can be made (filesystem.protectMissing)")
	}
	return nil
}

// announce says on stderr what the command will not find as its user expects.
func (r *request) announce(l *policy.Loaded, s *spec.Spec) {
	if r.settledDebug() {
		say(tagNote, describeChain(l)+describeSpec(s))
	}
	if r.settledQuiet() {
		return
	}
	if l.Note != "" {
		say(tagNote, l.Note)
	}
	if l.Project != "" && l.Status != policy.Trusted {
		say(tagWarning, printable(l.Project)+": "+string(l.Status)+", so it can only take away; to let it grant: bailey trust")
	}
	for _, w := range s.Warnings {
		say(tagWarning, w)
	}
	if len(s.DroppedEnv) > 0 {
		names := strings.Join(s.DroppedEnv, " ")
		say(tagWarning, "kept out, since they look like secrets: "+printable(names)+"; --env NAME lets one in")
	}
}

func describeChain(l *policy.Loaded) string {
	var b strings.Builder
	for _, link := range l.Chain {
		b.WriteString("policy: " + string(link.Kind) + " " + printable(link.Name))
		if !link.Trusted {
			b.WriteString(" (not trusted: only takes away)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func describeSpec(s *spec.Spec) string {
	return fmt.Sprintf("spec: %d mounts, %d landlock rules, network %s, directory %s\nprogram: %s\n",
		len(s.Mounts), len(s.Landlock.Rules), s.Network, printable(s.Dir), printable(strings.Join(s.Exec, " ")))
}

func (r *request) settledQuiet() bool { return r.quiet || switchedOn("BAILEY_QUIET") }

func (r *request) settledDebug() bool { return r.debug || switchedOn("BAILEY_DEBUG") }

func switchedOn(variable string) bool {
	v := os.Getenv(variable)
	return v != "" && v != "0"
}

var errInside = errors.New("already inside a Bailey sandbox, where this cannot be done; run it outside")

// insideSandbox asks the one witness a sandbox cannot replace: the name of
// process 1. The variable only spares everyone else the question.
func insideSandbox() bool {
	return os.Getenv("BAILEY") != "" && host.InSandbox()
}
