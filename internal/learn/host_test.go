package learn

import (
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

func TestAllowedHostIsAddedWhereItHolds(t *testing.T) {
	const rules = `{
  // mine
  "network": {
    "rules": [
      {"host": "x.example", "action": "deny", "methods": ["POST"]},
      // new ones
      {"host": "*.example", "action": "ask"} // all of them
    ]
  }
}
`
	for _, c := range []struct {
		name, file string
		host       Host
		want       string
	}{
		{"no list yet", "{\n  \"network\": {\"defaultAction\": \"ask\"}\n}\n", Host{Name: "a.example"}, `"allowedDomains": [
      "a.example"
    ]`},
		{"a list", `{"network": {"allowedDomains": ["b.example" /* b */]}}`, Host{Name: "a.example"}, `"b.example", /* b */
      "a.example"`},
		{"listed already", `{"network": {"allowedDomains": ["a.example"]}}`, Host{Name: "a.example"}, `{"network": {"allowedDomains": ["a.example"]}}`},
		{"ssh", "{}", Host{Name: "a.example", Port: 22}, `"allowedHosts": [
      "a.example"
    ]`},
		{"another port", "{}", Host{Name: "a.example", Port: 5432}, `{"host":"a.example","ports":["5432"],"action":"allow"}`},
		{"a rule", rules, Host{Name: "a.example", Rule: &config.Rule{Where: "f:7:7", Methods: []string{"GET"}}}, `"methods": ["POST"]},
      {"host":"a.example","methods":["GET"],"action":"allow"},
      // new ones
      {"host": "*.example", "action": "ask"} // all of them`},
	} {
		got, err := c.host.Allow("f", []byte(c.file))
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %v, got\n%s\nwant in it\n%s", c.name, err, got, c.want)
		}
	}
}

func TestHostIsNotAllowedByGuesswork(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		host Host
	}{
		"the rule is gone":    {`{"network": {"rules": [{"host": "*", "action": "ask"}]}}`, Host{Name: "a.example", Rule: &config.Rule{Where: "f:9:9"}}},
		"no policy":           {`{"network": 1}`, Host{Name: "a.example"}},
		"no host of a policy": {`{}`, Host{Name: "a b"}},
	} {
		if got, err := c.host.Allow("f", []byte(c.file)); err == nil {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestContactsBecomeHostsAndGroups(t *testing.T) {
	web := []config.Ports{{From: 80, To: 80}, {From: 443, To: 443}}
	o := Options{
		Home: "/home/u", Files: newHost(),
		Rules: []config.Rule{
			{Host: "*.part.example", Action: config.Allow, Methods: []string{"GET"}, Name: "network.rules[0] *.part.example"},
			{Host: "*", Action: config.Allow, Paths: []string{"/x"}, Name: "network.rules[1] *"},
		},
		Groups: []Group{{Name: "@npm", Rules: []config.Rule{{Host: "registry.example", Ports: web}}}},
		Contacts: []Contact{
			{Program: "node", Host: "registry.example"},
			{Program: "curl", Host: "registry.example", Port: 8080},
			{Program: "wget", Host: "b.example"},
			{Program: "curl", Host: "b.example"},
			{Host: "b.example"},
			{Program: "psql", Host: "b.example", Port: 5432},
			{Program: "ssh", Host: "b.example", Port: 22},
			{Program: "curl", Host: "api.part.example"},
			{Program: "curl", Host: "meta.example", Special: "169.254.169.254"},
			{Program: "curl", Host: "meta.example", Port: 8080},
			{Program: "curl", Host: "bad.example", Denied: "network.deniedDomains bad.example"},
			{Program: "curl", Host: "a b\n"},
		},
	}
	p := Propose(nil, o)
	got := string(p.Render("Hosts.", "default", Names{}))
	want := `// Hosts.
{
  "extends": "default",
  "network": {
    "allowedDomains": [
      "@npm", // node
      "b.example", // curl, wget
    ],
    "rules": [
      {"host": "b.example", "ports": ["5432"], "action": "allow"}, // psql
      {"host": "registry.example", "ports": ["8080"], "action": "allow"}, // curl
    ],
  },
  "ssh": {
    "allowedHosts": [
      "b.example", // ssh
    ],
    // a host, not granted (no policy can name it): a b\x0a (curl)
    // a host, not granted (only some requests are, by network.rules[0] *.part.example): api.part.example (curl)
    // a host, not granted (denied by network.deniedDomains bad.example): bad.example (curl)
    // a host, not granted (it leads to 169.254.169.254, which network.allowedCIDRs would have to name): meta.example (curl)
  },
}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var asked policy.Policy
	for i := range p.Hosts {
		p.Hosts[i].Allow(&asked)
	}
	parsed, err := policy.Parse("proposal", []byte(got))
	if err != nil || !reflect.DeepEqual(parsed.Network, asked.Network) || !reflect.DeepEqual(parsed.SSH, asked.SSH) {
		t.Errorf("error %v, the file says %+v, %+v, and for a proof are %+v, %+v", err, parsed.Network, parsed.SSH, asked.Network, asked.SSH)
	}
	merged, err := p.Merge("f", []byte("{}"), Names{})
	if err != nil || !strings.Contains(string(merged), `// psql
      {"host": "b.example", "ports": ["5432"], "action": "allow"}`) {
		t.Errorf("error %v, merged\n%s", err, merged)
	}
	if again, err := p.Merge("f", merged, Names{}); err != nil || string(again) != string(merged) {
		t.Errorf("merged again: error %v, got\n%s", err, again)
	}
}
