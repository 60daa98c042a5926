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
	facts := newSystem("/home/u/p/")
	facts.host.Authority = &Authority{Dir: "/home/u/ca", Bundle: "/home/u/ca/bundle", Store: "/home/u/ca/store"}
	s, err := Compile(p, facts, Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNetworkIsAsSmallAsThePolicy(t *testing.T) {
	inject := []policy.Injection{{Hosts: []string{"a.example"}, Bearer: new(true), FromEnv: "TOKEN"}}
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
		"everything, but a port":   {policy.Network{AllowedDomains: []string{"*"}, AllowLocalOutboundPorts: []string{"81"}}, NetworkGate},
		"everything, all ports":    {policy.Network{AllowedDomains: []string{"*"}, AllowLocalOutboundPorts: []string{"*"}}, NetworkHost},
		"everything, a credential": {policy.Network{AllowedDomains: []string{"*"}, Inject: inject}, NetworkGate},
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
	var told []config.Rule
	for i, port := range []string{"5432", "8000-8100"} {
		for _, host := range []string{"127.0.0.1", "::1"} {
			told = append(told, config.Rule{Host: host, Ports: want[i : i+1], Action: config.Allow, Name: "network.allowLocalOutboundPorts " + port})
		}
	}
	if !reflect.DeepEqual(s.Gate.Config.Rules, told) {
		t.Errorf("the gate is told of %+v", s.Gate.Config.Rules)
	}
	for _, p := range compileNetwork(t, policy.Network{AllowLocalOutbound: new(true)}).Gate.Local {
		for _, own := range []uint16{GateProxyPort, GateTCPPort, GateDNSPort, GateInsidePort} {
			if p.From <= own && own <= p.To {
				t.Errorf("the gate's own port %d is given away in %v", own, p)
			}
		}
	}
}

func TestLoopbackIsGrantedByName(t *testing.T) {
	web := []config.Ports{{From: 80, To: 80}, {From: 443, To: 443}}
	rule := func(host, action string) []policy.NetworkRule {
		return []policy.NetworkRule{{Host: host, Ports: []string{"8080"}, Action: action}}
	}
	port := []config.Ports{{From: 8080, To: 8080}}
	for name, test := range map[string]struct {
		policy     policy.Network
		ipv4, ipv6 []config.Ports
	}{
		"its name":           {policy.Network{AllowedDomains: []string{"localhost"}}, web, web},
		"in capitals":        {policy.Network{AllowedDomains: []string{"LOCALHOST"}}, web, web},
		"an address":         {policy.Network{AllowedDomains: []string{"127.0.0.1"}}, web, nil},
		"in IPv6":            {policy.Network{AllowedDomains: []string{"::1"}}, nil, web},
		"a rule":             {policy.Network{Rules: rule("127.0.0.1", "allow")}, port, nil},
		"a rule that asks":   {policy.Network{Rules: rule("localhost", "ask")}, port, port},
		"a rule that denies": {policy.Network{AllowedDomains: []string{"a.b"}, Rules: rule("localhost", "deny")}, nil, nil},
		"another host":       {policy.Network{AllowedDomains: []string{"a.b", "10.0.0.1"}}, nil, nil},
		"not to be reached":  {policy.Network{AllowedDomains: []string{"localhost"}, AllowLocalOutbound: new(false)}, nil, nil},
		"only by a socket":   {policy.Network{AllowedDomains: []string{"localhost"}, Egress: new("socket")}, nil, nil},
		"an exposed port":    {policy.Network{Rules: rule("localhost", "allow"), ExposePorts: []string{"8080"}}, nil, nil},
	} {
		g := compileNetwork(t, test.policy).Gate
		if !reflect.DeepEqual(g.Local, test.ipv4) || !reflect.DeepEqual(g.LocalIPv6, test.ipv6) {
			t.Errorf("%s: got %v and %v", name, g.Local, g.LocalIPv6)
		}
	}
}

func TestPortsOfTheGateAndOfTheSandboxAreNotTheHosts(t *testing.T) {
	for list, want := range map[string][]config.Ports{
		"900-1000":  {{From: 900, To: 939}, {From: 944, To: 1000}},
		"940-1000":  {{From: 944, To: 1000}},
		"900-942":   {{From: 900, To: 939}},
		"941 5432":  {{From: 5432, To: 5432}},
		"1-65535":   {{From: 1, To: 939}, {From: 944, To: 2999}, {From: 3001, To: 65534}},
		"*":         {{From: 1, To: 939}, {From: 944, To: 2999}, {From: 3001, To: 65534}},
		"3000-3001": {{From: 3001, To: 3001}},
	} {
		s := compileNetwork(t, policy.Network{AllowLocalOutboundPorts: strings.Fields(list), ExposePorts: []string{"3000", "0:65535"}})
		if !reflect.DeepEqual(s.Gate.Local, want) {
			t.Errorf("%s: got %v, want %v", list, s.Gate.Local, want)
		}
	}
}

func TestExposedPortsNeedANetworkOfTheSandboxsOwn(t *testing.T) {
	expose := []string{"3000", "127.0.0.1:3000:3000", "[::1]:0:80"}
	want := []Exposure{{"127.0.0.1", 3000, 3000}, {"::1", 0, 80}}
	for name, test := range map[string]struct {
		policy policy.Network
		want   Network
	}{
		"closed": {policy.Network{ExposePorts: expose}, NetworkNone},
		"a host": {policy.Network{ExposePorts: expose, AllowedDomains: []string{"a.example"}}, NetworkGate},
		"open":   {policy.Network{ExposePorts: expose, AllowedDomains: []string{"*"}}, NetworkGate},
	} {
		s := compileNetwork(t, test.policy)
		if s.Network != test.want || !s.NeedsGate() || !reflect.DeepEqual(s.Expose, want) {
			t.Errorf("%s: got %s, %v", name, s.Network, s.Expose)
		}
		if c := s.GateConfig(); test.want == NetworkNone && (c.Default != config.Deny || len(c.Rules) > 0) {
			t.Errorf("%s: something leads out: %+v", name, c)
		}
	}
}

func TestWhoInsistsOnCaptureHasAGate(t *testing.T) {
	for name, test := range map[string]struct {
		policy policy.Network
		want   Network
	}{
		"nothing said":     {policy.Network{}, NetworkNone},
		"closed":           {policy.Network{Transparent: new(true)}, NetworkGate},
		"closed, without":  {policy.Network{Transparent: new(false)}, NetworkNone},
		"open":             {policy.Network{Transparent: new(true), AllowedDomains: []string{"*"}}, NetworkGate},
		"only a denial":    {policy.Network{Transparent: new(true), DeniedDomains: []string{"a.b"}}, NetworkGate},
		"a rule that asks": {policy.Network{Rules: []policy.NetworkRule{{Host: "a.b", Action: "ask"}}}, NetworkGate},
	} {
		s := compileNetwork(t, test.policy)
		if s.Network != test.want {
			t.Errorf("%s: got %s", name, s.Network)
		}
		if isTrue(test.policy.Transparent) && s.Gate != nil && (s.Gate.Config.Default != config.Deny || !s.Gate.Must) {
			t.Errorf("%s: got %+v", name, s.Gate)
		}
	}
}

func TestGrantsThatADenialLeavesNothingOfAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		policy policy.Network
		warns  bool
	}{
		"all":            {policy.Network{AllowedDomains: []string{"*"}, DeniedDomains: []string{"*"}}, true},
		"a host":         {policy.Network{AllowedDomains: []string{"a.b"}, DeniedDomains: []string{"*"}}, true},
		"nothing":        {policy.Network{DeniedDomains: []string{"*"}}, false},
		"another denial": {policy.Network{AllowedDomains: []string{"*"}, DeniedDomains: []string{"a.b"}}, false},
	} {
		s := compileNetwork(t, test.policy)
		if warns := slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "no host can be reached") }); warns != test.warns {
			t.Errorf("%s: warnings %q", name, s.Warnings)
		}
	}
}

