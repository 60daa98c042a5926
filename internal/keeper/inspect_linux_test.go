package keeper

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// connection is a denial by the gate.
func connection(host string, port int, rule string) event.Event {
	return event.Event{Kind: event.Deny, Op: event.OpConnect, Host: host, Port: port, Rule: rule}
}

func TestExactlyWhatWasDeniedIsAllowed(t *testing.T) {
	before := config.Config{
		Default: config.Deny, Rules: []config.Rule{{Host: "bad.example", Action: config.Deny}}, Ranges: []config.Range{{CIDR: "10.0.0.0/8"}},
	}
	allow := func(r config.Rule) config.Config {
		c := before
		r.Action, r.Name = config.Allow, "allowed in box top"
		c.Rules = append([]config.Rule{before.Rules[0]}, r)
		return c
	}
	at := func(port uint16) []config.Ports { return []config.Ports{{From: port, To: port}} }
	method := connection("a.example", 443, ruleDefault)
	method.Method, method.Fix = "POST", `network.rules: {"host": "a.example", "methods": ["POST"], "action": "allow"}`
	anyMethod := connection("a.example", 80, ruleDefault)
	anyMethod.Method, anyMethod.Fix = "GET", `network.allowedDomains: "a.example"`
	special := connection("a.example", 80, ruleSpecial)
	special.Address = "169.254.169.254"
	ranged := before
	ranged.Ranges = append([]config.Range{{CIDR: "10.0.0.0/8"}}, config.Range{CIDR: "169.254.169.254"})
	byRule := connection("bad.example", 80, "network.deniedDomains bad.example")
	byRule.Where = "policy.jsonc:3:5"
	unseen := connection("a.example", 443, ruleDefault)
	unseen.Fix = `"inspect": true in the rule for "a.example"`
	file := event.Event{Kind: event.Deny, Op: event.OpCreate, Path: "/x", Rule: "protected name", Fix: "--allow-write"}
	for _, c := range []struct {
		name  string
		event event.Event
		want  config.Config
		grant string
		fails string
	}{
		{"a host", connection("a.example", 443, ruleDefault), allow(config.Rule{Host: "a.example", Ports: at(443)}), "a.example:443", ""},
		{"an address", connection("2001:db8::1", 22, ruleDefault), allow(config.Rule{Host: "2001:db8::1", Ports: at(22)}), "'[2001:db8::1]:22'", ""},
		{"a method", method, allow(config.Rule{Host: "a.example", Ports: at(443), Methods: []string{"POST"}}), "POST a.example:443", ""},
		{"a host that no rule names, seen by its request", anyMethod, allow(config.Rule{Host: "a.example", Ports: at(80)}), "a.example:80", ""},
		{"a special address", special, ranged, "every port of 169.254.169.254", ""},
		{"what a rule denies", byRule, before, "", "network.deniedDomains bad.example at policy.jsonc:3:5"},
		{"what TLS hides", unseen, before, "", "only a policy"},
		{"a file", file, before, "", "only a policy"},
		{"one connection, two hosts", connection("a.example", 443, "one connection, one host"), before, "", "only a policy"},
		{"no port", connection("a.example", 0, ruleDefault), before, "", "only a policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Allowing(before, &c.event)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || CanAllow(&c.event) {
					t.Errorf("got %v, want %q", err, c.fails)
				}
			} else if err != nil || Grant(&c.event) != c.grant {
				t.Errorf("got %v, and what is granted is %s; want %s", err, Grant(&c.event), c.grant)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
	if len(before.Rules) != 1 || len(before.Ranges) != 1 {
		t.Errorf("the configuration before has changed: %+v", before)
	}
}

func TestConnectedSocketsAreReadFromTheTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:03AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0000000000000000 100 0 0 10 0
   1: 0100007F:9C40 0100007F:03AC 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:03AC 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000000000000000
`
	got := map[string]bool{}
	parseConnected([]byte(table), got)
	if want := map[string]bool{"socket:[12]": true}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhoLooksLeavesNothingBehind(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if boxes, err := List(); len(boxes) != 0 || err != nil {
		t.Errorf("got %v, %v", boxes, err)
	}
	for what, err := range map[string]error{"inspect": func() error { _, err := Inspect(1); return err }(), "allow": AllowDenied(1, 1)} {
		if err == nil || !strings.Contains(err.Error(), "no such sandbox any more") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if p, err := Own().find(); p != nil || err != nil {
		t.Errorf("the directory was made: %v, %v", p, err)
	}
}
