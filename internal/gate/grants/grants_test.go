package grants

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

type groups map[string][]Endpoint

func (g groups) Endpoints(group string) ([]Endpoint, error) {
	hosts, ok := g[group]
	if !ok {
		return nil, errors.New("not configured")
	}
	return hosts, nil
}

func parse(t *testing.T, text string) policy.Policy {
	t.Helper()
	p, err := policy.Parse("bailey.jsonc", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return *p
}

func options() Options {
	return Options{
		Sandbox: "b7", Home: "/home/u", Project: "/work", AuthorityDir: "/home/u/ca", CanAsk: true,
		Groups: groups{"@npm": {{Host: "npm.corp.example", Port: 8443, From: "registry of /home/u/.npmrc"}}, "@git-remotes": {{Host: "git.example", SSH: true}, {Host: "forge.example", Port: 2222, SSH: true}, {Host: "web.example"}}},
	}
}

func translate(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := FromPolicy(parse(t, text), options())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func port(n uint16) []config.Ports { return []config.Ports{{From: n, To: n}} }

func TestDenialsComeFirstAndGrantsHavePorts(t *testing.T) {
	c := translate(t, `{
		"network": {
			"allowedDomains": ["a.com", "@npm", "@git-remotes"],
			"rules": [{"host": "r.com", "action": "allow"}],
			"deniedDomains": ["d.com"],
		},
		"ssh": {"allowedHosts": ["s.com"], "deniedHosts": ["n.com"]},
	}`)
	want := []config.Rule{
		{Host: "d.com", Action: config.Deny, Name: "network.deniedDomains d.com"},
		{Host: "n.com", Action: config.Deny, Ports: port(22), Name: "ssh.deniedHosts n.com"},
		{Host: "n.com", Action: config.Deny, Schemes: []string{"ssh"}, Name: "ssh.deniedHosts n.com"},
		{Host: "r.com", Action: config.Allow, Ports: webPorts, Schemes: webSchemes, Name: "network.rules[0] r.com"},
		{Host: "s.com", Action: config.Allow, Ports: port(22), Schemes: []string{"ssh"}, Name: "ssh.allowedHosts s.com"},
		{Host: "a.com", Action: config.Allow, Ports: webPorts, Schemes: webSchemes, Name: "network.allowedDomains a.com"},
		{Host: "npm.corp.example", Action: config.Allow, Ports: port(8443), Schemes: webSchemes, Name: "network.allowedDomains @npm (npm.corp.example, registry of /home/u/.npmrc)"},
		{Host: "git.example", Action: config.Allow, Ports: port(22), Schemes: []string{"ssh"}, Name: "network.allowedDomains @git-remotes (git.example)"},
		{Host: "forge.example", Action: config.Allow, Ports: port(2222), Schemes: []string{"ssh"}, Name: "network.allowedDomains @git-remotes (forge.example)"},
		{Host: "web.example", Action: config.Allow, Ports: webPorts, Schemes: webSchemes, Name: "network.allowedDomains @git-remotes (web.example)"},
	}
	if len(c.Rules) != len(want) {
		t.Fatalf("got %d rules: %+v", len(c.Rules), c.Rules)
	}
	for i := range want {
		if !strings.HasPrefix(c.Rules[i].Where, "bailey.jsonc:") {
			t.Errorf("%s has no place: %q", c.Rules[i].Name, c.Rules[i].Where)
		}
		c.Rules[i].Where = ""
		if !reflect.DeepEqual(c.Rules[i], want[i]) {
			t.Errorf("rule %d:\ngot  %+v\nwant %+v", i, c.Rules[i], want[i])
		}
	}
	if c.Default != config.Deny || c.Sandbox != "b7" || !c.CanAsk {
		t.Errorf("got %+v", c)
	}
}

func TestPortsOfARule(t *testing.T) {
	for _, c := range []struct {
		rule    string
		ports   []config.Ports
		schemes []string
	}{
		{`"action": "allow"`, webPorts, webSchemes},
		{`"action": "ask"`, webPorts, webSchemes},
		{`"action": "deny"`, nil, nil},
		{`"action": "deny", "schemes": ["http"]`, nil, []string{"http"}},
		{`"action": "allow", "ports": [5432]`, port(5432), nil},
		{`"action": "allow", "ports": ["8000-8100", "*"]`, []config.Ports{{From: 8000, To: 8100}, {From: 1, To: 65535}}, nil},
		{`"action": "allow", "schemes": ["https"]`, port(443), []string{"https"}},
		{`"action": "allow", "schemes": ["ssh", "http", "tcp"]`, []config.Ports{{From: 22, To: 22}, {From: 80, To: 80}, {From: 443, To: 443}}, []string{"ssh", "http", "tcp"}},
	} {
		got := translate(t, `{"network": {"rules": [{"host": "a.com", `+c.rule+`}]}}`).Rules[0]
		if !reflect.DeepEqual(got.Ports, c.ports) || !reflect.DeepEqual(got.Schemes, c.schemes) {
			t.Errorf("%s: got %v %v", c.rule, got.Ports, got.Schemes)
		}
	}
}

func TestEverythingIsEveryPort(t *testing.T) {
	r := translate(t, `{"network": {"allowedDomains": ["*"]}}`).Rules[0]
	if r.Ports != nil || r.Schemes != nil || r.Action != config.Allow {
		t.Errorf("got %+v", r)
	}
}

func TestRuleKeepsItsConditions(t *testing.T) {
	c := translate(t, `{"network": {"defaultAction": "ask", "allowedCIDRs": ["10.0.0.0/8"], "rules": [
		{"host": "a.com", "methods": ["GET"], "paths": ["/v1/**"], "inspect": true, "action": "allow"}],
		"limits": {"connections": 3, "headerBytes": "1K", "idle": "2s", "total": "3s", "bandwidth": "1M"}}}`)
	r := c.Rules[0]
	if !r.Inspect || !reflect.DeepEqual(r.Methods, []string{"GET"}) || !reflect.DeepEqual(r.Paths, []string{"/v1/**"}) {
		t.Errorf("got %+v", r)
	}
	if c.Default != config.Ask || len(c.Ranges) != 1 || c.Ranges[0].CIDR != "10.0.0.0/8" || c.Ranges[0].Where == "" {
		t.Errorf("got %+v", c)
	}
	if want := (config.Limits{Connections: 3, HeaderBytes: 1024, Idle: 2 * time.Second, Total: 3 * time.Second, Bandwidth: 1 << 20}); c.Limits != want {
		t.Errorf("got %+v", c.Limits)
	}
}

func TestProxyIsThePolicysOrTheHosts(t *testing.T) {
	o := options()
	env := map[string]string{"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1", "ALL_PROXY": "socks5://all:1", "NO_PROXY": ".corp"}
	o.Getenv = func(name string) string { return env[name] }
	c, err := FromPolicy(policy.Policy{}, o)
	if want := (config.Upstream{HTTPS: "http://lower:1", All: "socks5://all:1", NoProxy: ".corp"}); err != nil || c.Upstream != want {
		t.Errorf("got %+v, %v", c.Upstream, err)
	}
	c, err = FromPolicy(parse(t, `{"network": {"upstreamProxy": "http://policy:3128", "defaultAction": "proxy"}}`), o)
	if want := (config.Upstream{All: "http://policy:3128"}); err != nil || c.Upstream != want || c.Default != config.Proxy {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestProxyVariablesAreReadAsOtherProgramsDo(t *testing.T) {
	for value, want := range map[string]string{
		"10.77.0.1:8080":               "http://10.77.0.1:8080",
		"proxy":                        "http://proxy",
		"http://u:p%40@proxy:3128/":    "http://u:p%40@proxy:3128",
		"HTTPS://proxy":                "HTTPS://proxy",
		"socks5h://[2001:db8::1]:1080": "socks5h://[2001:db8::1]:1080",
		" ":                            "",

		"ftp://u:hush@x":    "HTTP_PROXY",
		"http://":           "HTTP_PROXY",
		"http://u:hush@":    "HTTP_PROXY",
		"http://hush:0":     "HTTP_PROXY",
		"http://hush:99999": "HTTP_PROXY",
		"http://a%zz":       "HTTP_PROXY",
		"http://hush b":     "HTTP_PROXY",
		"http://p:1/hush":   "HTTP_PROXY",
		"socks4://hush:1":   "HTTP_PROXY",
		"u:hu/sh@p":         "HTTP_PROXY",
	} {
		o := options()
		o.Getenv = func(name string) string { return map[string]string{"HTTP_PROXY": value}[name] }
		c, err := FromPolicy(policy.Policy{}, o)
		switch {
		case want != "HTTP_PROXY":
			if err != nil || c.Upstream.HTTP != want {
				t.Errorf("%q: got %q, %v", value, c.Upstream.HTTP, err)
			}
		case value == "http://" && err != nil && !strings.Contains(err.Error(), "http://host:port"):
			t.Errorf("%q: got %v", value, err)
		case err == nil || !strings.Contains(err.Error(), "env -u HTTP_PROXY") || strings.Contains(err.Error(), "hush"):
			t.Errorf("%q: got %v", value, err)
		}
		// What the policy names holds, whatever else there is.
		if _, err := FromPolicy(parse(t, `{"network": {"upstreamProxy": "http://p:1"}}`), o); err != nil {
			t.Errorf("%q: got %v", value, err)
		}
	}
}

func TestInjectionSaysHowAndWhence(t *testing.T) {
	for _, c := range []struct {
		text string
		want config.Injection
	}{
		{`"bearer": true, "fromEnv": "T"`, config.Injection{As: config.InHeader, Name: "Authorization", Format: "Bearer {}", FromEnv: "T"}},
		{`"basic": "git", "fromFile": "~/.token"`, config.Injection{As: config.InBasic, Name: "git", FromFile: "/home/u/.token"}},
		{`"query": "key", "fromFile": "secret/t"`, config.Injection{As: config.InQuery, Name: "key", FromFile: "/work/secret/t"}},
		{`"header": "X-Api-Key", "fromFile": "/etc/x/../t"`, config.Injection{As: config.InHeader, Name: "X-Api-Key", Format: "{}", FromFile: "/etc/t"}},
		{`"header": "X", "format": "t {}", "fromCommand": ["pass", "x"]`, config.Injection{As: config.InHeader, Name: "X", Format: "t {}", FromCommand: []string{"pass", "x"}}},
	} {
		got := translate(t, `{"network": {"inject": [{"hosts": ["a.com", "@npm"], `+c.text+`}]}}`).Inject[0]
		c.want.Hosts = []string{"a.com", "npm.corp.example"}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.text, got, c.want)
		}
	}
}

func TestWhatCannotBeTranslatedIsNamed(t *testing.T) {
	for _, c := range []struct{ policy, want string }{
		{`{"network": {"allowedDomains": ["@go"]}}`, "network.allowedDomains @go: not configured"},
		{`{"network": {"defaultAction": "proxy"}}`, "needs network.upstreamProxy"},
	} {
		_, err := FromPolicy(parse(t, c.policy), options())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.policy, err, c.want)
		}
	}
	// A policy that comes from no file has not been read by anything.
	bad := policy.Policy{Network: policy.Network{Inject: []policy.Injection{{Hosts: []string{"*"}, FromEnv: "A", Basic: "u"}}}}
	if _, err := FromPolicy(bad, options()); err == nil || !strings.Contains(err.Error(), "network.inject[0]: \"*\" would") {
		t.Errorf("got %v", err)
	}
	o := options()
	o.AuthorityDir = ""
	if _, err := FromPolicy(parse(t, `{"network": {"rules": [{"host": "a.com", "action": "allow", "inspect": true}]}}`), o); err == nil {
		t.Error("TLS is opened without an authority")
	}
}