func TestListeningOnTheHostNeedsItsNetwork(t *testing.T) {
	for name, test := range map[string]struct {
		policy policy.Network
		want   Network
		warns  bool
	}{
		"open, not said":  {policy.Network{AllowedDomains: []string{"*"}}, NetworkHost, false},
		"open, allowed":   {policy.Network{AllowedDomains: []string{"*"}, AllowLocalBinding: new(true)}, NetworkHost, false},
		"open, denied":    {policy.Network{AllowedDomains: []string{"*"}, AllowLocalBinding: new(false)}, NetworkGate, false},
		"closed, allowed": {policy.Network{AllowLocalBinding: new(true)}, NetworkNone, true},
		"closed, exposed": {policy.Network{AllowLocalBinding: new(true), ExposePorts: []string{"80"}}, NetworkNone, false},
		"closed, denied":  {policy.Network{AllowLocalBinding: new(false)}, NetworkNone, false},
		"a host, allowed": {policy.Network{AllowedDomains: []string{"a.b"}, AllowLocalBinding: new(true)}, NetworkGate, true},
	} {
		s := compileNetwork(t, test.policy)
		warns := slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "allowLocalBinding") })
		if s.Network != test.want || warns != test.warns {
			t.Errorf("%s: got %s, warnings %q", name, s.Network, s.Warnings)
		}
	}
}

