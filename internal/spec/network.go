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
	c.exposures()
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
	if c.spec.Network == NetworkGate {
		c.gateway()
	}
	c.warnIdleGrants()
	if isTrue(n.AllowLocalBinding) && c.spec.Network.IsOwn() && len(n.ExposePorts) == 0 {
		c.warn("network.allowLocalBinding: the command has a network of its own; the host reaches the ports that are named with -p")
	}
}

// warnIdleGrants says which denial leaves nothing of the hosts that are granted.
func (c *compiler) warnIdleGrants() {
	const key, all = "network.deniedDomains", "*"
	if n := &c.policy.Network; !slices.Contains(n.DeniedDomains, all) || len(n.AllowedDomains)+len(c.policy.SSH.AllowedHosts) == 0 {
		return
	}
	text := key + ` contains "*", which wins over every grant, so no host can be reached; take it back with "!*" in a policy, or use another preset`
	if at := c.policy.Origins.Place(key, all); at.File != "" {
		text = at.String() + ": " + text
	}
	c.warn(text)
}

// Foresee is what a Spec will say about the network besides what the gate is told:
// whoever carries it out can begin with that while the rest is compiled.
func Foresee(p policy.Policy) *Spec {
	c := &compiler{policy: p, spec: &Spec{Version: Version}}
	c.network()
	return c.spec
}

// gateway says where the gate is inside. What it is told follows when more is
// known.
func (c *compiler) gateway() {
	n := &c.policy.Network
	c.spec.Gate = &Gate{Transparent: !isFalse(n.Transparent), Must: isTrue(n.Transparent)}
	if is(n.Egress, egressSocket) {
		c.spec.Gate.Transparent, c.spec.Gate.Socket = false, gateSocket
	}
	if c.wantsLocal() {
		c.localOutbound()
	}
	if c.spec.Gate.Socket == "" {
		c.namedLoopback()
	}
}

// namedLoopback lets the command reach the host's loopback where it is granted by
// its name or address, as any other host: at the ports of that grant.
func (c *compiler) namedLoopback() {
	g := c.spec.Gate
	named, err := grants.LoopbackOf(&c.policy)
	if err != nil {
		return // it is refused when the gate's rules are made
	}
	g.Local = c.addPorts(g.Local, named.IPv4)
	g.LocalIPv6 = c.addPorts(g.LocalIPv6, named.IPv6)
}

