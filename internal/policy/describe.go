package policy

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// Describe says in plain words what a policy grants, a line for each kind of
// grant, for a person who is about to trust it. What the policy that holds without
// it grants anyway is left out, and so are restrictions; but those that go with
// that policy are named.
func Describe(p, without Policy) []string {
	d := &description{}
	d.files(p.Filesystem, without.Filesystem)
	d.network(p.Network, without.Network)
	d.commands(p, without)
	d.toggle("sees every device of the host", isText(p.Devices.Mode, "host") && !isText(without.Devices.Mode, "host"))
	d.list("can use the devices", p.Devices.Allow, without.Devices.Allow)
	d.toggle("can make terminals", said(p.AllowPty, true) && !said(without.AllowPty, true))
	d.list("sees the environment variables", p.Env.Allow, without.Env.Allow)
	d.list("no longer keeps out the environment variables", without.Env.Deny, p.Env.Deny)
	for _, name := range slices.Sorted(maps.Keys(p.Env.Set)) {
		if value, ok := without.Env.Set[name]; !ok || value != p.Env.Set[name] {
			d.line("sets the environment variable %s to %s", name, quote(p.Env.Set[name]))
		}
	}
	d.limits(p.Resources, without.Resources)
	d.workspace(p.Workspace, without.Workspace)
	if p.Runtime != nil && !isText(without.Runtime, *p.Runtime) {
		d.line("runs under the runtime %s", *p.Runtime)
	}
	if p.Runtime == nil && without.Runtime != nil {
		d.line("no longer has to run under the runtime %s", *without.Runtime)
	}
	if p.Image != nil && !isText(without.Image, *p.Image) {
		d.line("runs in the image %s", *p.Image)
	}
	d.toggle("no longer runs in an image", p.Image == nil && without.Image != nil)
	d.list("runs even without", without.Require, p.Require)
	d.macOS(p.MacOS, without.MacOS)
	return d.lines
}

func (d *description) files(f, without Filesystem) {
	d.list("can write", f.AllowWrite, without.AllowWrite)
	d.list("can read", f.AllowRead, without.AllowRead)
	d.list("can write a private copy of", f.PrivateWrite, without.PrivateWrite)
	d.toggle("can read every file that is not denied", !said(f.DefaultDenyRead, true) && said(without.DefaultDenyRead, true))
	d.toggle("can write .git/config", said(f.AllowGitConfig, false) && !said(without.AllowGitConfig, false))
	d.toggle("can create settings of shells, editors and agents that do not exist yet", !said(f.ProtectMissing, true) && said(without.ProtectMissing, true))
	d.list("is no longer kept from reading", without.DenyRead, f.DenyRead)
	d.list("is no longer kept from writing", without.DenyWrite, f.DenyWrite)
	d.toggle("can read what is granted inside of what is denied", !said(f.StrictDenyRead, false) && said(without.StrictDenyRead, false))
	switch {
	case len(without.AllowExecute) > 0 && len(f.AllowExecute) == 0:
		d.line("can execute programs from everywhere")
	case len(without.AllowExecute) > 0:
		d.list("can execute programs from", f.AllowExecute, without.AllowExecute)
	}
}

func (d *description) commands(p, without Policy) {
	d.list("may run although denied", p.Command.Allow, without.Command.Allow)
	d.list("is no longer kept from running", without.Command.Deny, p.Command.Deny)
	ruled := len(p.Command.Allow)+len(p.Command.Deny) > 0 // then the defaults hold unless they are switched off
	d.toggle("may run commands that are denied by default",
		!said(p.Command.UseDefaults, true) && said(without.Command.UseDefaults, true) || !said(p.Command.UseDefaults, ruled) && said(without.Command.UseDefaults, false))
	if how := p.Command.RuntimeExecPolicy; how != nil && !isText(how, "argv") && !isText(without.Command.RuntimeExecPolicy, *how) {
		d.line("runs programs whose children the rules about commands do not follow (%s)", *how)
	}
	d.list("may use ssh to", p.SSH.AllowedHosts, without.SSH.AllowedHosts)
	d.list("is no longer kept from using ssh to", without.SSH.DeniedHosts, p.SSH.DeniedHosts)
	d.list("may run over ssh", p.SSH.AllowedCommands, without.SSH.AllowedCommands)
	d.list("is no longer kept from running over ssh", without.SSH.DeniedCommands, p.SSH.DeniedCommands)
	d.toggle("may run anything over ssh", said(p.SSH.AllowAllCommands, false) && !said(without.SSH.AllowAllCommands, false))
	d.toggle("may run denied commands over ssh", !said(p.SSH.InheritDeny, false) && said(without.SSH.InheritDeny, false))
}

