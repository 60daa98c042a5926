// Package grants turns what a policy says about the network into what the gate
// is told. It is pure: everything it needs to know of the machine comes with the
// Options. It imports nothing of the network, so that the command can link it.
package grants

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// Endpoint is a host that a tool is configured to use.
type Endpoint struct {
	Host string
	Port uint16 // 0: the ports of the web, or of ssh
	SSH  bool   // reached by ssh, not by HTTP or TLS
	From string // where it was found, for people
}

// Groups knows what groups such as @npm stand for on this machine.
type Groups interface {
	Endpoints(group string) ([]Endpoint, error)
}

// Options are what FromPolicy has to know besides the policy.
type Options struct {
	Sandbox      string // id, for events
	Home         string // what ~/ stands for
	Project      string // what relative paths are relative to
	Groups       Groups // may be nil if the policy has no groups
	AuthorityDir string // see config.Config; may be empty if no TLS is opened
	CanAsk       bool   // whether somebody answers questions
	// Getenv looks up the host's proxy variables, which hold unless the policy
	// names a proxy. It may be nil.
	Getenv func(string) string
}

var (
	webPorts   = []config.Ports{{From: 80, To: 80}, {From: 443, To: 443}}
	webSchemes = []string{"http", "https"}
	sshPorts   = []config.Ports{{From: 22, To: 22}}
	sshSchemes = []string{"ssh"}
)

// ports are those on which the host is reached.
func (e Endpoint) ports() []config.Ports {
	switch {
	case e.Port != 0:
		return []config.Ports{{From: e.Port, To: e.Port}}
	case e.SSH:
		return sshPorts
	}
	return webPorts
}

// schemes are the protocols by which it is.
func (e Endpoint) schemes() []string {
	if e.SSH {
		return sshSchemes
	}
	return webSchemes
}

// FromPolicy returns the gate's configuration. Rules are in the order in which
// hosts are decided: denials, network.rules, ssh.allowedHosts,
// network.allowedDomains. What grants a host without naming ports grants those
// of the web, 80 and 443, to HTTP and TLS; what refuses a host without naming
// ports refuses all of them.
func FromPolicy(p policy.Policy, o Options) (config.Config, error) {
	c := config.Config{
		Version: config.Version, Sandbox: o.Sandbox, Default: config.Deny,
		CanAsk: o.CanAsk, AuthorityDir: o.AuthorityDir, Limits: limits(p.Network.Limits),
	}
	if p.Network.DefaultAction != nil {
		c.Default = config.Action(*p.Network.DefaultAction)
	}
	t := translation{policy: p, options: o, config: &c}
	for _, step := range []func() error{
		t.deniedDomains, t.deniedSSH, t.rules, t.allowedSSH, t.allowedDomains, t.ranges, t.upstream, t.inject,
	} {
		if err := step(); err != nil {
			return config.Config{}, err
		}
	}
	if c.NeedsAuthority() && c.AuthorityDir == "" {
		return config.Config{}, errors.New("TLS is opened for some hosts, and there is no directory for the certificate authority")
	}
	return c, nil
}

// translation is the state of one FromPolicy.
type translation struct {
	policy  policy.Policy
	options Options
	config  *config.Config
}

// add adds a rule. One that grants loopback does so only if the policy does not shut
// it.
func (t *translation) add(r config.Rule) {
	if r.Action != config.Deny && shutsLoopback(&t.policy) {
		if is4, is6 := isLoopback(r.Host); is4 || is6 {
			return
		}
	}
	t.config.Rules = append(t.config.Rules, r)
}

func (t *translation) where(key, entry string) string {
	pos, ok := t.policy.Origins[policy.Origin{Key: key, Entry: entry}]
	if !ok {
		return ""
	}
	return pos.String()
}

// named is a rule that is about to be added, with its host resolved.
func (t *translation) named(key, entry string, e Endpoint) config.Rule {
	name := key + " " + entry
	switch {
	case e.From != "":
		name += " (" + e.Host + ", " + e.From + ")"
	case e.Host != entry:
		name += " (" + e.Host + ")"
	}
	return config.Rule{Host: e.Host, Name: name, Where: t.where(key, entry)}
}

