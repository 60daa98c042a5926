package learn

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
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