func (d *description) limits(r, without Resources) {
	for _, l := range []struct {
		what  string
		wider bool
	}{
		{"memory", wider(r.Memory, without.Memory)},
		{"processors", wider(r.CPU, without.CPU)},
		{"processes", wider(r.Pids, without.Pids)},
		{"disk", wider(r.Disk, without.Disk)},
		{"descriptors", wider(r.OpenFiles, without.OpenFiles)},
		{"time", wider(r.Timeout, without.Timeout)},
	} {
		d.toggle("has a wider limit, or none, on "+l.what, l.wider)
	}
}

func wider[T cmp.Ordered](limit, without *T) bool {
	return without != nil && (limit == nil || *limit > *without)
}

func (d *description) workspace(w, without Workspace) {
	d.toggle("writes the project itself, and not an overlay", !isText(w.Mode, "overlay") && isText(without.Mode, "overlay"))
	same := func(a, b WorkspaceRule) bool {
		return a.Pattern == b.Pattern && a.Permission == b.Permission && value(a.Priority) == value(b.Priority)
	}
	if !slices.EqualFunc(w.Rules, without.Rules, same) {
		for _, r := range w.Rules {
			d.line("has, in the project, the permission %s for %s", r.Permission, r.Pattern)
		}
		d.toggle("has no permissions by path in the project", len(w.Rules) == 0)
	}
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func isText(s *string, text string) bool { return s != nil && *s == text }

type description struct{ lines []string }

func (d *description) line(format string, args ...any) {
	d.lines = append(d.lines, plain.Text(fmt.Sprintf(format, args...)))
}

func (d *description) toggle(text string, on bool) {
	if on {
		d.line("%s", text)
	}
}

// list leaves out the entries that are known.
func (d *description) list(text string, entries, known []string) {
	if more := missing(entries, known); len(more) > 0 {
		d.line("%s: %s", text, strings.Join(more, ", "))
	}
}

func (d *description) network(n, without Network) {
	if slices.Contains(n.AllowedDomains, "*") {
		d.toggle("can reach every host", !slices.Contains(without.AllowedDomains, "*"))
	} else {
		d.list("can reach", n.AllowedDomains, without.AllowedDomains)
	}
	d.list("is no longer kept from reaching", without.DeniedDomains, n.DeniedDomains)
	d.list("can reach the addresses", n.AllowedCIDRs, without.AllowedCIDRs)
	d.rules(n.Rules, without.Rules)
	d.toggle("asks before it reaches any other host", isText(n.DefaultAction, "ask") && !isText(without.DefaultAction, "ask"))
	d.toggle("passes any other host to the proxy", isText(n.DefaultAction, "proxy") && !isText(without.DefaultAction, "proxy"))
	d.toggle("can listen on ports of the host, if it has the host's network", said(n.AllowLocalBinding, false) && !said(without.AllowLocalBinding, false))
	d.list("can be reached from the host at the ports", n.ExposePorts, without.ExposePorts)
	d.toggle("can reach every service on the host's loopback", said(n.AllowLocalOutbound, false) && !said(without.AllowLocalOutbound, false))
	d.list("can reach the loopback ports", n.AllowLocalOutboundPorts, without.AllowLocalOutboundPorts)
	d.toggle("can reach every unix socket it can see", said(n.AllowAllUnixSockets, false) && !said(without.AllowAllUnixSockets, false))
	d.list("can reach the unix sockets", n.AllowUnixSockets, without.AllowUnixSockets)
	if n.UpstreamProxy != nil && !isText(without.UpstreamProxy, *n.UpstreamProxy) {
		d.line("sends its traffic through %s", withoutPassword(*n.UpstreamProxy))
	}
	if n.HTTPProxyPort != nil && value(n.HTTPProxyPort) != value(without.HTTPProxyPort) {
		d.line("uses the HTTP proxy on port %d", *n.HTTPProxyPort)
	}
	if n.SOCKSProxyPort != nil && value(n.SOCKSProxyPort) != value(without.SOCKSProxyPort) {
		d.line("uses the SOCKS proxy on port %d", *n.SOCKSProxyPort)
	}
	d.toggle("no longer has its traffic sent through your proxy", n.UpstreamProxy == nil && n.HTTPProxyPort == nil && n.SOCKSProxyPort == nil &&
		(without.UpstreamProxy != nil || without.HTTPProxyPort != nil || without.SOCKSProxyPort != nil))
	for _, i := range n.Inject {
		if slices.ContainsFunc(without.Inject, func(j Injection) bool { return reflect.DeepEqual(i, j) }) {
			continue
		}
		from := "the variable " + i.FromEnv
		if i.FromFile != "" {
			from = "the file " + i.FromFile
		} else if len(i.FromCommand) > 0 {
			from = "the output of " + strings.Join(i.FromCommand, " ") + ", run outside the sandbox"
		}
		d.line("sends a credential from %s to %s", from, strings.Join(i.Hosts, ", "))
	}
	d.toggle("has other limits, or none, on the network", without.Limits != nil && !reflect.DeepEqual(n.Limits, without.Limits))
}

// rules names those that allow and are not in the other list, and denials that are
// only there.
func (d *description) rules(rules, without []NetworkRule) {
	has := func(list []NetworkRule, r NetworkRule) bool {
		return slices.ContainsFunc(list, func(o NetworkRule) bool { return reflect.DeepEqual(o, r) })
	}
	for _, r := range rules {
		if r.Action != "deny" && !has(without, r) {
			d.line("%s: %s", map[string]string{"allow": "can reach by rule", "ask": "asks before it reaches"}[r.Action], r.Host)
		}
	}
	for _, r := range without {
		if r.Action == "deny" && !has(rules, r) {
			d.line("is no longer kept, by a rule, from reaching %s", r.Host)
		}
	}
}

// WithoutPassword is the policy as anybody may see it, and whether that is another.
func (p Policy) WithoutPassword() (shown Policy, other bool) {
	if p.Network.UpstreamProxy == nil {
		return p, false
	}
	proxy := withoutPassword(*p.Network.UpstreamProxy)
	other = proxy != *p.Network.UpstreamProxy
	p.Network.UpstreamProxy = &proxy
	return p, other
}

// withoutPassword is a proxy as anybody may see it.
func withoutPassword(proxy string) string {
	p, err := notation.ParseProxy(proxy)
	if err != nil {
		return "a proxy"
	}
	return p.Redacted()
}

func (d *description) macOS(m, without MacOS) {
	d.list("can look up the mach services", m.Mach.Lookup, without.Mach.Lookup)
	d.list("can register the mach services", m.Mach.Register, without.Mach.Register)
	d.toggle("can reach trustd", said(m.AllowTrustd, false) && !said(without.AllowTrustd, false))
	d.toggle("runs in a weaker sandbox on macOS", said(m.EnableWeakerSandbox, false) && !said(without.EnableWeakerSandbox, false))
	d.toggle("can send Apple events", said(m.AllowAppleEvents, false) && !said(without.AllowAppleEvents, false))
}

// missing returns the entries of list that are not in known.
func missing(list, known []string) []string {
	var out []string
	for _, e := range list {
		if !slices.Contains(known, e) {
			out = append(out, e)
		}
	}
	return out
}
