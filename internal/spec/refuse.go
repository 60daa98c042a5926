package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Unsupported is one reason why a policy cannot be held on this machine by this
// version. Nothing runs while there is one.
type Unsupported struct {
	Key    string // in the policy, for example "network.allowedDomains"
	Value  string // what it says there
	Reason string
	Fix    string // what to do about it
}

func (u *Unsupported) Error() string {
	var b strings.Builder
	b.WriteString(u.Key)
	if u.Value != "" {
		b.WriteString(" " + printable(u.Value))
	}
	b.WriteString(": " + printable(u.Reason))
	if u.Fix != "" {
		b.WriteString("; " + printable(u.Fix))
	}
	return b.String()
}

// Refused is the error of Compile: every reason, in a stable order, so that a
// person can mend them in one go.
type Refused struct {
	Reasons []*Unsupported
}

func (r *Refused) Error() string {
	lines := make([]string, len(r.Reasons))
	for i, u := range r.Reasons {
		lines[i] = u.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first reason.
func (r *Refused) Unwrap() []error {
	errs := make([]error, len(r.Reasons))
	for i, u := range r.Reasons {
		errs[i] = u
	}
	return errs
}

// printable quotes what would garble or forge a line on a terminal.
func printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

func (c *compiler) refuse(key, value, reason, fix string) {
	u := &Unsupported{key, value, reason, fix}
	for _, old := range c.reasons {
		if *old == *u {
			return
		}
	}
	c.reasons = append(c.reasons, u)
}

// refuseIf is refuse with a condition in front, for the tables below.
func (c *compiler) refuseIf(cond bool, key, value, reason, fix string) {
	if cond {
		c.refuse(key, value, reason, fix)
	}
}

const (
	needsGate   = "needs the network gate, which this version does not have"
	needsCgroup = "needs control groups, which this version does not use"
)

// network chooses the network, and refuses what lies between a closed and an
// open one.
func (c *compiler) network() {
	n := &c.policy.Network
	c.spec.Network = NetworkNone
	open := slices.Contains(n.AllowedDomains, "*")
	if open {
		c.spec.Network = NetworkHost
		c.warn(`network.allowedDomains contains "*": the command has the host's whole network, services on loopback included`)
	}
	const closeIt = "remove it, or use the preset offline"
	c.refuseIf(!open && len(n.AllowedDomains) > 0, "network.allowedDomains", list(n.AllowedDomains), needsGate,
		`use the preset offline, or "*" for everything`)
	c.refuseIf(open && len(n.DeniedDomains) > 0, "network.deniedDomains", list(n.DeniedDomains), needsGate, closeIt)
	c.refuseIf(rulesMatter(n.Rules, open), "network.rules", "", needsGate, closeIt)
	c.refuseIf(!open && len(n.AllowedCIDRs) > 0, "network.allowedCIDRs", list(n.AllowedCIDRs), needsGate, closeIt)
	c.refuseIf(len(n.Inject) > 0, "network.inject", "", needsGate, "remove it")
	c.refuseIf(n.UpstreamProxy != nil, "network.upstreamProxy", "", needsGate, "remove it")
	c.refuseIf(n.HTTPProxyPort != nil, "network.httpProxyPort", "", needsGate, "remove it")
	c.refuseIf(n.SOCKSProxyPort != nil, "network.socksProxyPort", "", needsGate, "remove it")
	c.refuseIf(n.DefaultAction != nil && *n.DefaultAction != "deny", "network.defaultAction", text(n.DefaultAction), needsGate, `use "deny"`)
	c.refuseIf(open && n.Limits != nil, "network.limits", "", needsGate, closeIt)
	c.localNetwork(open)
}

// localNetwork looks at loopback. A network namespace has one of its own, the
// host's network has the host's: nothing in between can be had without a gate.
func (c *compiler) localNetwork(open bool) {
	n := &c.policy.Network
	for _, k := range []struct {
		key   string
		value *bool
	}{
		{"network.allowLocalBinding", n.AllowLocalBinding},
		{"network.allowLocalOutbound", n.AllowLocalOutbound},
	} {
		if k.value == nil || *k.value == open {
			continue
		}
		fix := "remove it"
		if open {
			fix = `remove "*" from network.allowedDomains`
		}
		c.refuse(k.key, strconv.FormatBool(*k.value), needsGate, fix)
	}
	c.refuseIf(!open && len(n.AllowLocalOutboundPorts) > 0, "network.allowLocalOutboundPorts",
		list(n.AllowLocalOutboundPorts), needsGate, "remove it")
}

// rulesMatter says whether rules change what a closed or open network does by
// itself: denials in a closed one do not.
func rulesMatter(rules []policy.NetworkRule, open bool) bool {
	return slices.ContainsFunc(rules, func(r policy.NetworkRule) bool { return open || r.Action != "deny" })
}

// commands refuses rules about ssh that need the gate.
func (c *compiler) commands() {
	s := &c.policy.SSH
	open := c.spec.Network == NetworkHost
	c.refuseIf(len(s.AllowedHosts) > 0, "ssh.allowedHosts", list(s.AllowedHosts), needsGate, "remove it")
	c.refuseIf(open && len(s.DeniedHosts) > 0, "ssh.deniedHosts", list(s.DeniedHosts), needsGate, "remove it")
	c.refuseIf(open && len(s.AllowedCommands) > 0, "ssh.allowedCommands", list(s.AllowedCommands), needsGate, "remove it")
	c.refuseIf(open && len(s.DeniedCommands) > 0, "ssh.deniedCommands", list(s.DeniedCommands), needsGate, "remove it")
}

// limits sets resource limits, and refuses those rlimits cannot hold.
func (c *compiler) limits() {
	// One byte, not zero: at zero a core_pattern that is a pipe still starts its
	// program on the host, at one the kernel declines.
	c.spec.Rlimits = []Rlimit{{"core", 1}}
	r := &c.policy.Resources
	if r.OpenFiles != nil {
		c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nofile", uint64(max(*r.OpenFiles, 0))})
	}
	if r.Pids != nil {
		if c.host.UID == 0 {
			c.refuse("resources.pids", strconv.Itoa(*r.Pids), "the kernel does not count processes of root", "run as an ordinary user, or remove it")
		}
		c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nproc", uint64(max(*r.Pids, 0))})
	}
	if r.Timeout != nil {
		// Rounded up: zero would mean no limit.
		c.spec.TimeoutMillis = (int64(*r.Timeout) + 999_999) / 1_000_000
	}
	if r.Memory != nil {
		c.refuse("resources.memory", r.Memory.String(), needsCgroup, "remove it")
	}
	if r.Disk != nil {
		c.refuse("resources.disk", r.Disk.String(), needsCgroup, "remove it")
	}
	if r.CPU != nil {
		c.refuse("resources.cpu", fmt.Sprint(*r.CPU), needsCgroup, "remove it")
	}
}

// presentation refuses the remaining choices this version has no wall for.
func (c *compiler) presentation() {
	p := &c.policy
	c.refuseIf(is(p.Workspace.Mode, "overlay"), "workspace.mode", "overlay", "needs workspaces, which this version does not have",
		`use "direct", or filesystem.privateWrite for changes that may be lost`)
	c.refuseIf(len(p.Workspace.Rules) > 0, "workspace.rules", "", "needs workspaces, which this version does not have", "remove it")
	c.refuseIf(p.Runtime != nil && !is(p.Runtime, "auto") && !is(p.Runtime, "native"), "runtime", text(p.Runtime),
		"this version has only the native runtime", `use "auto" or "native"`)
	c.refuseIf(is(p.Devices.Mode, "host"), "devices.mode", "host", "the host's device nodes are not shown as a whole", "name the ones needed in devices.allow")
	c.refuseIf(p.AllowPty != nil && !*p.AllowPty, "allowPty", "false", "every sandbox has pseudo-terminals of its own, which reach nothing outside", "remove it")
}

func is(s *string, want string) bool { return s != nil && *s == want }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func list(l []string) string { return strings.Join(l, ", ") }
