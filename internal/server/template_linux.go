package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/gate/address"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

const (
	// workspaceDir is where a sandbox's files are, inside.
	workspaceDir = "/workspace"
	// home is what ~ means in policies: below a file, so that the machine cannot have
	// it. Nothing of the server's user is granted by it, and nothing is made there.
	home = "/etc/passwd/nonexistent"
	// privateHome is what commands are told: a place where they can write.
	privateHome = "/tmp"
)

// environ is what commands have of an environment. The server's own is none of
// their business.
var environ = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LANG=C.UTF-8", "TERM=dumb",
}

// bound is what no policy of a client without the scope "admin" can exceed: of
// files, what Bailey grants by default; of the network, everything public. That takes a
// network of its own with the gate as the way out: the machine's has its loopback, where
// other owners' ports are, and whatever only the machine can reach. Which names may come
// into being in a workspace is its owner's to say.
const bound = `{
	"filesystem": {"protectMissing": false},
	"network": {"allowedDomains": ["*"], "allowLocalBinding": false, "allowLocalOutbound": false}
}`

// compile decides what a sandbox is. Its image need not be the request's: one that is made
// of a snapshot has that of the sandbox which the snapshot was taken of.
func (s *Server) compile(r *baileyv1.CreateSandboxRequest, image string, bounded bool, over *spec.Overlay) (*spec.Spec, error) {
	return s.compileBy(r, image, bounded, over, (*sandbox.Manager).CompileBoxOver)
}

// compileBy is compile by another way to compile.
func (s *Server) compileBy(r *baileyv1.CreateSandboxRequest, image string, bounded bool, over *spec.Overlay, by func(*sandbox.Manager, *spec.Overlay) (*spec.Spec, error)) (*spec.Spec, error) {
	if err := knownRuntime(r.GetRuntime()); err != nil {
		return nil, err
	}
	system, err := s.image(image)
	if err != nil {
		return nil, err
	}
	texts, err := policyTexts(r)
	if err != nil {
		return nil, err
	}
	if bounded {
		texts = append(texts, bound)
	}
	outside, closed := os.Environ(), []string(nil)
	if bounded {
		outside = environ // a preset's optional credentials are left out
		closed = s.closedFiles()
	}
	m := sandbox.New(sandbox.Config{
		Policy: texts, Overrides: overrides(r), Environ: environ, Outside: outside, Home: home, Place: over, Image: system, Hidden: s.hidden(), Closed: closed,
		Authority: s.config.Dir + "/authority", Permit: func(p *policy.Policy) error { return permitted(p, bounded) },
	})
	var answer *connect.Error
	if err := m.Initialize(); errors.As(err, &answer) {
		return nil, answer
	} else if err != nil {
		return nil, problem.New(connect.CodeInvalidArgument, "invalid_policy", err, problem.Remedy("correct the policy"))
	}
	sp, err := by(m, over)
	if err != nil {
		return nil, refused(err)
	}
	// Where loopback leads to the host, a port inside is not where it seems; and containers
	// have no way in.
	sp.Inlet = hasInlets(sp) && sp.Network.IsOwn() && !sp.Gate.LeadsToLoopback()
	return sp, held(sp)
}

// hidden is what no sandbox sees: the files of all owners, the tokens, and what else is the
// server's own.
func (s *Server) hidden() []string { return append([]string{s.config.Dir}, s.config.Secrets...) }

// permitted refuses what no bound takes away: whatever is read or run outside the
// sandbox on behalf of a policy, and where connections leave by. Only who may act
// for the machine may ask for it.
func permitted(p *policy.Policy, bounded bool) error {
	if p.Runtime != nil {
		if err := knownRuntime(*p.Runtime); err != nil {
			return err
		}
	}
	if !bounded {
		return nil
	}
	n := &p.Network
	for _, f := range []struct {
		key string
		set bool
	}{
		{"network.inject", len(n.Inject) > 0},
		{"network.rules.inspect", slices.ContainsFunc(n.Rules, func(r policy.NetworkRule) bool { return r.Inspect != nil && *r.Inspect })},
		{"network.upstreamProxy", n.UpstreamProxy != nil},
		{"network.httpProxyPort", n.HTTPProxyPort != nil},
		{"network.socksProxyPort", n.SOCKSProxyPort != nil},
	} {
		if f.set {
			return notPermitted(f.key, "it concerns the server's own machine")
		}
	}
	return publicOnly(p)
}

// publicOnly refuses to grant addresses by which only this machine reaches what is
// there: who names an address is granted it, wherever it is.
func publicOnly(p *policy.Policy) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, g := range granted(p) {
		addr, err := netip.ParseAddr(g.host)
		if err != nil {
			continue // a name, which must not lead to one
		}
		what := address.Special(addr)
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
				what = "this machine"
			}
		}
		if what != "" {
			return notPermitted(g.key, fmt.Sprintf("the address %s is %s", g.host, what))
		}
	}
	return nil
}

// grantedHost is a host that a policy names, and the key under which it does.
type grantedHost struct{ key, host string }

func granted(p *policy.Policy) (list []grantedHost) {
	for _, host := range p.Network.AllowedDomains {
		list = append(list, grantedHost{"network.allowedDomains", host})
	}
	for _, host := range p.SSH.AllowedHosts {
		list = append(list, grantedHost{"ssh.allowedHosts", host})
	}
	for i := range p.Network.Rules {
		if r := &p.Network.Rules[i]; r.Action != "deny" {
			list = append(list, grantedHost{"network.rules", r.Host})
		}
	}
	return list
}

