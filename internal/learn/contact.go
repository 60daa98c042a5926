package learn

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Contact is a host that a command wanted to reach and that no rule grants.
type Contact struct {
	Program string // "" if it is not known
	Host    string
	Port    uint16 // 0: the ports of the web
	// Special is the address that the name leads to, if it is one that names may not
	// lead to.
	Special string
	Denied  string // the rule that forbids it; empty if none decides
}

// Reach is one host, or a group of them, that a policy would have to let be
// reached.
type Reach struct {
	Host string   // or a group: @npm
	Port uint16   // 0: the ports of the web, or of the group
	For  []string // the programs that wanted it, sorted
}

// Group is what an entry such as @npm stands for on this machine.
type Group struct {
	Name  string
	Rules []config.Rule
}

// reaches folds contacts: hosts of a group stand for the group, and those that
// cannot be granted as a whole become remarks.
func (b *builder) reaches() []Reach {
	type key struct {
		host string
		port uint16
	}
	wanted := map[key]programs{}
	for _, c := range b.Contacts {
		if why := b.whyNot(c); why != "" {
			b.remark(Unreached, c.Host, why, c.Program)
			continue
		}
		k := key{c.Host, c.Port}
		if group := b.groupOf(c); group != "" {
			k = key{group, 0}
		}
		if wanted[k] == nil {
			wanted[k] = programs{}
		}
		wanted[k][c.Program] = true
	}
	var out []Reach
	for k, who := range wanted {
		out = append(out, Reach{k.host, k.port, who.sorted()})
	}
	slices.SortFunc(out, func(x, y Reach) int {
		return cmp.Or(strings.Compare(x.Host, y.Host), cmp.Compare(x.Port, y.Port))
	})
	return out
}

// whyNot says why a host is not proposed, or "". Who allows some requests to a
// host does not mean all of them.
func (b *builder) whyNot(c Contact) string {
	if c.Denied != "" {
		return "denied by " + c.Denied
	}
	for _, other := range b.Contacts {
		if other.Host == c.Host && other.Special != "" {
			return "it leads to " + other.Special + ", which network.allowedCIDRs would have to name"
		}
	}
	for i := range b.Rules {
		r := &b.Rules[i]
		if r.Action != config.Deny && len(r.Methods)+len(r.Paths) > 0 && r.Host != "*" && isAbout(r, c) {
			return "only some requests are, by " + r.Name
		}
	}
	one, err := json.Marshal(c.Host)
	if err == nil {
		_, err = policy.Parse("host", []byte(`{"network": {"allowedDomains": [`+string(one)+`]}}`))
	}
	if err != nil {
		return "no policy can name it"
	}
	return ""
}

// groupOf returns the first group that a contact would be granted by, or "".
func (b *builder) groupOf(c Contact) string {
	for _, g := range b.Groups {
		if slices.ContainsFunc(g.Rules, func(r config.Rule) bool { return isAbout(&r, c) }) {
			return g.Name
		}
	}
	return ""
}

// isAbout says whether a rule is about the host and the port of a contact.
func isAbout(r *config.Rule, c Contact) bool {
	suffix, below := strings.CutPrefix(r.Host, "*")
	if r.Host != c.Host && (!below || !strings.HasSuffix(c.Host, suffix)) {
		return false
	}
	has := func(port uint16) bool {
		return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p config.Ports) bool { return p.From <= port && port <= p.To })
	}
	if c.Port == 0 {
		return has(80) || has(443)
	}
	return has(c.Port)
}

// place is the list of a policy that lets it be reached.
func (r *Reach) place() (section, key string) {
	switch r.Port {
	case 0:
		return "network", "allowedDomains"
	case sshPort:
		return "ssh", "allowedHosts"
	}
	return "network", "rules"
}

// text is the entry of that list, in JSON.
func (r *Reach) text() string {
	if _, key := r.place(); key != "rules" {
		return quote(r.Host)
	}
	return `{"host": ` + quote(r.Host) + `, "ports": ["` + strconv.Itoa(int(r.Port)) + `"], "action": "allow"}`
}

// Allow adds what is to be reached to a policy.
func (r *Reach) Allow(p *policy.Policy) {
	switch _, key := r.place(); key {
	case "allowedDomains":
		p.Network.AllowedDomains = append(slices.Clip(p.Network.AllowedDomains), r.Host)
	case "allowedHosts":
		p.SSH.AllowedHosts = append(slices.Clip(p.SSH.AllowedHosts), r.Host)
	default:
		rule := policy.NetworkRule{Host: r.Host, Ports: []string{strconv.Itoa(int(r.Port))}, Action: string(config.Allow)}
		p.Network.Rules = append(slices.Clip(p.Network.Rules), rule)
	}
}
