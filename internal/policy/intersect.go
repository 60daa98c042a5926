package policy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Intersect returns a policy that grants only what both a and b grant, so that
// b can take away from a and never add to it. Grants meet, denials and
// requirements unite, limits take the smaller value. Where no policy says
// exactly what both grant, the result grants less.
//
// What neither grants nor restricts (the runtime, the image, proxies,
// injected credentials, variables that are set) is a's. Path grants are not combined
// here: a's stay, and b's become Bounds that every path must satisfy too.
//
// The result shares no memory with a or b.
func Intersect(a, b Policy) Policy {
	// Cloned, so that what is taken from either side below is ours.
	a, b = Merge(Policy{}, a), Merge(Policy{}, b)
	out := a
	out.Bounds = meetBounds(a, b)
	out.Network = meetNetwork(a.Network, b.Network)
	out.Command = meetCommand(a.Command, b.Command)
	out.SSH = meetSSH(a.SSH, b.SSH)
	out.Devices = meetDevices(a.Devices, b.Devices)
	out.AllowPty = both(a.AllowPty, b.AllowPty, true)
	out.MacOS = meetMacOS(a.MacOS, b.MacOS)
	out.Env.Allow = meetLists(a.Env.Allow, b.Env.Allow, meetEnv)
	out.Env.Deny = union(a.Env.Deny, b.Env.Deny)
	out.Resources = meetResources(a.Resources, b.Resources)
	out.Workspace = meetWorkspace(a.Workspace, b.Workspace)
	out.RuleBounds = meetRuleBounds(a, b)
	out.Require = union(a.Require, b.Require)
	out.Origins = maps.Clone(b.Origins)
	if out.Origins == nil {
		out.Origins = a.Origins
	}
	maps.Copy(out.Origins, a.Origins)
	return out
}

// meetBounds leaves out a bound that is already one, since each is weighed for
// every path.
func meetBounds(a, b Policy) []Filesystem {
	out := a.Bounds
	for _, f := range append([]Filesystem{b.Filesystem}, b.Bounds...) {
		same := func(have Filesystem) bool { return reflect.DeepEqual(have, f) }
		if !same(a.Filesystem) && !slices.ContainsFunc(out, same) {
			out = append(out, f)
		}
	}
	return out
}

func meetNetwork(a, b Network) Network {
	out := a
	out.AllowedDomains = meetLists(a.AllowedDomains, b.AllowedDomains, narrower(coversDomain))
	out.DeniedDomains = union(a.DeniedDomains, b.DeniedDomains)
	out.AllowLocalBinding = both(a.AllowLocalBinding, b.AllowLocalBinding, false)
	out.ExposePorts = meetLists(a.ExposePorts, b.ExposePorts, sameExposure)
	out.AllowLocalOutbound = both(a.AllowLocalOutbound, b.AllowLocalOutbound, false)
	out.AllowLocalOutboundPorts = meetLists(
		orAll(a.AllowLocalOutboundPorts, a.AllowLocalOutbound, "*"),
		orAll(b.AllowLocalOutboundPorts, b.AllowLocalOutbound, "*"), meetPorts)
	out.AllowAllUnixSockets = both(a.AllowAllUnixSockets, b.AllowAllUnixSockets, false)
	out.AllowUnixSockets = meetLists(
		orAll(a.AllowUnixSockets, a.AllowAllUnixSockets, ""),
		orAll(b.AllowUnixSockets, b.AllowAllUnixSockets, ""), orEvery(narrower(coversPath)))
	out.DefaultAction = strictest(a.DefaultAction, b.DefaultAction, "deny", "deny", "ask", "proxy")
	out.Rules = meetRules(a, b)
	out.AllowedCIDRs = meetLists(a.AllowedCIDRs, b.AllowedCIDRs, meetCIDR)
	out.Egress = strictest(a.Egress, b.Egress, "loopback", "socket", "loopback")
	out.Transparent = both(a.Transparent, b.Transparent, true)
	out.Limits = meetLimits(a.Limits, b.Limits)
	return out
}

// orAll makes a switch that grants everything into the list entry that does.
func orAll(list []string, everything *bool, all string) []string {
	if said(everything, false) {
		return []string{all}
	}
	return list
}

// orEvery extends a meet to the empty string as the pattern for everything. If
// both sides grant everything there is no list to write: the switch says it.
func orEvery(meet func(x, y string) (string, bool)) func(x, y string) (string, bool) {
	return func(x, y string) (string, bool) {
		switch {
		case x == "":
			return y, y != ""
		case y == "":
			return x, true
		}
		return meet(x, y)
	}
}

// meetRules combines ordered rules. Rules that are the same on both sides stay.
// Otherwise every refusal goes to the front, whatever stood before it, and an
// allowance stays only for hosts that the other side allows without conditions
// or by the same rule. A question (ask) is put only where the other side would
// have allowed, and is a refusal elsewhere.
func meetRules(a, b Network) []NetworkRule {
	if reflect.DeepEqual(a.Rules, b.Rules) {
		return a.Rules
	}
	var deny, ask, unasked, allow []NetworkRule
	sort := func(rules []NetworkRule, other Network) {
		for _, r := range rules {
			switch r.Action {
			case "allow":
				allow = append(allow, withinOther(r, other)...)
			case "ask":
				ask = append(ask, withinOther(r, other)...)
				// Behind the questions that remain, for the rest of its hosts.
				r.Action = "deny"
				unasked = append(unasked, r)
			default:
				deny = append(deny, r)
			}
		}
	}
	sort(a.Rules, b)
	sort(b.Rules, a)
	return slices.Concat(deny, ask, unasked, allow)
}

