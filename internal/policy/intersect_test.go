package policy

import (
	"math/rand/v2"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// The functions below decide single questions by the documented meaning of a
// policy, apart from the code that combines policies.

const (
	refused = iota
	asked
	allowed
)

func action(s string) int {
	return map[string]int{"deny": refused, "ask": asked, "proxy": asked, "allow": allowed}[s]
}

func matchesHost(patterns []string, host string) bool {
	for _, p := range patterns {
		p = strings.ToLower(p)
		if p == "*" || p == host || strings.HasPrefix(p, "*.") && strings.HasSuffix(host, p[1:]) && host[0] != '@' && !isAddress(host) {
			return true
		}
	}
	return false
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func hostDecision(n Network, host, port string) int {
	if matchesHost(n.DeniedDomains, host) {
		return refused
	}
	for _, r := range n.Rules {
		if matchesHost([]string{r.Host}, host) && (len(r.Ports) == 0 || matchesPort(r.Ports, port)) {
			return action(r.Action)
		}
	}
	if matchesHost(n.AllowedDomains, host) {
		return allowed
	}
	if n.DefaultAction != nil {
		return action(*n.DefaultAction)
	}
	return refused
}

func matchesPort(list []string, port string) bool {
	want, _ := parsePorts(port)
	for _, p := range list {
		if r, err := parsePorts(p); err == nil && r.from <= want.from && want.to <= r.to {
			return true
		}
	}
	return false
}

func matchesAddress(list []string, address string) bool {
	for _, c := range list {
		if p, err := parseCIDR(c); err == nil && p.Contains(netip.MustParseAddr(address)) {
			return true
		}
	}
	return false
}

func matchesPath(list []string, file string) bool {
	for _, p := range list {
		if p == file || strings.HasPrefix(file, strings.TrimSuffix(path.Clean(p), "/")+"/") {
			return true
		}
	}
	return false
}

func matchesWords(list []string, command string) bool {
	for _, p := range list {
		if command == p || strings.HasPrefix(command, p+" ") {
			return true
		}
	}
	return false
}

// envDecision is 2 for a name that enters even if it looks like a secret, 1 for
// one that enters otherwise.
func envDecision(e Env, name string) int {
	match := func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return p == name || wild && strings.HasPrefix(name, prefix)
	}
	switch {
	case slices.ContainsFunc(e.Deny, match):
		return 0
	case slices.Contains(e.Allow, name):
		return 2
	case slices.ContainsFunc(e.Allow, match):
		return 1
	}
	return 0
}

// rulesDecision is the least that any of the lists permits.
func rulesDecision(p Policy, file string) int {
	least := 4
	for _, rules := range append([][]WorkspaceRule{p.Workspace.Rules}, p.RuleBounds...) {
		least = min(least, workspaceDecision(Workspace{Rules: rules}, file))
	}
	return least
}

func workspaceDecision(w Workspace, file string) int {
	permission, best := 4, -1
	for _, r := range w.Rules {
		priority := 0
		if r.Priority != nil {
			priority = *r.Priority
		}
		if matchesPath([]string{r.Pattern}, file) && priority >= best {
			permission, best = slices.Index([]string{"none", "view", "read", "write"}, r.Permission), priority
		}
	}
	return permission
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func is(s *string, value, otherwise string) bool {
	if s == nil {
		return value == otherwise
	}
	return *s == value
}

func limit[T int | Size | Duration | float64](p *T) int {
	if p == nil {
		return 1 << 30
	}
	return int(*p)
}

// decisions answers every question of a small world; a larger number grants
// more.
func decisions(p Policy) map[string]int {
	d := map[string]int{}
	n := p.Network
	for _, host := range hosts {
		for _, port := range []string{"80", "443", "8050"} {
			d["host "+host+" "+port] = hostDecision(n, host, port)
		}
		d["ssh "+host] = truth(matchesHost(p.SSH.AllowedHosts, host) && !matchesHost(p.SSH.DeniedHosts, host))
	}
	for _, port := range []string{"80", "443", "8050"} {
		d["local "+port] = truth(said(n.AllowLocalOutbound, false) || matchesPort(n.AllowLocalOutboundPorts, port))
	}
	for _, address := range []string{"10.0.0.1", "10.1.0.1", "192.0.2.1", "::1"} {
		d["address "+address] = truth(matchesAddress(n.AllowedCIDRs, address))
	}
	for _, file := range []string{"/run/a.sock", "/run/x/b.sock", "sub/c.sock", "/dev/kvm", "/dev/dri/card0"} {
		d["socket "+file] = truth(said(n.AllowAllUnixSockets, false) || matchesPath(n.AllowUnixSockets, file))
		d["device "+file] = truth(is(p.Devices.Mode, "host", "auto") || matchesPath(p.Devices.Allow, file))
		d["workspace "+file] = rulesDecision(p, file)
	}
	for _, c := range commands {
		d["exception "+c] = truth(matchesWords(p.Command.Allow, c))
		d["undenied "+c] = truth(!matchesWords(p.Command.Deny, c))
		d["remote "+c] = truth((said(p.SSH.AllowAllCommands, false) || matchesWords(p.SSH.AllowedCommands, c)) &&
			!matchesWords(p.SSH.DeniedCommands, c))
	}
	for _, name := range []string{"A", "AB", "ABC", "B", "BC"} {
		d["env "+name] = envDecision(p.Env, name)
	}
	switches(p, d)
	return d
}

func switches(p Policy, d map[string]int) {
	n, r := p.Network, p.Resources
	d["listen"] = truth(said(n.AllowLocalBinding, false))
	for _, port := range []string{"80", "8080:80", "[::1]:80", "0:80"} {
		d["exposed "+port] = truth(slices.ContainsFunc(n.ExposePorts, func(e string) bool { _, same := sameExposure(e, port); return same }))
	}
	d["loopback"] = truth(is(n.Egress, "loopback", "loopback"))
	d["transparent"] = truth(said(n.Transparent, true))
	d["pty"] = truth(said(p.AllowPty, true))
	d["trustd"] = truth(said(p.MacOS.AllowTrustd, false))
	d["weaker"] = truth(said(p.MacOS.EnableWeakerSandbox, false))
	d["apple events"] = truth(said(p.MacOS.AllowAppleEvents, false))
	d["mach lookup"] = truth(slices.ContainsFunc(p.MacOS.Mach.Lookup, func(s string) bool { return coversStar(s, "com.a.b") }))
	d["mach register"] = truth(slices.ContainsFunc(p.MacOS.Mach.Register, func(s string) bool { return coversStar(s, "com.a.b") }))
	d["dangerous commands"] = truth(!said(p.Command.UseDefaults, true))
	d["remote deny"] = truth(!said(p.SSH.InheritDeny, false))
	d["exec off"] = truth(is(p.Command.RuntimeExecPolicy, "off", "path"))
	d["exec not argv"] = truth(!is(p.Command.RuntimeExecPolicy, "argv", "path"))
	d["direct"] = truth(is(p.Workspace.Mode, "direct", "direct"))
	for _, layer := range []string{"userns", "landlock", "seccomp"} {
		d["without "+layer] = truth(!slices.Contains(p.Require, layer))
	}
	d["memory"], d["cpu"], d["pids"] = limit(r.Memory), limit(r.CPU), limit(r.Pids)
	d["disk"], d["files"], d["timeout"] = limit(r.Disk), limit(r.OpenFiles), limit(r.Timeout)
	l := n.Limits
	if l == nil {
		l = &NetworkLimits{}
	}
	d["connections"], d["header"], d["bandwidth"] = limit(l.Connections), limit(l.HeaderBytes), limit(l.Bandwidth)
	d["idle"], d["total"] = limit(l.Idle), limit(l.Total)
}

var (
	hosts    = []string{"a.com", "x.a.com", "y.x.a.com", "ba.com", "b.org", "192.0.2.1", "@npm"}
	commands = []string{"git", "git push", "git push origin", "rm", "gitk"}
)

// vocabulary gives random policies entries that meet often.
var vocabulary = map[string][]string{
	"domain":      {"*", "a.com", "A.com", "*.a.com", "x.a.com", "*.x.a.com", "*.com", "b.org", "192.0.2.1", "@npm", "@pip"},
	"host":        {"*", "a.com", "*.a.com", "x.a.com", "b.org"},
	"port":        {"*", "80", "443", "80-443", "8000-8100", "8050"},
	"exposure":    {"80", "127.0.0.1:80:80", "8080:80", "[::1]:80", "0:80"},
	"cidr":        {"10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "192.0.2.1", "::/0"},
	"path":        {"/run", "/run/a.sock", "/run/x", "sub", "/", "/dev/dri", "/run/**"},
	"rule":        {"sub", "sub/a", "**", "*", "a/**"},
	"device":      {"/dev/kvm", "/dev/dri", "/dev/dri/card0"},
	"names":       {"*", "A", "A*", "AB", "AB*", "B*", "BC"},
	"name":        {"A", "B"},
	"proxy":       {"http://proxy:1"},
	"method":      {"GET", "POST"},
	"urlPath":     {"/**", "/a/*", "/a/b"},
	"placeholder": {"TOKEN"},
	"command":     commands,
	"image":       {"debian:12", "./image.tar"},
	"":            {"git", "git push", "git push origin", "rm", "com.a.*", "com.a.b", "com.*"},
}

func randomPolicy(r *rand.Rand) Policy {
	var p Policy
	randomValue(r, reflect.ValueOf(&p).Elem(), "")
	p.Extends, p.Schema = nil, ""
	return Merge(Policy{}, p)
}

func randomValue(r *rand.Rand, v reflect.Value, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			key, optional := jsonKey(f)
			if key != "" && (!optional || r.IntN(5) < 3) {
				randomValue(r, v.Field(i), f.Tag)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		randomValue(r, v.Elem(), tag)
	case reflect.Slice:
		for range r.IntN(4) {
			e := reflect.New(v.Type().Elem()).Elem()
			randomValue(r, e, tag)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"A": "1"}))
	case reflect.String:
		words := vocabulary[tag.Get("check")]
		if enum := tag.Get("enum"); enum != "" {
			words = strings.Split(enum, ",")
		}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(1 + r.IntN(5)))
	case reflect.Float64:
		v.SetFloat(float64(1 + r.IntN(5)))
	}
}