// On the host's network the host's proxy may be the only way out.
func TestProxyOfTheHostIsPassedOnWithoutItsPassword(t *testing.T) {
	host := []string{
		"http_proxy=http://proxy.example:3128", "HTTPS_PROXY=http://me:s3cr3t@proxy.example:3128/", "ALL_PROXY=me:p@ss@proxy.example:1080",
		"no_proxy=localhost,.example", "NO_PROXY=other",
	}
	for name, test := range map[string]struct {
		policy policy.Policy
		want   []string
		warns  bool
	}{
		"the host's network": {
			policy.Policy{Network: policy.Network{AllowedDomains: []string{"*"}}, Env: policy.Env{Deny: []string{"NO_PROXY"}}},
			[]string{"ALL_PROXY=proxy.example:1080", "HTTPS_PROXY=http://proxy.example:3128/", "http_proxy=http://proxy.example:3128", "no_proxy=localhost,.example"},
			true,
		},
		"who wants it as it is": {
			policy.Policy{Network: policy.Network{AllowedDomains: []string{"*"}}, Env: policy.Env{Allow: []string{"HTTPS_PROXY"}, Deny: []string{"ALL_PROXY", "no_proxy", "NO_PROXY", "http_proxy"}}},
			[]string{"HTTPS_PROXY=http://me:s3cr3t@proxy.example:3128/"},
			false,
		},
		"a closed network": {policy.Policy{}, nil, false},
	} {
		p, facts := basicPolicy(), newSystem("/home/u/p/")
		p.Network, p.Env = test.policy.Network, test.policy.Env
		facts.host.Environ = append(facts.host.Environ, host...)
		s, err := Compile(p, facts, Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range s.Env {
			if variable, _, _ := strings.Cut(strings.ToLower(v), "="); strings.HasSuffix(variable, "_proxy") {
				got = append(got, v)
			}
		}
		warns := slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "user and a password") })
		if !slices.Equal(got, test.want) || warns != test.warns {
			t.Errorf("%s: got %q, warnings %q", name, got, s.Warnings)
		}
	}
	// The gate has the password, and tells nobody inside.
	p, facts := basicPolicy(), newSystem("/home/u/p/")
	p.Network = policy.Network{AllowedDomains: []string{"*"}, Transparent: new(true)}
	facts.host.Environ = append(facts.host.Environ, host[1])
	s, err := Compile(p, facts, Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Gate.Config.Upstream.HTTPS != "http://me:s3cr3t@proxy.example:3128" || strings.Contains(strings.Join(s.Env, " "), "s3cr3t") {
		t.Errorf("got %+v, environment %q", s.Gate.Config.Upstream, s.Env)
	}
}

