package spec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

func compileNetwork(t *testing.T, n policy.Network) *Spec {
	t.Helper()
	p := basicPolicy()
	p.Network = n
	s, err := Compile(p, newSystem("/home/u/p/"), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNetworkIsAsSmallAsThePolicy(t *testing.T) {
	deny, allow := []policy.NetworkRule{{Host: "a.example", Action: "deny"}}, []policy.NetworkRule{{Host: "a.example", Action: "allow"}}
	for name, test := range map[string]struct {
		policy policy.Network
		want   Network
	}{
		"nothing":                  {policy.Network{}, NetworkNone},
		"only denials":             {policy.Network{DeniedDomains: []string{"x.example"}, Rules: deny}, NetworkNone},
		"a proxy for nothing":      {policy.Network{UpstreamProxy: new("http://p.example:3128")}, NetworkNone},
		"everything":               {policy.Network{AllowedDomains: []string{"*"}}, NetworkHost},
		"everything but one":       {policy.Network{AllowedDomains: []string{"*"}, DeniedDomains: []string{"x.example"}}, NetworkGate},
		"everything but loopback":  {policy.Network{AllowedDomains: []string{"*"}, AllowLocalOutbound: new(false)}, NetworkGate},
		"everything, with limits":  {policy.Network{AllowedDomains: []string{"*"}, Limits: &policy.NetworkLimits{}}, NetworkGate},
		"everything, with a rule":  {policy.Network{AllowedDomains: []string{"*"}, Rules: deny}, NetworkGate},
		"a host":                   {policy.Network{AllowedDomains: []string{"x.example"}}, NetworkGate},
		"a rule":                   {policy.Network{Rules: allow}, NetworkGate},
		"addresses":                {policy.Network{AllowedCIDRs: []string{"10.0.0.0/8"}}, NetworkGate},
		"loopback":                 {policy.Network{AllowLocalOutbound: new(true)}, NetworkGate},
		"a port of loopback":       {policy.Network{AllowLocalOutboundPorts: []string{"5432"}}, NetworkGate},
		"a port, but not loopback": {policy.Network{AllowLocalOutboundPorts: []string{"5432"}, AllowLocalOutbound: new(false)}, NetworkNone},
	} {
		s := compileNetwork(t, test.policy)
		if s.Network != test.want || (s.Gate != nil) != (test.want == NetworkGate) {
			t.Errorf("%s: got %s, gate %v, want %s", name, s.Network, s.Gate != nil, test.want)
		}
		hasProxy := slices.ContainsFunc(s.Env, func(v string) bool { return strings.HasPrefix(v, "HTTP_PROXY=http://127.0.0.1:940") })
		if hasProxy != (test.want == NetworkGate) {
			t.Errorf("%s: environment %q", name, s.Env)
		}
	}
}

func TestHostsLoopbackStandsAtGrantedPorts(t *testing.T) {
	s := compileNetwork(t, policy.Network{AllowLocalOutboundPorts: []string{"5432", "8000-8100"}})
	want := []config.Ports{{From: 5432, To: 5432}, {From: 8000, To: 8100}}
	if !reflect.DeepEqual(s.Gate.Local, want) {
		t.Errorf("got %v, want %v", s.Gate.Local, want)
	}
	var hosts []string
	for _, r := range s.Gate.Config.Rules {
		if r.Action == config.Allow && reflect.DeepEqual(r.Ports, want) {
			hosts = append(hosts, r.Host)
		}
	}
	if !slices.Equal(hosts, []string{"127.0.0.1", "::1"}) {
		t.Errorf("the gate is told of %q", hosts)
	}
	for _, p := range compileNetwork(t, policy.Network{AllowLocalOutbound: new(true)}).Gate.Local {
		for _, own := range []uint16{GateProxyPort, GateTCPPort, GateDNSPort} {
			if p.From <= own && own <= p.To {
				t.Errorf("the gate's own port %d is given away in %v", own, p)
			}
		}
	}
}

func TestCaptureCanBeSwitchedOffAndInsistedOn(t *testing.T) {
	for _, test := range []struct {
		transparent   *bool
		capture, must bool
	}{{nil, true, false}, {new(true), true, true}, {new(false), false, false}} {
		g := compileNetwork(t, policy.Network{AllowedDomains: []string{"x.example"}, Transparent: test.transparent}).Gate
		if g.Transparent != test.capture || g.Must != test.must {
			t.Errorf("transparent %v: got %v, %v", test.transparent, g.Transparent, g.Must)
		}
	}
}

func TestProjectsFilesNameNoHosts(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.npmrc=registry=https://evil.example/\n@x:registry=https://evil.example/\n",
		"/home/u/.npmrc=registry=https://mirror.example/\n")...)
	p := basicPolicy()
	p.Network.AllowedDomains = []string{"@npm"}
	s, err := Compile(p, f, Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, r := range s.Gate.Config.Rules {
		hosts = append(hosts, r.Host)
	}
	if !slices.Equal(hosts, []string{"mirror.example"}) {
		t.Errorf("the gate is told of %q", hosts)
	}
}

func TestUnknownGroupsGrantNothingAndCannotBeDenied(t *testing.T) {
	s := compileNetwork(t, policy.Network{AllowedDomains: []string{"@cargo", "a.example"}})
	if len(s.Gate.Config.Rules) != 1 || len(s.Gate.Unknown) != 1 || !strings.HasPrefix(s.Gate.Unknown[0], "@cargo: ") {
		t.Errorf("rules %v, unknown %q", s.Gate.Config.Rules, s.Gate.Unknown)
	}
	p := basicPolicy()
	p.Network = policy.Network{AllowedDomains: []string{"*"}, DeniedDomains: []string{"@cargo"}}
	if _, err := Compile(p, newSystem("/home/u/p/"), Command{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "network.deniedDomains") {
		t.Errorf("got %v", err)
	}
}