func TestIntersectionGrantsOnlyWhatBothGrant(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range testenv.Count(3000, 300000) {
		a, b := randomPolicy(r), randomPolicy(r)
		both := Intersect(a, b)
		da, db, got := decisions(a), decisions(b), decisions(both)
		for question, answer := range got {
			if answer > da[question] || answer > db[question] {
				t.Fatalf("%s: got %d, sides say %d and %d\na    %s\nb    %s\nboth %s", question, answer,
					da[question], db[question], Marshal(a, ""), Marshal(b, ""), Marshal(both, ""))
			}
		}
	}
}

func TestIntersectionWithItselfDecidesTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range testenv.Count(1000, 100000) {
		p := randomPolicy(r)
		both := Intersect(p, p)
		want, got := decisions(p), decisions(both)
		for question := range want {
			if got[question] != want[question] {
				t.Fatalf("%s: got %d, want %d\np    %s\nboth %s", question, got[question], want[question], Marshal(p, ""), Marshal(both, ""))
			}
		}
		if len(both.Bounds) != 0 {
			t.Fatalf("bounded by its own file system: %v", both.Bounds)
		}
	}
}

// Where nothing stands in the way, what both grant is granted: without this a
// result that refuses everything would pass the test above.
func TestIntersectionKeepsWhatBothGrant(t *testing.T) {
	a := parse(t, `{
		"network": {"allowedDomains": ["*.a.com", "b.org", "@npm"], "allowLocalOutbound": true, "allowedCIDRs": ["10.0.0.0/8"], "allowAllUnixSockets": true,
			"rules": [{"host": "*.c.com", "ports": ["443"], "action": "allow"}, {"host": "bad.a.com", "action": "deny"}]},
		"env": {"allow": ["A", "B*"]}, "devices": {"mode": "host"}, "resources": {"pids": 5},
		"ssh": {"allowAllCommands": true, "allowedHosts": ["*"]}
	}`)
	b := parse(t, `{
		"network": {"allowedDomains": ["x.a.com", "*", "d.c.com"], "allowLocalOutboundPorts": ["80"], "allowedCIDRs": ["10.1.0.0/16"], "allowUnixSockets": ["/run/x"]},
		"env": {"allow": ["A", "BC*", "B"]}, "devices": {"allow": ["/dev/kvm"]}, "resources": {"pids": 9, "timeout": "1m"},
		"ssh": {"allowedCommands": ["git"], "allowedHosts": ["a.com"]},
		"filesystem": {"allowRead": ["/usr"]}
	}`)
	got := Intersect(a, b)
	want := `{"network":{"allowedDomains":["x.a.com","*.a.com","b.org","@npm"],"allowLocalOutbound":false,` +
		`"allowLocalOutboundPorts":["80"],"allowUnixSockets":["/run/x"],"allowAllUnixSockets":false,` +
		`"rules":[{"host":"bad.a.com","action":"deny"},{"host":"*.c.com","ports":["443"],"action":"allow"},{"host":"d.c.com","ports":["443"],"action":"allow"}],` +
		`"allowedCIDRs":["10.1.0.0/16"]},"ssh":{"allowedHosts":["a.com"],"allowedCommands":["git"],"allowAllCommands":false},` +
		`"devices":{"mode":"auto","allow":["/dev/kvm"]},"env":{"allow":["A","BC*"]},"resources":{"pids":5,"timeout":"1m"}}`
	if text := strings.TrimSpace(string(Marshal(got, ""))); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if want := []Filesystem{b.Filesystem}; !reflect.DeepEqual(got.Bounds, want) {
		t.Errorf("bounds: got %v, want %v", got.Bounds, want)
	}
}

