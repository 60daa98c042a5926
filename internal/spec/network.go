package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// network chooses the network: none, the host's for an unconditional "*", or one
// whose only way out is the gate for everything in between.
func (c *compiler) network() {
	n := &c.policy.Network
	c.refuseNetwork()
	open := slices.Contains(n.AllowedDomains, "*")
	switch {
	case c.needsGate(open):
		c.spec.Network = NetworkGate
	case open:
		c.spec.Network = NetworkHost
		c.warn(`network.allowedDomains contains "*": the command has the host's whole network, services on loopback included`)
	default:
		c.spec.Network = NetworkNone
	}
}

// needsGate says whether the policy grants a part of the network.
func (c *compiler) needsGate(open bool) bool {
	n, ssh := &c.policy.Network, &c.policy.SSH
	if len(ssh.AllowedHosts) > 0 || c.wantsLocal() && !open || rulesMatter(n.Rules, open) {
		return true
	}
	if open {
		return len(n.DeniedDomains) > 0 || len(ssh.DeniedHosts) > 0 || n.Limits != nil || n.UpstreamProxy != nil ||
			n.AllowLocalOutbound != nil && !*n.AllowLocalOutbound
	}
	return len(n.AllowedDomains) > 0 || len(n.AllowedCIDRs) > 0 || n.DefaultAction != nil && *n.DefaultAction == "proxy"
}

// wantsLocal says whether services on the host's loopback can be reached. To name
// ports is to want them.
func (c *compiler) wantsLocal() bool {
	n := &c.policy.Network
	return isTrue(n.AllowLocalOutbound) || n.AllowLocalOutbound == nil && len(n.AllowLocalOutboundPorts) > 0
}

// rulesMatter says whether rules change what a closed or open network does by
// itself: denials in a closed one do not.
func rulesMatter(rules []policy.NetworkRule, open bool) bool {
	return slices.ContainsFunc(rules, func(r policy.NetworkRule) bool { return open || r.Action != "deny" })
}

// refuseNetwork refuses what the gate cannot do yet.
func (c *compiler) refuseNetwork() {
	n := &c.policy.Network
	const later = "is not in this version"
	c.refuseIf(n.HTTPProxyPort != nil, "network.httpProxyPort", "", later, "remove it; network.upstreamProxy leads through a proxy of yours")
	c.refuseIf(n.SOCKSProxyPort != nil, "network.socksProxyPort", "", later, "remove it; network.upstreamProxy leads through a proxy of yours")
	c.refuseIf(n.DefaultAction != nil && *n.DefaultAction == "ask", "network.defaultAction", "ask", later, `use "deny"`)
	c.refuseIf(isTrue(n.AllowLocalBinding), "network.allowLocalBinding", "true", "ports of the sandbox cannot be reached from the host in this version", "remove it; inside, every port can be used")
	for i := range n.Rules {
		r := &n.Rules[i]
		key := "network.rules[" + strconv.Itoa(i) + "]"
		c.refuseIf(r.Action == "ask", key+".action", "ask", later, `use "allow" or "deny"`)
	}
}

// gate says what the gate is told. The mounts must be known: what the command can
// write is not believed.
func (c *compiler) gate() {
	if c.spec.Network != NetworkGate || len(c.reasons) > 0 {
		return
	}
	n := &c.policy.Network
	found := &foundGroups{groups: newGroups(c.facts, c.host.Home, c.project, c.host.Environ)}
	found.groups.believe = c.isBelieved
	c.refuseUnknownDenials(found.groups)
	o := grants.Options{Home: c.host.Home, Project: c.project, Groups: found, Getenv: c.variable}
	if c.host.Authority != nil {
		o.AuthorityDir = c.host.Authority.Dir
	}
	told, err := grants.FromPolicy(c.policy, o)
	if err != nil {
		c.refuse("network", "", err.Error(), "")
		return
	}
	c.spec.Gate = &Gate{Config: told, Unknown: found.unknown, Transparent: n.Transparent == nil || *n.Transparent, Must: isTrue(n.Transparent)}
	if c.wantsLocal() {
		c.localOutbound()
	}
}

// isBelieved says whether a file may name hosts: not if the command can change
// it, and so what the next one may reach, nor if it came with the code. Git's own
// files did not.
func (c *compiler) isBelieved(file string) bool {
	if Covers(c.project, file) && !Covers(join(c.project, ".git"), file) {
		return false
	}
	_, m := c.spec.Access(file)
	return m == nil || m.Kind != Bind || !m.Write
}