func TestOwnProxiesAreTheWayOut(t *testing.T) {
	const web, socks = "http://127.0.0.1:3128", "socks5://127.0.0.1:1080"
	for name, test := range map[string]struct {
		policy policy.Network
		want   config.Upstream
		rest   config.Action
	}{
		"http":      {policy.Network{HTTPProxyPort: new(3128)}, config.Upstream{HTTP: web, HTTPS: web, All: web}, config.Proxy},
		"socks":     {policy.Network{SOCKSProxyPort: new(1080)}, config.Upstream{All: socks}, config.Proxy},
		"both":      {policy.Network{HTTPProxyPort: new(3128), SOCKSProxyPort: new(1080)}, config.Upstream{HTTP: web, HTTPS: web, All: socks}, config.Proxy},
		"hosts":     {policy.Network{HTTPProxyPort: new(3128), AllowedDomains: []string{"a.b"}}, config.Upstream{HTTP: web, HTTPS: web, All: web}, config.Deny},
		"denied":    {policy.Network{SOCKSProxyPort: new(1080), DeniedDomains: []string{"a.b"}}, config.Upstream{All: socks}, config.Proxy},
		"no others": {policy.Network{SOCKSProxyPort: new(1080), DefaultAction: new("deny")}, config.Upstream{All: socks}, config.Deny},
	} {
		s := compileNetwork(t, test.policy)
		if s.Network != NetworkGate || s.Gate.Config.Upstream != test.want || s.Gate.Config.Default != test.rest {
			t.Errorf("%s: got %s, %+v", name, s.Network, s.Gate)
		}
	}
}

func TestEgressBySocketIsTheOnlyWay(t *testing.T) {
	s := compileNetwork(t, policy.Network{AllowedDomains: []string{"a.example"}, Egress: new("socket")})
	if s.Network != NetworkGate || s.Gate.Socket != "/.bailey/gate.sock" || s.Gate.Transparent {
		t.Errorf("got %s, %+v", s.Network, s.Gate)
	}
	if !slices.Contains(s.Env, "BAILEY_GATE_SOCKET=/.bailey/gate.sock") || slices.ContainsFunc(s.Env, func(v string) bool { return strings.Contains(v, "_PROXY=") }) {
		t.Errorf("environment %q", s.Env)
	}
	if !slices.Contains(s.Broker.Sockets.Allowed, "/.bailey/gate.sock") {
		t.Errorf("sockets %+v", s.Broker.Sockets)
	}
	if s := compileNetwork(t, policy.Network{AllowedDomains: []string{"*"}, Egress: new("socket")}); s.Network != NetworkGate {
		t.Errorf("open: got %s", s.Network)
	}
	if s := compileNetwork(t, policy.Network{Egress: new("socket")}); s.Network != NetworkNone {
		t.Errorf("closed: got %s", s.Network)
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

func TestProxyOptionsAreAddedToAnEnvironment(t *testing.T) {
	got := WithProxyOptions([]string{"A=b=c", "JAVA_TOOL_OPTIONS=-Xmx1g", "HTTP_PROXY=http://127.0.0.1:940"})
	want := []string{
		"A=b=c", "CLOUDSDK_PROXY_ADDRESS=127.0.0.1", "CLOUDSDK_PROXY_PORT=940", "CLOUDSDK_PROXY_TYPE=http", "HTTP_PROXY=http://127.0.0.1:940",
		"JAVA_TOOL_OPTIONS=-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=940 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=940 -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