func TestExactVariableDoesNotOutrankThePattern(t *testing.T) {
	a, b := parse(t, `{"env": {"allow": ["AWS_*"]}}`), parse(t, `{"env": {"allow": ["AWS_SECRET_ACCESS_KEY"]}}`)
	for _, got := range []Policy{Intersect(a, b), Intersect(b, a)} {
		if len(got.Env.Allow) != 0 {
			t.Errorf("got %v: an exact name lets a secret in, and only one side named it", got.Env.Allow)
		}
	}
}

func TestBoundsAccumulate(t *testing.T) {
	fs := func(read string) Policy { return Policy{Filesystem: Filesystem{AllowRead: []string{read}}} }
	got := Intersect(Intersect(fs("/a"), fs("/b")), Intersect(fs("/c"), fs("/b")))
	want := []Filesystem{fs("/b").Filesystem, fs("/c").Filesystem}
	if !reflect.DeepEqual(got.Filesystem, fs("/a").Filesystem) || !reflect.DeepEqual(got.Bounds, want) {
		t.Errorf("got %v within %v, want /a within %v", got.Filesystem, got.Bounds, want)
	}
}

// leaves calls f for each key of the schema that is not itself a section, with
// a policy in which only that key is set.
func leaves(r *rand.Rand, f func(key string, p Policy)) {
	var walk func(t reflect.Type, index []int, at string)
	walk = func(t reflect.Type, index []int, at string) {
		for i := range t.NumField() {
			key, _ := jsonKey(t.Field(i))
			here := append(slices.Clone(index), i)
			switch {
			case key == "":
			case t.Field(i).Type.Kind() == reflect.Struct:
				walk(t.Field(i).Type, here, join(at, key))
			default:
				var p Policy
				v := reflect.ValueOf(&p).Elem().FieldByIndex(here)
				for v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
					randomValue(r, v, t.Field(i).Tag)
				}
				f(join(at, key), p)
			}
		}
	}
	walk(reflect.TypeFor[Policy](), nil, "")
}

