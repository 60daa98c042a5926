package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Describe says in plain words what a policy grants, a line for each kind of
// grant, for a person who is about to trust it. Restrictions are left out, and
// so is what the default grants anyway.
func Describe(p Policy) []string {
	d := &description{}
	known := defaultPolicy.Filesystem
	f := p.Filesystem
	d.list("can write", f.AllowWrite, known.AllowWrite)
	d.list("can read", f.AllowRead, known.AllowRead)
	d.list("can write a private copy of", f.PrivateWrite, known.PrivateWrite)
	d.toggle("can read every file that is not denied", f.DefaultDenyRead != nil && !*f.DefaultDenyRead)
	d.toggle("can write .git/config", said(f.AllowGitConfig, false))
	for _, gone := range missing(known.DenyRead, f.DenyRead) {
		d.line("can read %s, which the default hides", gone)
	}
	d.network(p.Network)
	d.list("may run although denied", p.Command.Allow, nil)
	d.toggle("may run commands that are denied by default", !said(p.Command.UseDefaults, true))
	d.list("may use ssh to", p.SSH.AllowedHosts, nil)
	d.list("may run over ssh", p.SSH.AllowedCommands, nil)
	d.toggle("may run anything over ssh", said(p.SSH.AllowAllCommands, false))
	d.toggle("sees every device of the host", p.Devices.Mode != nil && *p.Devices.Mode == "host")
	d.list("can use the devices", p.Devices.Allow, nil)
	d.list("sees the environment variables", p.Env.Allow, nil)
	for _, name := range slices.Sorted(maps.Keys(p.Env.Set)) {
		d.line("sets the environment variable %s to %s", name, quote(p.Env.Set[name]))
	}
	if p.Runtime != nil {
		d.line("runs under the runtime %s", *p.Runtime)
	}
	if p.Image != nil {
		d.line("runs in the image %s", *p.Image)
	}
	d.macOS(p.MacOS)
	return d.lines
}

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

func (d *description) network(n Network) {
	if slices.Contains(n.AllowedDomains, "*") {
		d.line("can reach every host")
	} else {
		d.list("can reach", n.AllowedDomains, nil)
	}
	d.list("can reach the addresses", n.AllowedCIDRs, nil)
	for _, r := range n.Rules {
		if r.Action != "deny" {
			d.line("%s: %s", map[string]string{"allow": "can reach by rule", "ask": "asks before it reaches"}[r.Action], r.Host)
		}
	}
	d.toggle("asks before it reaches any other host", n.DefaultAction != nil && *n.DefaultAction == "ask")
	d.toggle("passes any other host to the proxy", n.DefaultAction != nil && *n.DefaultAction == "proxy")
	d.toggle("can listen on ports of the host, if it has the host's network", said(n.AllowLocalBinding, false))
	d.list("can be reached from the host at the ports", n.ExposePorts, nil)
	d.toggle("can reach every service on the host's loopback", said(n.AllowLocalOutbound, false))
	d.list("can reach the loopback ports", n.AllowLocalOutboundPorts, nil)
	d.toggle("can reach every unix socket it can see", said(n.AllowAllUnixSockets, false))
	d.list("can reach the unix sockets", n.AllowUnixSockets, nil)
	if n.UpstreamProxy != nil {
		d.line("sends its traffic through %s", *n.UpstreamProxy)
	}
	if n.HTTPProxyPort != nil {
		d.line("uses the HTTP proxy on port %d", *n.HTTPProxyPort)
	}
	if n.SOCKSProxyPort != nil {
		d.line("uses the SOCKS proxy on port %d", *n.SOCKSProxyPort)
	}
	for _, i := range n.Inject {
		from := "the variable " + i.FromEnv
		if i.FromFile != "" {
			from = "the file " + i.FromFile
		} else if len(i.FromCommand) > 0 {
			from = "the output of " + strings.Join(i.FromCommand, " ") + ", run outside the sandbox"
		}
		d.line("sends a credential from %s to %s", from, strings.Join(i.Hosts, ", "))
	}
}

func (d *description) macOS(m MacOS) {
	d.list("can look up the mach services", m.Mach.Lookup, nil)
	d.list("can register the mach services", m.Mach.Register, nil)
	d.toggle("can reach trustd", said(m.AllowTrustd, false))
	d.toggle("runs in a weaker sandbox on macOS", said(m.EnableWeakerSandbox, false))
	d.toggle("can send Apple events", said(m.AllowAppleEvents, false))
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