// withinOther narrows a rule to the hosts that other allows whatever the port,
// method and path.
func withinOther(r NetworkRule, other Network) []NetworkRule {
	if slices.ContainsFunc(other.Rules, func(o NetworkRule) bool { return reflect.DeepEqual(o, r) }) {
		return []NetworkRule{r}
	}
	var out []NetworkRule
	for _, host := range meetLists([]string{r.Host}, other.AllowedDomains, narrower(coversDomain)) {
		r.Host = host
		out = append(out, r)
	}
	return out
}

func meetLimits(a, b *NetworkLimits) *NetworkLimits {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &NetworkLimits{
		Connections: least(a.Connections, b.Connections),
		HeaderBytes: least(a.HeaderBytes, b.HeaderBytes),
		Idle:        least(a.Idle, b.Idle),
		Total:       least(a.Total, b.Total),
		Bandwidth:   least(a.Bandwidth, b.Bandwidth),
	}
}

func meetCommand(a, b Command) Command {
	out := a
	out.Deny = union(a.Deny, b.Deny)
	out.Allow = meetLists(a.Allow, b.Allow, narrower(coversCommand))
	out.UseDefaults = either(a.UseDefaults, b.UseDefaults, true)
	out.RuntimeExecPolicy = strictest(a.RuntimeExecPolicy, b.RuntimeExecPolicy, "argv", "argv", "path", "off")
	return out
}

func meetSSH(a, b SSH) SSH {
	return SSH{
		AllowedHosts:     meetLists(a.AllowedHosts, b.AllowedHosts, narrower(coversDomain)),
		DeniedHosts:      union(a.DeniedHosts, b.DeniedHosts),
		AllowAllCommands: both(a.AllowAllCommands, b.AllowAllCommands, false),
		AllowedCommands: meetLists(
			orAll(a.AllowedCommands, a.AllowAllCommands, ""),
			orAll(b.AllowedCommands, b.AllowAllCommands, ""), orEvery(narrower(coversCommand))),
		DeniedCommands: union(a.DeniedCommands, b.DeniedCommands),
		InheritDeny:    either(a.InheritDeny, b.InheritDeny, false),
	}
}

func meetDevices(a, b Devices) Devices {
	host := func(d Devices) *bool {
		all := d.Mode != nil && *d.Mode == "host"
		return &all
	}
	return Devices{
		Mode: strictest(a.Mode, b.Mode, "auto", "minimal", "auto", "host"),
		Allow: meetLists(
			orAll(a.Allow, host(a), ""),
			orAll(b.Allow, host(b), ""), orEvery(narrower(coversPath))),
	}
}

func meetMacOS(a, b MacOS) MacOS {
	return MacOS{
		Mach: MacOSMach{
			Lookup:   meetLists(a.Mach.Lookup, b.Mach.Lookup, narrower(coversStar)),
			Register: meetLists(a.Mach.Register, b.Mach.Register, narrower(coversStar)),
		},
		AllowTrustd:         both(a.AllowTrustd, b.AllowTrustd, false),
		EnableWeakerSandbox: both(a.EnableWeakerSandbox, b.EnableWeakerSandbox, false),
		AllowAppleEvents:    both(a.AllowAppleEvents, b.AllowAppleEvents, false),
	}
}

func meetResources(a, b Resources) Resources {
	return Resources{
		Memory:    least(a.Memory, b.Memory),
		CPU:       least(a.CPU, b.CPU),
		Pids:      least(a.Pids, b.Pids),
		Disk:      least(a.Disk, b.Disk),
		OpenFiles: least(a.OpenFiles, b.OpenFiles),
		Timeout:   least(a.Timeout, b.Timeout),
	}
}

// meetWorkspace keeps a's rules; b's become bounds.
func meetWorkspace(a, b Workspace) Workspace {
	return Workspace{
		Mode:  strictest(a.Mode, b.Mode, "direct", "overlay", "direct"),
		Rules: a.Rules,
	}
}

// meetRuleBounds leaves out a list that is already there.
func meetRuleBounds(a, b Policy) [][]WorkspaceRule {
	out := a.RuleBounds
	for _, rules := range append([][]WorkspaceRule{b.Workspace.Rules}, b.RuleBounds...) {
		same := func(have []WorkspaceRule) bool { return reflect.DeepEqual(have, rules) }
		if len(rules) > 0 && !same(a.Workspace.Rules) && !slices.ContainsFunc(out, same) {
			out = append(out, rules)
		}
	}
	return out
}

// said returns what a switch says, or the default where it says nothing.
func said(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// both is for switches that grant. Silence on both sides stays silence.
func both(a, b *bool, otherwise bool) *bool {
	if a == nil && b == nil {
		return nil
	}
	v := said(a, otherwise) && said(b, otherwise)
	return &v
}

// either is for switches that restrict.
func either(a, b *bool, otherwise bool) *bool {
	if a == nil && b == nil {
		return nil
	}
	v := said(a, otherwise) || said(b, otherwise)
	return &v
}

// least is for limits, where silence is no limit.
func least[T cmp.Ordered](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// strictest picks by an order from the strictest value to the laxest.
func strictest(a, b *string, otherwise string, order ...string) *string {
	if a == nil && b == nil {
		return nil
	}
	x, y := otherwise, otherwise
	if a != nil {
		x = *a
	}
	if b != nil {
		y = *b
	}
	if rank(y, order...) < rank(x, order...) {
		x = y
	}
	return &x
}

func rank(s string, order ...string) int {
	return slices.Index(order, s)
}

// union is for lists that restrict.
func union(a, b []string) []string {
	return mergeList(mergeList(nil, a), b)
}
