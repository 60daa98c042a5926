package rules

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

func TestDenialsThatLeaveNothingOfAGrantAreForeseen(t *testing.T) {
	only := func(from, to uint16) []config.Ports { return []config.Ports{{From: from, To: to}} }
	ssh, web := []string{"ssh"}, []string{"http", "https"}
	deny := func(r config.Rule) config.Rule {
		r.Host, r.Action = "a.example", config.Deny
		return r
	}
	allow := func(r config.Rule) config.Rule {
		r.Host, r.Action = "*.example", config.Allow
		return r
	}
	for _, c := range []struct {
		name  string
		rules []config.Rule
		q     Query
		want  config.Action
	}{
		{"its ports", []config.Rule{deny(config.Rule{Ports: only(22, 22)}), allow(config.Rule{Ports: only(22, 22), Schemes: ssh})}, Query{}, config.Deny},
		{"its protocol", []config.Rule{deny(config.Rule{Schemes: ssh}), allow(config.Rule{Ports: only(22, 22), Schemes: ssh})}, Query{}, config.Deny},
		{"all its ports", []config.Rule{deny(config.Rule{Ports: only(1, 1000)}), allow(config.Rule{Ports: only(22, 443)})}, Query{}, config.Deny},
		{"its protocol on the port", []config.Rule{deny(config.Rule{Schemes: ssh}), allow(config.Rule{Schemes: ssh})}, Query{Port: 22}, config.Deny},
		{"of two grants", []config.Rule{deny(config.Rule{Schemes: ssh}), allow(config.Rule{Schemes: ssh}), allow(config.Rule{Schemes: web})}, Query{}, config.Allow},
		{"of two grants both", []config.Rule{deny(config.Rule{Schemes: append(web, "ssh")}), allow(config.Rule{Schemes: ssh}), allow(config.Rule{Schemes: web})}, Query{}, config.Deny},
		{"some of its ports", []config.Rule{deny(config.Rule{Ports: only(22, 100)}), allow(config.Rule{Ports: only(22, 443)})}, Query{}, config.Allow},
		{"one of its protocols", []config.Rule{deny(config.Rule{Schemes: ssh}), allow(config.Rule{Schemes: append(web, "ssh")})}, Query{}, config.Allow},
		{"a protocol of any", []config.Rule{deny(config.Rule{Schemes: ssh}), allow(config.Rule{})}, Query{}, config.Allow},
		{"ports of all", []config.Rule{deny(config.Rule{Ports: only(22, 22)}), allow(config.Rule{})}, Query{}, config.Allow},
		{"its paths", []config.Rule{deny(config.Rule{Paths: []string{"/**"}}), allow(config.Rule{Schemes: web})}, Query{}, config.Allow},
		{"behind it", []config.Rule{allow(config.Rule{Ports: only(22, 22)}), deny(config.Rule{Ports: only(22, 22)})}, Query{}, config.Allow},
		{"another port", []config.Rule{deny(config.Rule{Ports: only(22, 22), Schemes: ssh}), allow(config.Rule{Schemes: ssh})}, Query{Port: 23}, config.Allow},
	} {
		s := compile(t, config.Config{Default: config.Deny, Rules: c.rules})
		c.q.Host = hostOf(t, "a.example")
		got := s.Foresee(c.q)
		if got.Action != c.want {
			t.Errorf("%s: foresaw %s, want %s", c.name, got.Action, c.want)
		}
		if got.Action == config.Deny && got.Rule == nil {
			t.Errorf("%s: no rule is named", c.name)
		}
		c.q.Host = hostOf(t, "b.example")
		if got := s.Foresee(c.q).Action; got != config.Allow {
			t.Errorf("%s: another host: %s", c.name, got)
		}
	}
}

func TestADenialToOneProtocolLeavesTheDefault(t *testing.T) {
	s := compile(t, config.Config{Default: config.Proxy, Rules: []config.Rule{
		{Host: "a.example", Action: config.Deny, Schemes: []string{"ssh"}},
		{Host: "*.example", Action: config.Allow, Schemes: []string{"ssh"}},
	}})
	if got := s.Foresee(Query{Host: hostOf(t, "a.example")}).Action; got != config.Proxy {
		t.Errorf("foresaw %s", got)
	}
}
