package gate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// denial is the error for what the policy does not allow. The client, a person
// and the record of events are told the same.
type denial struct {
	query   rules.Query
	path    string // of the URL
	address netip.Addr
	reason  string
	rule    string // what decided
	where   string
	fix     string
}

func (d *denial) subject() string {
	s := d.query.Host.String()
	if d.query.Port != 0 {
		s = d.query.Host.Join(d.query.Port)
	}
	if d.query.Method != "" {
		s = d.query.Method + " " + s
	}
	return s
}

func (d *denial) Error() string { return d.subject() + " is not allowed: " + d.reason }

// text is what a person sees who looks at the answer.
func (d *denial) text() string {
	text := "Bailey: " + d.Error() + ".\n"
	if d.where != "" {
		text += "Decided at " + d.where + ".\n"
	}
	if d.fix != "" {
		text += "To allow it: " + d.fix + "\n"
	}
	return text
}

func (d *denial) event() *event.Event {
	e := event.New(event.Deny)
	e.Op = event.OpConnect
	e.Host, e.Port = d.query.Host.String(), int(d.query.Port)
	if d.address.IsValid() {
		e.Address = d.address.String()
	}
	e.Method, e.URLPath = d.query.Method, d.path
	e.Rule, e.Where, e.Fix = d.rule, d.where, d.fix
	return e
}

// allowed is the event of a denial that did not come about, because somebody said
// so.
func (d *denial) allowed() *event.Event {
	e := d.event()
	e.Kind, e.Rule, e.Where, e.Fix = event.Allow, askedAndAllowed, "", ""
	return e
}

// explain makes a denial of a verdict.
func explain(s *rules.Set, q rules.Query, v rules.Verdict) *denial {
	d := &denial{query: q}
	switch {
	case v.Rule != nil && q.Method == "" && q.Scheme == rules.HTTPS && len(v.Rule.Methods)+len(v.Rule.Paths) > 0:
		d.reason = "methods and paths cannot be seen in TLS, and " + v.Rule.Name + " depends on them"
		d.rule, d.where = v.Rule.Name, v.Rule.Where
		d.fix = `"inspect": true in ` + v.Rule.Name
	case v.Rule != nil:
		d.reason = "denied by " + v.Rule.Name
		d.rule, d.where = v.Rule.Name, v.Rule.Where
		d.fix = "take back " + v.Rule.Name
	default:
		d.reason, d.fix = unnamed(s, q)
		d.rule = "network.defaultAction deny"
	}
	return d
}

// unnamed is for what no rule decides: whether that is the host, or only the
// port, the protocol, the method or the path.
func unnamed(s *rules.Set, q rules.Query) (reason, fix string) {
	host := quote(q.Host.String())
	rule := `network.rules: {"host": ` + host + `, `
	port := `"ports": ["` + strconv.Itoa(int(q.Port)) + `"], `
	const allow = `"action": "allow"}`
	// That the default is to ask, or to let a proxy decide, grants nothing.
	granted := func(q rules.Query) bool {
		v := s.Foresee(q)
		return v.Action == config.Allow || v.Action != config.Deny && v.Rule != nil
	}
	switch {
	case q.Method != "" && granted(rules.Query{Host: q.Host, Port: q.Port, Scheme: q.Scheme}):
		return requestFix(q)
	case q.Scheme == rules.HTTPS && granted(rules.Query{Host: q.Host, Port: q.Port, Scheme: q.Scheme}):
		return "its rules depend on methods and paths, which cannot be seen in TLS", `"inspect": true in the rule for ` + host
	case q.Scheme != 0 && granted(rules.Query{Host: q.Host, Port: q.Port}):
		return "the host is allowed on this port, but not for this protocol", rule + port + `"schemes": ["` + schemeName(q.Scheme) + `"], ` + allow
	case q.Port != 0 && granted(rules.Query{Host: q.Host}):
		return "the host is allowed, but not on this port", portFix(q, rule+port+allow)
	case q.Port != 0 && q.Port != 80 && q.Port != 443:
		return "no rule of the policy allows it", portFix(q, rule+port+allow)
	}
	return "no rule of the policy allows it", "network.allowedDomains: " + host
}

// requestFix is the smallest rule that would let a request through, wherever it
// stands among the others: none of them matches. A path that servers could read in
// two ways no rule allows.
func requestFix(q rules.Query) (reason, fix string) {
	r := config.Rule{
		Host: q.Host.String(), Ports: []config.Ports{{From: q.Port, To: q.Port}}, Schemes: []string{schemeName(q.Scheme)},
		Methods: []string{q.Method}, Action: config.Allow, Inspect: q.Scheme == rules.HTTPS,
	}
	fix = `network.rules: {"host": ` + quote(r.Host) + `, "ports": ["` + strconv.Itoa(int(q.Port)) + `"], "schemes": [` + quote(r.Schemes[0]) +
		`], "methods": [` + quote(q.Method) + `], `
	if q.Path != nil {
		r.Paths = []string{q.Path.String()}
		fix += `"paths": [` + quote(r.Paths[0]) + `], `
	}
	if r.Inspect {
		fix += `"inspect": true, `
	}
	alone, err := rules.Compile(&config.Config{Rules: []config.Rule{r}, Default: config.Deny})
	if err != nil || alone.Decide(q).Action != config.Allow {
		return "no rule allows this method and path, and none can allow a path that servers could read in several ways", ""
	}
	return "no rule allows this method and path", fix + `"action": "allow"}`
}

func portFix(q rules.Query, rule string) string {
	if q.Port == sshPort {
		return "ssh.allowedHosts: " + quote(q.Host.String())
	}
	return rule
}

const (
	httpPort  = 80
	httpsPort = 443
	sshPort   = 22
	dnsPort   = 53
)

func schemeName(s rules.Scheme) string {
	switch s {
	case rules.HTTP:
		return "http"
	case rules.HTTPS:
		return "https"
	case rules.SSH:
		return "ssh"
	}
	return "tcp"
}

// special is a denial because of what a name resolves to.
func special(q rules.Query, addr netip.Addr, what string) *denial {
	d := &denial{query: q, address: addr, rule: "special address"}
	d.fix = "network.allowedCIDRs: " + quote(addr.String())
	if q.Host.IsAddr() {
		d.reason = "the address is " + what
	} else {
		d.reason = fmt.Sprintf("the name resolves to %s, %s", addr, what)
	}
	return d
}

// mismatch is a denial because a client says one host and means another.
func mismatch(q rules.Query, inside hostname.Host, where string) *denial {
	return &denial{
		query:  q,
		reason: fmt.Sprintf("the %s inside names another host, %s", where, quote(inside.String())),
		rule:   "one connection, one host",
	}
}

func quote(s string) string {
	b, err := json.Marshal(strings.ToValidUTF8(s, "\ufffd"))
	if err != nil {
		return strconv.Quote(s)
	}
	return string(b)
}