// endpoints are the hosts that an entry stands for. The name of loopback is also
// its addresses, which is how programs connect to it.
func (t *translation) endpoints(key, entry string) ([]Endpoint, error) {
	switch {
	case strings.EqualFold(entry, localhost):
		return []Endpoint{{Host: entry}, {Host: loopback4}, {Host: loopback6}}, nil
	case !strings.HasPrefix(entry, "@"):
		return []Endpoint{{Host: entry}}, nil
	}
	if t.options.Groups == nil {
		return nil, fmt.Errorf("%s %s: groups are not known here", key, entry)
	}
	hosts, err := t.options.Groups.Endpoints(entry)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", key, entry, err)
	}
	return hosts, nil
}

func (t *translation) each(key string, entries []string, add func(entry string, e Endpoint)) error {
	t.config.Rules = slices.Grow(t.config.Rules, len(entries))
	for _, entry := range entries {
		if !strings.HasPrefix(entry, "@") && !strings.EqualFold(entry, localhost) {
			add(entry, Endpoint{Host: entry})
			continue
		}
		hosts, err := t.endpoints(key, entry)
		if err != nil {
			return err
		}
		for _, e := range hosts {
			add(entry, e)
		}
	}
	return nil
}

func (t *translation) deniedDomains() error {
	const key = "network.deniedDomains"
	return t.each(key, t.policy.Network.DeniedDomains, func(entry string, e Endpoint) {
		r := t.named(key, entry, e)
		r.Action = config.Deny
		t.add(r)
	})
}

// deniedSSH keeps ssh from a host: its port, and the protocol on any other.
func (t *translation) deniedSSH() error {
	const key = "ssh.deniedHosts"
	return t.each(key, t.policy.SSH.DeniedHosts, func(entry string, e Endpoint) {
		r := t.named(key, entry, e)
		r.Action = config.Deny
		r.Ports = sshPorts
		t.add(r)
		r.Ports, r.Schemes = nil, sshSchemes
		t.add(r)
	})
}

func (t *translation) allowedSSH() error {
	const key = "ssh.allowedHosts"
	return t.each(key, t.policy.SSH.AllowedHosts, func(entry string, e Endpoint) {
		r := t.named(key, entry, e)
		r.Action = config.Allow
		r.Ports, r.Schemes = sshPorts, sshSchemes
		t.add(r)
	})
}

func (t *translation) allowedDomains() error {
	const key = "network.allowedDomains"
	return t.each(key, t.policy.Network.AllowedDomains, func(entry string, e Endpoint) {
		r := t.named(key, entry, e)
		r.Action = config.Allow
		// "*" opens the network to everything: every port, every protocol.
		if e.Host != "*" {
			r.Ports, r.Schemes = e.ports(), e.schemes()
		}
		t.add(r)
	})
}

func (t *translation) rules() error {
	for i := range t.policy.Network.Rules {
		if err := t.rule(i); err != nil {
			return err
		}
	}
	return nil
}

func (t *translation) rule(i int) error {
	from := &t.policy.Network.Rules[i]
	key := "network.rules[" + strconv.Itoa(i) + "]"
	ports, err := Ports(from.Ports)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	hosts, err := t.endpoints(key, from.Host)
	if err != nil {
		return err
	}
	for _, e := range hosts {
		r := t.named(key, from.Host, e)
		r.Where = t.where("network.rules", strconv.Itoa(i))
		r.Action = config.Action(from.Action)
		r.Ports, r.Schemes, r.Methods, r.Paths = ports, from.Schemes, from.Methods, from.Paths
		r.Inspect = from.Inspect != nil && *from.Inspect
		if r.Action != config.Deny {
			narrow(&r, e)
		}
		t.add(r)
	}
	return nil
}

// narrow limits a rule that grants to the ports it means: those it names, those
// of its host, or those of its protocols.
func narrow(r *config.Rule, e Endpoint) {
	switch {
	case len(r.Ports) > 0:
	case len(r.Schemes) == 0:
		r.Ports, r.Schemes = e.ports(), e.schemes()
	case e.Port != 0:
		r.Ports = e.ports()
	default:
		for _, scheme := range r.Schemes {
			for _, p := range defaultPorts(scheme) {
				if !slices.Contains(r.Ports, p) {
					r.Ports = append(r.Ports, p)
				}
			}
		}
	}
}

func defaultPorts(scheme string) []config.Ports {
	switch scheme {
	case "http":
		return webPorts[:1]
	case "https":
		return webPorts[1:]
	case "ssh":
		return sshPorts
	case "tcp":
		return webPorts
	}
	return nil
}