// policyTexts is the policy of a request: its preset with its text over it.
func policyTexts(r *baileyv1.CreateSandboxRequest) ([]string, error) {
	text := r.GetPolicy()
	if text == "" {
		text = "{}"
	}
	p, err := policy.Parse("policy", []byte(text))
	if err != nil {
		return nil, problem.New(connect.CodeInvalidArgument, "invalid_policy", err, problem.Remedy("correct the policy"))
	}
	for _, name := range p.Extends {
		if !isPreset(name) {
			return nil, problem.Invalid("policy", "it extends %q, and over the API only presets can be extended", name)
		}
	}
	if r.GetPreset() != "" {
		if !isPreset(r.GetPreset()) {
			return nil, problem.Invalid("preset", "there is no preset %q", r.GetPreset())
		}
		p.Extends = append(policy.StringList{r.GetPreset()}, p.Extends...)
	}
	return []string{string(policy.Marshal(*p, ""))}, nil
}

func isPreset(name string) bool {
	for _, known := range policy.PresetNames() {
		if name == known {
			return true
		}
	}
	return name == "none"
}

// minQuota is the least processor time that the kernel bounds: a hundredth of a core.
const minQuota = cpuPeriod / 100

// checkResources refuses limits that would not be any.
func checkResources(l *baileyv1.Resources) error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"memory_bytes", l.GetMemoryBytes()},
		{"cpu_quota", l.GetCpuQuota()},
		{"pids_limit", int64(l.GetPidsLimit())},
		{"disk_bytes", l.GetDiskBytes()},
		{"open_files", int64(l.GetOpenFiles())},
		{"output_bytes", l.GetOutputBytes()},
	} {
		if f.value < 0 {
			return problem.Invalid(f.name, "%d is negative", f.value)
		}
	}
	if q := l.GetCpuQuota(); q > 0 && q < minQuota {
		return problem.Invalid("cpu_quota", "%d is less than %d, a hundredth of a core, which is the least that can be held", q, minQuota)
	}
	return nil
}

// checkEnv and checkRules refuse what a policy could not say, in the words of the one who
// reads policies.
func checkEnv(env map[string]string) error {
	return checkSection("env", &policy.Policy{Env: policy.Env{Set: env}})
}

func checkRules(rules []*baileyv1.PathRule) error {
	return checkSection("rules", &policy.Policy{Workspace: policy.Workspace{Rules: workspaceRules(rules)}})
}

func checkSection(field string, p *policy.Policy) error {
	var wrong *policy.Error
	if _, err := policy.Parse(field, policy.Marshal(*p, "")); errors.As(err, &wrong) {
		text := wrong.Msg
		if wrong.Hint != "" {
			text += "; " + wrong.Hint
		}
		return problem.Invalid(field, "%s", text)
	} else if err != nil {
		return problem.Invalid(field, "%w", err)
	}
	return nil
}

func workspaceRules(rules []*baileyv1.PathRule) (list []policy.WorkspaceRule) {
	for _, rule := range rules {
		w := policy.WorkspaceRule{Pattern: rule.GetPattern(), Permission: rule.GetPermission()}
		if n := int(rule.GetPriority()); n != 0 {
			w.Priority = &n
		}
		list = append(list, w)
	}
	return list
}

// overrides are what a request says beside the policy.
func overrides(r *baileyv1.CreateSandboxRequest) (p policy.Policy) {
	if name := r.GetRuntime(); name != "" {
		p.Runtime = &name
	}
	l := r.GetResources()
	if n := l.GetMemoryBytes(); n > 0 {
		p.Resources.Memory = new(policy.Size)
		*p.Resources.Memory = policy.Size(n)
	}
	if n := l.GetCpuQuota(); n > 0 {
		cpu := float64(n) / cpuPeriod
		p.Resources.CPU = &cpu
	}
	if n := int(l.GetPidsLimit()); n > 0 {
		p.Resources.Pids = &n
	}
	if n := l.GetDiskBytes(); n > 0 {
		p.Resources.Disk = new(policy.Size)
		*p.Resources.Disk = policy.Size(n)
	}
	if n := int(l.GetOpenFiles()); n > 0 {
		p.Resources.OpenFiles = &n
	}
	p.Env.Set = map[string]string{"HOME": privateHome}
	maps.Copy(p.Env.Set, r.GetEnv())
	p.Workspace.Rules = workspaceRules(r.GetRules())
	for _, port := range r.GetPorts() {
		p.Network.ExposePorts = append(p.Network.ExposePorts, fmt.Sprint("127.0.0.1:0:", port))
	}
	return p
}

// refused is the answer where the machine cannot hold what was asked for, by
// name.
func refused(err error) error {
	var r *spec.Refused
	if !errors.As(err, &r) {
		return problem.New(connect.CodeInvalidArgument, "invalid_policy", err, problem.Remedy("correct the policy"))
	}
	var options []problem.Option
	var fixes []string
	for _, reason := range r.Reasons {
		reason.At = policy.Pos{} // in a text that the client has not written
		options = append(options, problem.About(reason.Key, reason.Reason))
		if reason.Fix != "" {
			fixes = append(fixes, reason.Key+": "+plain.Text(reason.Fix))
		}
	}
	if len(fixes) == 0 {
		fixes = []string{"ask for less, or for what this machine can hold"}
	}
	options = append(options, problem.Remedy("%s", strings.Join(fixes, "; ")))
	return failed("cannot_be_held", err, options...)
}