// refuseUnknownDenials insists on knowing what is to be denied. A group that
// stands for nothing here would deny nothing.
func (c *compiler) refuseUnknownDenials(g *groups) {
	check := func(key, host string) {
		if _, err := g.Endpoints(host); strings.HasPrefix(host, "@") && err != nil {
			c.refuse(key, host, err.Error(), "")
		}
	}
	for _, host := range c.policy.Network.DeniedDomains {
		check("network.deniedDomains", host)
	}
	for i := range c.policy.Network.Rules {
		if r := &c.policy.Network.Rules[i]; r.Action == "deny" {
			check("network.rules["+strconv.Itoa(i)+"].host", r.Host)
		}
	}
}

// foundGroups grants nothing for a group that stands for nothing here, and takes
// a note: policies are made for many machines.
type foundGroups struct {
	groups  *groups
	unknown []string
}

func (f *foundGroups) Endpoints(group string) ([]grants.Endpoint, error) {
	list, err := f.groups.Endpoints(group)
	if err != nil {
		f.unknown = append(f.unknown, group+": "+err.Error())
		return nil, nil
	}
	return list, nil
}

// localOutbound lets the command reach services on the host's loopback.
func (c *compiler) localOutbound() {
	list := c.policy.Network.AllowLocalOutboundPorts
	ports, err := localPorts(list)
	if err != nil {
		c.refuse("network.allowLocalOutboundPorts", strings.Join(list, ", "), err.Error(), "")
	}
	g := c.spec.Gate
	g.Local = ports
	for _, host := range []string{"127.0.0.1", "::1"} {
		g.Config.Rules = append(g.Config.Rules, config.Rule{
			Host: host, Ports: ports, Action: config.Allow, Name: "network.allowLocalOutbound",
		})
	}
}

// localPorts are the ports that are granted; none and "*" mean all. The gate's
// own are not among them then.
func localPorts(list []string) ([]config.Ports, error) {
	if len(list) == 0 || slices.Contains(list, "*") {
		return []config.Ports{{From: 1, To: GateProxyPort - 1}, {From: GateDNSPort + 1, To: 65535}}, nil
	}
	return grants.Ports(list)
}

// bundlePath is where the certificates are inside. The root directory is the
// sandbox's own, so nothing of the host can be in the way.
const bundlePath = "/.bailey/ca-bundle.crt"

// certificates let programs believe the gate where it opens TLS.
func (c *compiler) certificates() {
	if c.spec.Gate == nil || !c.spec.Gate.Config.NeedsAuthority() || c.host.Authority == nil {
		return
	}
	for _, target := range append([]string{bundlePath}, c.host.Authority.Replaces...) {
		if target != bundlePath && c.granted(target) == AccessNone {
			continue
		}
		c.spec.Mounts = append(c.spec.Mounts, Mount{
			Kind: Bind, Source: c.host.Authority.Bundle, Target: target, File: true, Why: "certificates, with the gate's own",
		})
	}
}

// certificateVariables tell programs where the certificates are.
func (c *compiler) certificateVariables(env map[string]string) {
	if c.spec.Gate == nil || !c.spec.Gate.Config.NeedsAuthority() {
		return
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
		"AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "npm_config_cafile", "DENO_CERT",
	} {
		env[name] = bundlePath
	}
	for i := range c.policy.Network.Inject {
		if name := c.policy.Network.Inject[i].Placeholder; name != "" {
			env[name] = "bailey-adds-it-outside"
		}
	}
}

// proxyVariables tell programs where the gate is. Most would reach it without
// them, where the kernel can capture connections; with them they need no name
// server, and messages name the host.
func (c *compiler) proxyVariables(env map[string]string) {
	if c.spec.Gate == nil {
		return
	}
	c.certificateVariables(env)
	address := "127.0.0.1:" + strconv.Itoa(GateProxyPort)
	for name, value := range map[string]string{
		"HTTP_PROXY": "http://" + address, "HTTPS_PROXY": "http://" + address, "ALL_PROXY": "socks5h://" + address,
		"NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	env["NODE_USE_ENV_PROXY"] = "1"
	if c.spec.Gate.Transparent {
		return
	}
	port := strconv.Itoa(GateProxyPort)
	env["JAVA_TOOL_OPTIONS"] = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=" + port +
		" -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=" + port + " -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
	env["CLOUDSDK_PROXY_TYPE"], env["CLOUDSDK_PROXY_ADDRESS"], env["CLOUDSDK_PROXY_PORT"] = "http", "127.0.0.1", port
}