// Ports reads ports and ranges; "*" means all.
func Ports(list []string) ([]config.Ports, error) {
	var out []config.Ports
	for _, text := range list {
		if text == "*" {
			out = append(out, config.Ports{From: 1, To: 65535})
			continue
		}
		first, last, ranged := strings.Cut(text, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || from == 0 || from > to {
			return nil, fmt.Errorf("%q is neither a port nor a range", text)
		}
		out = append(out, config.Ports{From: uint16(from), To: uint16(to)})
	}
	return out, nil
}

func (t *translation) ranges() error {
	for _, text := range t.policy.Network.AllowedCIDRs {
		t.config.Ranges = append(t.config.Ranges, config.Range{CIDR: text, Where: t.where("network.allowedCIDRs", text)})
	}
	return nil
}

// upstream takes the policy's proxy or, without one, the host's.
func (t *translation) upstream() error {
	u := &t.config.Upstream
	if proxy := t.policy.Network.UpstreamProxy; proxy != nil {
		u.All = *proxy
	} else if t.hasOwnProxy() {
		t.ownProxy()
	} else if t.options.Getenv != nil {
		if err := t.hostsProxy(); err != nil {
			return err
		}
	}
	if t.config.Default == config.Proxy && u.All == "" && (u.HTTP == "" || u.HTTPS == "") {
		return errors.New(`network.defaultAction "proxy" needs network.upstreamProxy`)
	}
	return nil
}

// hasOwnProxy says whether there is a proxy at a port of the host's loopback.
func (t *translation) hasOwnProxy() bool {
	return t.policy.Network.HTTPProxyPort != nil || t.policy.Network.SOCKSProxyPort != nil
}

// ownProxy leads out through proxies at ports of the host's loopback: the web
// through the one for HTTP, all else through SOCKS, and everything through the
// only one if there is but one. They decide about hosts if the policy names none.
func (t *translation) ownProxy() {
	u, n := &t.config.Upstream, &t.policy.Network
	const loopback = "127.0.0.1:"
	if n.HTTPProxyPort != nil {
		u.HTTP = "http://" + loopback + strconv.Itoa(*n.HTTPProxyPort)
		u.HTTPS, u.All = u.HTTP, u.HTTP
	}
	if n.SOCKSProxyPort != nil {
		u.All = "socks5://" + loopback + strconv.Itoa(*n.SOCKSProxyPort)
	}
	if n.DefaultAction == nil && !t.namesHosts() {
		t.config.Default = config.Proxy
	}
}

// namesHosts says whether the policy says which hosts can be reached.
func (t *translation) namesHosts() bool {
	n := &t.policy.Network
	grants := func(r policy.NetworkRule) bool { return r.Action != string(config.Deny) }
	return len(n.AllowedDomains) > 0 || len(n.AllowedCIDRs) > 0 || len(t.policy.SSH.AllowedHosts) > 0 || slices.ContainsFunc(n.Rules, grants)
}

// hostsProxy takes the proxies that the host's variables name. One that cannot be
// used is refused: to go past it would be to leave by a way that whoever set it did
// not mean. What it holds is not repeated, as there may be a password in it.
func (t *translation) hostsProxy() error {
	u := &t.config.Upstream
	for _, v := range []struct {
		name string
		to   *string
	}{{"http_proxy", &u.HTTP}, {"https_proxy", &u.HTTPS}, {"all_proxy", &u.All}} {
		name, value := t.variable(v.name)
		value = notation.FromVariable(value)
		if value == "" {
			continue
		}
		if _, err := notation.ParseProxy(value); err != nil {
			return fmt.Errorf("the variable %s names no proxy that can be used: %w; change it, unset it (env -u %s bailey …), or name a proxy in network.upstreamProxy", name, err, name)
		}
		*v.to = value
	}
	_, u.NoProxy = t.variable("no_proxy")
	return nil
}

// variable prefers the spelling in small letters, as most programs do, and says
// which it was.
func (t *translation) variable(name string) (spelling, value string) {
	if v := t.options.Getenv(name); v != "" {
		return name, v
	}
	upper := strings.ToUpper(name)
	return upper, t.options.Getenv(upper)
}

func limits(from *policy.NetworkLimits) config.Limits {
	var to config.Limits
	if from == nil {
		return to
	}
	if from.Connections != nil {
		to.Connections = *from.Connections
	}
	if from.HeaderBytes != nil {
		to.HeaderBytes = int64(*from.HeaderBytes)
	}
	if from.Idle != nil {
		to.Idle = time.Duration(*from.Idle)
	}
	if from.Total != nil {
		to.Total = time.Duration(*from.Total)
	}
	if from.Bandwidth != nil {
		to.Bandwidth = int64(*from.Bandwidth)
	}
	return to
}