// addPorts adds those of the host's ports that are not taken inside.
func (c *compiler) addPorts(list, more []config.Ports) []config.Ports {
	for _, p := range c.notTaken(more) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// exposures are ports of the host that lead inside.
func (c *compiler) exposures() {
	const key = "network.exposePorts"
	for _, entry := range c.policy.Network.ExposePorts {
		e, err := policy.ParseExposure(entry)
		switch {
		case err != nil:
			c.refuse(key, entry, err.Error(), "")
			continue
		case e.Inside >= GateProxyPort && e.Inside <= GateInsidePort:
			c.refuse(key, entry, "the port inside is the network gate's own", "use another")
			continue
		}
		to := Exposure{Address: e.Addr.String(), Port: e.Port, Inside: e.Inside}
		if !slices.Contains(c.spec.Expose, to) {
			c.spec.Expose = append(c.spec.Expose, to)
		}
	}
}

// needsGate says whether the policy grants a part of the network.
func (c *compiler) needsGate(open bool) bool {
	n, ssh := &c.policy.Network, &c.policy.SSH
	if len(ssh.AllowedHosts) > 0 || c.wantsLocal() && !open || rulesMatter(n.Rules, open) {
		return true
	}
	if n.HTTPProxyPort != nil || n.SOCKSProxyPort != nil {
		return true
	}
	// Who insists on capture has a gate though nothing is granted, or everything, and
	// can be told something else later.
	if isTrue(n.Transparent) {
		return true
	}
	if open {
		return len(n.DeniedDomains) > 0 || len(ssh.DeniedHosts) > 0 || n.Limits != nil || n.UpstreamProxy != nil || len(n.Inject) > 0 ||
			c.narrowsLoopback() || isFalse(n.AllowLocalBinding) || len(n.ExposePorts) > 0 || is(n.Egress, egressSocket)
	}
	return len(n.AllowedDomains) > 0 || len(n.AllowedCIDRs) > 0 || is(n.DefaultAction, "proxy") || is(n.DefaultAction, "ask")
}

// narrowsLoopback says whether some ports of the host's loopback are to be out of
// reach: those that are not named, or all of them.
func (c *compiler) narrowsLoopback() bool {
	n := &c.policy.Network
	return isFalse(n.AllowLocalOutbound) || len(n.AllowLocalOutboundPorts) > 0 && !slices.Contains(n.AllowLocalOutboundPorts, "*")
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

// refuseNetwork refuses what contradicts itself.
func (c *compiler) refuseNetwork() {
	n := &c.policy.Network
	own := n.HTTPProxyPort != nil || n.SOCKSProxyPort != nil
	c.refuseIf(own && n.UpstreamProxy != nil, "network.upstreamProxy", "", "connections cannot leave through it and through httpProxyPort or socksProxyPort", "name one of them")
	c.refuseIf(is(n.Egress, egressSocket) && isTrue(n.Transparent), "network.transparent", "true", "connections cannot be captured where the gate is only at a socket", `remove it, or "egress"`)
	c.refuseIf(is(n.Egress, egressSocket) && c.wantsLocal(), "network.allowLocalOutbound", "", "loopback cannot lead to the host where the gate is only at a socket", `remove it, or "egress"`)
}

// gate says what the gate is told. The mounts must be known: what the command can
// write is not believed.
func (c *compiler) gate() {
	if c.spec.Network != NetworkGate || len(c.reasons) > 0 {
		return
	}
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
	g := c.spec.Gate
	g.Config, g.Unknown = told, found.unknown
	if !c.wantsLocal() {
		return
	}
	list := c.policy.Network.AllowLocalOutboundPorts
	if len(list) == 0 {
		c.allowLocal(LocalOutbound, "", nil)
	}
	for _, entry := range list {
		c.allowLocal(LocalOutbound+"Ports", entry, []string{entry})
	}
}

// allowLocal adds the rules by which an entry lets ports of the host's loopback be
// reached. What is wrong with one is refused by localOutbound.
func (c *compiler) allowLocal(key, entry string, list []string) {
	ports, err := c.localPorts(list)
	if err != nil || len(ports) == 0 {
		return
	}
	r := config.Rule{Ports: ports, Action: config.Allow, Name: strings.TrimSpace(key + " " + entry)}
	if pos, ok := c.policy.Origins[policy.Origin{Key: key, Entry: entry}]; ok {
		r.Where = pos.String()
	}
	for _, r.Host = range []string{"127.0.0.1", "::1"} {
		c.spec.Gate.Config.Rules = append(c.spec.Gate.Config.Rules, r)
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
	const key = "network.allowLocalOutboundPorts"
	ports, err := c.localPorts(list)
	if err != nil {
		c.refuse(key, strings.Join(list, ", "), err.Error(), "")
	}
	c.refuseIf(err == nil && len(ports) == 0, key, strings.Join(list, ", "), "at these ports of loopback the network gate is, or an exposed port of the sandbox", "remove them")
	c.spec.Gate.Local, c.spec.Gate.LocalIPv6 = ports, slices.Clone(ports)
}

// localPorts are the ports that are granted; none and "*" mean all. At those of
// the gate there is the gate, and at those that are exposed a server of the
// sandbox's own.
func (c *compiler) localPorts(list []string) ([]config.Ports, error) {
	if len(list) == 0 {
		list = []string{"*"}
	}
	ports, err := grants.Ports(list)
	return c.notTaken(ports), err
}

func (c *compiler) notTaken(ports []config.Ports) []config.Ports {
	ports = without(ports, config.Ports{From: GateProxyPort, To: GateInsidePort})
	for _, e := range c.spec.Expose {
		ports = without(ports, config.Ports{From: e.Inside, To: e.Inside})
	}
	return ports
}

// without cuts a range out of others.
func without(list []config.Ports, cut config.Ports) []config.Ports {
	var out []config.Ports
	for _, p := range list {
		if p.From < cut.From {
			out = append(out, config.Ports{From: p.From, To: min(p.To, cut.From-1)})
		}
		if p.To > cut.To {
			out = append(out, config.Ports{From: max(p.From, cut.To+1), To: p.To})
		}
	}
	return out
}

// LocalOutbound is how the names of the rules begin that let loopback lead to the host's.
const LocalOutbound = "network.allowLocalOutbound"

// egressSocket is the choice of network.egress for which gateSocket is where the
// gate is.
const (
	egressSocket = "socket"
	gateSocket   = OwnDir + "/gate.sock"
)

// bundlePath is where the certificates are inside. The root directory is the
// sandbox's own, so nothing of the host can be in the way.
const (
	bundlePath = OwnDir + "/ca-bundle.crt"
	storePath  = OwnDir + "/ca-bundle.jks" // for Java
)

// OwnDir is where sandboxes have what is Bailey's own.
const OwnDir = "/.bailey"

// Certificates is why there are mounts with the gate's certificates.
const Certificates = "certificates, with the gate's own"

// certificates let programs believe the gate where it opens TLS.
func (c *compiler) certificates() {
	if c.spec.Gate == nil || !c.spec.Gate.Config.NeedsAuthority() || c.host.Authority == nil {
		return
	}
	for _, target := range append([]string{bundlePath}, c.host.Authority.Replaces...) {
		if target != bundlePath && (c.granted(target) == AccessNone || c.rooted != nil && !c.exists(target)) {
			continue
		}
		c.spec.Mounts = append(c.spec.Mounts, Mount{
			Kind: Bind, Source: c.host.Authority.Bundle, Target: target, File: true, Why: Certificates,
		})
	}
	c.spec.Mounts = append(c.spec.Mounts, Mount{
		Kind: Bind, Source: c.host.Authority.Store, Target: storePath, File: true, Why: Certificates,
	})
}

// certificateVariables tell programs where the certificates are.
func (c *compiler) certificateVariables(env map[string]string) {
	if c.spec.Gate == nil || !c.spec.Gate.Config.NeedsAuthority() {
		return
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
		"AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "npm_config_cafile", "DENO_CERT", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		env[name] = bundlePath
	}
	addJava(env, "-Djavax.net.ssl.trustStore="+storePath+" -Djavax.net.ssl.trustStoreType=JKS")
	for i := range c.policy.Network.Inject {
		if name := c.policy.Network.Inject[i].Placeholder; name != "" {
			env[name] = "bailey-adds-it-outside"
		}
	}
}

// addJava adds options for Java to those that the command has already.
func addJava(env map[string]string, options string) {
	const name = "JAVA_TOOL_OPTIONS"
	env[name] = strings.TrimSpace(env[name] + " " + options)
}

// hasPlaceholder says whether a variable is set to a placeholder inside, and its
// value is used outside: nobody needs to be told that it was kept out.
func (c *compiler) hasPlaceholder(name string) bool {
	return slices.ContainsFunc(c.policy.Network.Inject, func(i policy.Injection) bool { return i.Placeholder == name })
}

// proxyVariables tell programs where the gate is. Most would reach it without
// them, where the kernel can capture connections; with them they need no name
// server, and messages name the host. ALL_PROXY speaks HTTP as well: some
// programs, those with Python's httpx among them, do not start at all if it names
// SOCKS and they were installed without it.
func (c *compiler) proxyVariables(env map[string]string) {
	if c.spec.Network == NetworkHost {
		c.hostsProxies(env)
	}
	if c.spec.Gate == nil {
		return
	}
	c.certificateVariables(env)
	if c.spec.Gate.Socket != "" {
		// No variable that programs know could say it.
		env["BAILEY_GATE_SOCKET"] = c.spec.Gate.Socket
		return
	}
	address := "127.0.0.1:" + strconv.Itoa(GateProxyPort)
	for name, value := range map[string]string{
		"HTTP_PROXY": "http://" + address, "HTTPS_PROXY": "http://" + address, "ALL_PROXY": "http://" + address,
		"NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	env["NODE_USE_ENV_PROXY"] = "1"
	if !c.spec.Gate.Transparent {
		proxyOptions(env)
	}
}

// hostsProxies tell programs on the host's network of the proxy that leads out of
// it, which may be the only way. Its user and password stay outside.
func (c *compiler) hostsProxies(env map[string]string) {
	secret := false
	for _, lower := range []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy"} {
		for _, name := range []string{lower, strings.ToUpper(lower)} {
			value := c.variable(name)
			if _, entered := env[name]; entered || value == "" || matchesAny(c.policy.Env.Deny, name) {
				continue
			}
			bare := withoutUser(value)
			secret = secret || bare != value
			env[name] = bare
		}
	}
	if secret {
		c.warn(`the proxy of this machine has a user and a password, which stay outside; if it insists on them, have the network gate add them: "network": {"transparent": true}`)
	}
}

// withoutUser is a proxy's address without the user and the password in it.
func withoutUser(proxy string) string {
	scheme, rest, ok := strings.Cut(proxy, "://")
	if !ok {
		scheme, rest = "", proxy
	} else {
		scheme += "://"
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return scheme + rest[strings.LastIndexByte(rest[:end], '@')+1:]
}

// WithProxyOptions returns an environment in which programs go by a proxy that
// need to be told in other ways than by the usual variables: for a runtime that
// cannot capture connections, though the Spec has that.
func WithProxyOptions(env []string) []string {
	byName := make(map[string]string, len(env)+4)
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		byName[name] = value
	}
	proxyOptions(byName)
	out := make([]string, 0, len(byName))
	for name, value := range byName {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

func proxyOptions(env map[string]string) {
	port := strconv.Itoa(GateProxyPort)
	addJava(env, "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort="+port+
		" -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort="+port+" -Dhttp.nonProxyHosts=localhost|127.*|[::1]")
	env["CLOUDSDK_PROXY_TYPE"], env["CLOUDSDK_PROXY_ADDRESS"], env["CLOUDSDK_PROXY_PORT"] = "http", "127.0.0.1", port
}