// A key that is new and that Intersect does not know of would be taken from the
// first side unseen. It has to be decided about here.
func TestOnlyTheseKeysAreTakenFromOneSide(t *testing.T) {
	var got []string
	leaves(rand.New(rand.NewPCG(9, 10)), func(key string, p Policy) {
		printed := string(Marshal(Merge(Policy{}, p), ""))
		kept := string(Marshal(Intersect(p, Policy{}), "")) == printed
		dropped := string(Marshal(Intersect(Policy{}, p), "")) != printed
		if kept && dropped {
			got = append(got, key)
		}
	})
	want := []string{
		"$schema",
		// Bounds carry the other side's.
		"filesystem.allowRead", "filesystem.denyRead", "filesystem.allowWrite", "filesystem.denyWrite",
		"filesystem.privateWrite", "filesystem.allowExecute", "filesystem.defaultDenyRead",
		"filesystem.strictDenyRead", "filesystem.protectMissing", "filesystem.allowGitConfig",
		// Neither grants nor restrictions; refused in a file that is not trusted.
		"network.httpProxyPort", "network.socksProxyPort", "network.upstreamProxy", "network.inject",
		"command.acceptSharedBinaryCannotRuntimeDeny",
		"env.set",
		// RuleBounds carry the other side's.
		"workspace.rules",
		"runtime", "image",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
