package seatbelt

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func judgeOf(t testing.TB, text string, more ...string) *judge {
	t.Helper()
	p, err := New(mustCompile(t, newMachine(more...), text), Options{Scratch: scratch})
	if err != nil {
		t.Fatal(err)
	}
	return newJudge(t, p)
}

func TestProfilesAllowWhatIsGrantedAndNoMore(t *testing.T) {
	const read, write, remove, create, exec, connect = "file-read-data", "file-write-data", "file-write-unlink", "file-write-create", "process-exec", "network-outbound"
	for _, test := range []struct {
		policy, operation, path string
		want                    bool
	}{
		{"base", read, project + "/file", true},
		{"base", write, project + "/file", true},
		{"base", exec, project + "/file", true},
		{"base", read, "/bin/sh", true},
		{"base", exec, "/bin/sh", true},
		{"base", write, "/bin/sh", false},
		{"base", read, "/usr/lib/dyld", true},
		{"base", read, outside + "/file", false},
		{"base", exec, outside + "/file", false},
		{"granted", read, outside + "/file", true},
		{"granted", write, outside + "/file", false},
		{"base", read, "/System/Volumes/Data/Users/u/.ssh/id_ed25519", false},
		{"base", read, home + "/.ssh/id_ed25519", false},
		{"base", "file-read-metadata", home + "/.ssh", false},
		{"base", "file-read-metadata", home, true},
		{"base", read, home, false},
		{"base", create, home + "/own", false},
		{"base", create, scratch + "/home/own", true},
		{"base", remove, scratch, false},
		{"base", read, "/private/tmp/x", false},
		{"base", read, "/private/etc/passwd", true},
		{"base", read, "/private/etc/sudoers", false},
		{"base", "file-link", project + "/file", false},
		{"base", "file-clone", project + "/file", false},
		{"base", "file-write-setugid", project + "/file", false},
		{"base", write, project + "/.git/hooks/pre-commit", false},
		{"base", create, project + "/.git/hooks/post-commit", false},
		{"base", remove, project + "/.git/hooks", false},
		{"base", remove, project + "/.git", false},
		{"base", remove, project, false},
		{"base", create, project + "/.git/objects/x", true},
		{"base", remove, project + "/sub", true},
		{"base", create, project + "/.envrc", true},
		{"missing", create, project + "/.envrc", false},
		{"missing", create, project + "/.ENVRC", false},
		{"missing", create, project + "/.vscode", false},
		{"missing", create, project + "/.v\u017fcode/tasks.json", false},
		{"missing", create, project + "/.config", false},
		{"missing", create, project + "/sub/.envrc", true},
		{"missing", create, project + "/.envrcs", true},
		{"default", create, project + "/bailey.jsonc", false},
		{"default", create, project + "/other", true},
		{"deny-read", read, project + "/sub/kept", false},
		{"deny-read", remove, project + "/sub/kept", false},
		{"deny-read", remove, project + "/sub", false},
		{"deny-read", read, project + "/sub/file", true},
		{"deny-write", write, project + "/sub/file", false},
		{"deny-write", read, project + "/sub/file", true},
		{"deny-write", remove, project + "/sub", false},
		{"deny-pattern", read, project + "/sub/a.kept", false},
		{"deny-pattern", read, project + "/sub/a.KEPT", false},
		{"deny-pattern", remove, project + "/a.kept", false},
		{"deny-pattern", read, scratch + "/tmp/sub/a.kept", false},
		{"deny-pattern", read, project + "/sub/a.keptt", true},
		{"base", connect, project + "/s.sock", true},
		{"base", connect, "/private/var/run/docker.sock", false},
		{"base", connect, "/private/etc/sudoers", false},
		{"open-network", connect, "/private/var/run/docker.sock", false},
		{"open-network", connect, "/private/var/run/mDNSResponder", true},
		{"no-sockets", connect, project + "/s.sock", false},
		{"no-sockets", connect, scratch + "/own", true},
		{"one-socket", connect, project + "/s.sock", true},
		{"one-socket", connect, project + "/t.sock", false},
	} {
		t.Run(test.policy+" "+test.operation+" "+test.path, func(t *testing.T) {
			if got := judgeOf(t, policies[test.policy], project+"/s.sock").allows(test.operation, test.path); got != test.want {
				t.Errorf("allowed is %v", got)
			}
		})
	}
}

// TestProfilesAgreeWithTheirSpecs makes policies at random and asks both.
func TestProfilesAgreeWithTheirSpecs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	places := []string{"/opt", outside, home + "/.ssh", project, project + "/sub", project + "/sub/kept", project + "/file", project + "/.git", "/private/etc", "/opt/homebrew"}
	compared := 0
	for range 300 {
		entries := func() string {
			var list []string
			for _, p := range places {
				if r.IntN(4) == 0 {
					list = append(list, `"`+p+`"`)
				}
			}
			return "[" + strings.Join(list, ",") + "]"
		}
		text := `{"filesystem": {"allowRead": ` + entries() + `, "allowWrite": ` + entries() + `, "denyRead": ` + entries() + `, "denyWrite": ` + entries() +
			`, "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`
		s, err := compile(t, newMachine(), text)
		if err != nil {
			continue // it contradicts itself
		}
		p, err := New(s, Options{Scratch: scratch})
		if err != nil {
			t.Fatal(err)
		}
		j := newJudge(t, p)
		for _, place := range places {
			for _, path := range []string{place, place + "/x"} {
				compared++
				agree(t, s, j, path, text)
			}
		}
	}
	if compared < 2000 {
		t.Errorf("only %d were compared", compared)
	}
}

func agree(t *testing.T, s *spec.Spec, j *judge, path, text string) {
	t.Helper()
	access, m := s.Access(path)
	if m != nil && m.File && m.Target != path {
		return // there is nothing below a file
	}
	reads := m != nil && m.Kind == spec.Bind
	writes := reads && access == spec.AccessWrite
	if got := j.allows("file-read-data", path); got != reads {
		t.Errorf("reading %s is %v, want %v\n%s", path, got, reads, text)
	}
	if got := j.allows("file-write-data", path); got != writes {
		t.Errorf("writing %s is %v, want %v\n%s", path, got, writes, text)
	}
}

func TestExecutionFollowsTheSpec(t *testing.T) {
	j := judgeOf(t, `{"filesystem": {"allowExecute": ["`+project+`/sub"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`)
	for path, want := range map[string]bool{
		"/usr/bin/env": true, project + "/sub/file": true, project + "/file": false, "/opt/homebrew/bin/x": false, scratch + "/tmp/x": false,
	} {
		if got := j.allows("process-exec", path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestGrantsByPatternGrantNothingElse(t *testing.T) {
	j := judgeOf(t, `{"filesystem": {"allowWrite": ["!.", "sub/*.txt"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`, project+"/sub/a.txt")
	for path, want := range map[string]bool{
		project + "/sub/a.txt": true, project + "/sub/new.txt": true, project + "/sub/file": false, project + "/sub/d/a.txt": false, project + "/file": false,
	} {
		if got := j.allows("file-write-data", path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestWhatCannotBeHeldIsRefusedByItsKey(t *testing.T) {
	rule := func(text string) spec.Spec {
		return spec.Spec{Broker: &spec.Broker{Layers: [][]spec.PathRule{{{Pattern: text, Read: spec.Denied, Why: "filesystem.denyRead x"}}}}}
	}
	for _, test := range []struct {
		key  string
		spec spec.Spec
	}{
		{"", spec.Spec{Runtime: spec.RuntimeSeatbelt, Rlimits: []spec.Rlimit{{Name: "core"}, {Name: "nofile", Value: 64}}, TimeoutMillis: 1}},
		{"", rule("/p/**/*.{pem,key}")},
		{"", rule("/p/[a-c]?x/**")},
		{"runtime", spec.Spec{Runtime: spec.RuntimeNative}},
		{"resources.memory", spec.Spec{Limits: &spec.Limits{Memory: 1 << 20}}},
		{"resources.cpu", spec.Spec{Limits: &spec.Limits{CPU: 1}}},
		{"resources.disk", spec.Spec{Limits: &spec.Limits{Disk: 1 << 20}}},
		{"workspace.mode", spec.Spec{Overlay: &spec.Overlay{Source: "/p"}}},
		{"resources.pids", spec.Spec{Rlimits: []spec.Rlimit{{Name: "nproc", Value: 9}}}},
		{"filesystem.privateWrite", spec.Spec{Mounts: []spec.Mount{{Kind: spec.Private, Target: "/a", Source: "/a", Why: "filesystem.privateWrite /a"}}}},
		{"devices.allow", spec.Spec{Mounts: []spec.Mount{{Kind: spec.Bind, Target: "/a", Source: "/b", Why: "devices.allow /a"}}}},
		{"network.exposePorts", spec.Spec{Expose: []spec.Exposure{{Port: 80}}}},
		{"network.allowedDomains", spec.Spec{Network: spec.NetworkGate, Gate: &spec.Gate{}}},
		{"network.allowUnixSockets", spec.Spec{Broker: &spec.Broker{Sockets: spec.Sockets{Allowed: []string{"/a/*"}}}}},
		{"command.deny", spec.Spec{Broker: &spec.Broker{Commands: &command.List{}}}},
		{"--monitor", spec.Spec{Broker: &spec.Broker{Observe: true}}},
		{"filesystem.allowRead", spec.Spec{Broker: &spec.Broker{Layers: [][]spec.PathRule{{{Pattern: "/p/[!a]", Read: spec.Allowed, Why: "filesystem.allowRead x"}}}}}},
		{"filesystem.denyRead", rule("/p/*/x")},
		{"filesystem.denyRead", rule("/p/{a/b,c}")},
		{"filesystem.denyRead", rule("/p/[[:alpha:]]")},
	} {
		t.Run(test.key, func(t *testing.T) {
			_, err := New(&test.spec, Options{})
			var refused *spec.Refused
			switch {
			case test.key == "" && err != nil:
				t.Error(err)
			case test.key != "" && (!errors.As(err, &refused) || refused.Reasons[0].Key != test.key || refused.Reasons[0].Fix == ""):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestGateIsRefusedByWhatItLacks(t *testing.T) {
	for key, gate := range map[string]spec.Gate{
		"network.egress": {Socket: "/s"}, "network.transparent": {Must: true}, "network.allowLocalOutboundPorts": {Config: config.Config{Rules: []config.Rule{{Name: spec.LocalOutbound}}}},
	} {
		err := Refuses(&spec.Spec{Network: spec.NetworkGate, Gate: &gate}, Options{Ports: []uint16{1}})
		if err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

func TestOtherSpellingsAreRefused(t *testing.T) {
	s := mustCompile(t, newMachine(), policies["deny-read"])
	same := func(p string) (string, error) { return p, nil }
	if err := CheckSpelling(s, same); err != nil {
		t.Error(err)
	}
	other := func(p string) (string, error) { return strings.Replace(p, "kept", "Kept", 1), nil }
	if err := CheckSpelling(s, other); err == nil || !strings.Contains(err.Error(), "filesystem.denyRead "+project+"/sub/kept: is "+project+"/sub/Kept on disk") {
		t.Errorf("got %v", err)
	}
}

// TestExpressionsAgreeWithPatterns: a grant matches nothing that its pattern does
// not, and a denial everything that its pattern does.
func TestExpressionsAgreeWithPatterns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	parts := []string{"a", "K", "s", ".", "*", "?", "[ab]", "[!a]", "[^0-9]", "{a,bc}", "{x*,.s}", `\*`, "é", "+", "("}
	letters := []string{"a", "b", "k", "K", "s", "S", "x", ".", "*", "é", "+", "(", "\u017f", "1"}
	join := func(from []string, n int) (s string) {
		for range 1 + r.IntN(n) {
			s += from[r.IntN(len(from))]
		}
		return s
	}
	matched := 0
	for range 5000 {
		text := "/p" + []string{"/", "/**/"}[r.IntN(2)] + join(parts, 3)
		oracle, err := pattern.Compile(text)
		if err != nil {
			continue // such as dots alone
		}
		w := &writer{spec: &spec.Spec{}}
		d, err := w.denial(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		grant, err := exact(text)
		if errors.Is(err, errNegated) {
			grant = "^$"
		} else if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 20 {
			path := "/p/" + join(letters, 3)
			if r.IntN(3) == 0 {
				path += "/" + join(letters, 2)
			}
			if filepath.Clean(path) != path {
				continue
			}
			want := oracle.Match(path)
			if want {
				matched++
				if !matchesAny(d.expressions, path) {
					t.Fatalf("%s does not deny %s: %q", text, path, d.expressions)
				}
			} else if bytesMatch(grant, path) {
				t.Fatalf("%s grants %s: %q", text, path, grant)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d matched", matched)
	}
}

func matchesAny(expressions []string, path string) bool {
	for _, e := range expressions {
		if bytesMatch(e, path) {
			return true
		}
	}
	return false
}

func TestDenialsHoldInEverySpelling(t *testing.T) {
	for name, others := range map[string][]string{
		"/p/.envrc":      {"/p/.ENVRC", "/p/.Envrc/x"},
		"/p/.vscode":     {"/p/.v\u017fcode"},
		"/p/hook":        {"/p/hoo\u212a"},
		"/p/\u00e9t":     {"/p/e\u0301t", "/p/\u00c9T"},
		"/p/a+(b).[c]{}": {"/p/A+(b).[C]{}"},
	} {
		for _, other := range append(others, name) {
			if !bytesMatch(folded(name)+end, other) {
				t.Errorf("%s is not denied as %s", name, other)
			}
		}
		if bytesMatch(folded(name)+end, name+"x") {
			t.Errorf("%s denies more than itself", name)
		}
	}
}

var parameter = regexp.MustCompile(`^P[0-9]+$`)

// checkText fails if anything but fixed words is in a profile's text.
func checkText(t *testing.T, p *Profile) {
	t.Helper()
	forms, err := read(p.Text)
	if err != nil {
		t.Fatal(err)
	}
	defined := make(map[string]bool)
	for _, v := range p.Params {
		defined[v.Name] = true
	}
	rest, ok := strings.CutPrefix(p.Text, base)
	if !ok {
		t.Fatal("the profile does not begin as all do")
	}
	var check func(f form)
	check = func(f form) {
		if f.kind == '"' && strings.Contains(rest, f.text) && !strings.Contains(base+openNetwork, `"`+f.text+`"`) &&
			(!parameter.MatchString(f.text) || !defined[f.text]) {
			t.Errorf("the text holds %q", f.text)
		}
		for _, child := range f.list {
			check(child)
		}
	}
	for _, f := range forms {
		if h := f.head(); h != "allow" && h != "deny" && h != "version" {
			t.Errorf("there is a form %q", h)
		}
		check(f)
	}
}

// hostile is a Spec with a path everywhere a path can be.
func hostile(path string) *spec.Spec {
	at := "/g/" + path
	return &spec.Spec{
		Mounts: []spec.Mount{
			{Kind: spec.Bind, Target: "/g", Source: "/g", Write: true},
			{Kind: spec.Bind, Target: at, Source: at, Write: true},
			{Kind: spec.Bind, Target: at + "/f", Source: at + "/f", File: true},
			{Kind: spec.Hide, Target: at + "/h", Source: "dir"},
			{Kind: spec.Symlink, Target: at + "/l", Source: path},
			{Kind: spec.Tmpfs, Target: at + "/t"},
		},
		Landlock: spec.Landlock{Rules: []spec.LandlockRule{{Path: at, Execute: true}}},
		Broker: &spec.Broker{
			Sockets: spec.Sockets{Allowed: []string{pattern.Quote(at + "/s")}},
			Layers: [][]spec.PathRule{{
				{Pattern: pattern.Quote(at), Write: spec.Allowed},
				{Pattern: pattern.Quote(at) + "/**/*.x", Read: spec.Denied, Write: spec.Denied},
				{Pattern: pattern.Quote(at + "/y"), Write: spec.Denied},
			}},
		},
	}
}

// shape is a profile's text without the numbers of its parameters.
func shape(text string) string { return regexp.MustCompile(`"P[0-9]+"`).ReplaceAllString(text, "P") }

func FuzzNoPathIsAPartOfTheText(f *testing.F) {
	for _, seed := range []string{"a", `a")(allow default)("`, `\`, `\"`, "#\"", ";", "a\nb", "é", "\xff", "a b", `$(x)`, `(param "P0")`, "=", "'", "|", "^$.*+?[]{}()"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path == "" || path == "." || path == ".." || strings.ContainsAny(path, "\x00/") {
			t.Skip("it is not a name")
		}
		p, err := New(hostile(path), Options{Scratch: "/s/" + path})
		if err != nil {
			t.Fatal(err)
		}
		checkText(t, p)
		plain, err := New(hostile("plain"), Options{Scratch: "/s/plain"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shape(p.Text), shape(plain.Text); got != want {
			t.Errorf("the path changes the rules:\n%s\nwant:\n%s", got, want)
		}
		for _, v := range p.Params {
			if strings.HasPrefix(v.Value, "^") {
				regexp.MustCompile("(?s)" + latin(v.Value))
			}
		}
		if j := newJudge(t, p); j.allows("file-read-data", "/g/"+path+"/h/x") || !j.allows("file-write-data", "/g/"+path+"/z") {
			t.Error("the profile does not hold for this path")
		}
	})
}

func TestArgumentsAreValuesOfTheirOwn(t *testing.T) {
	p := &Profile{Text: "(version 1)", Params: []Param{{"P0", "/a b=c"}, {"P1", "-D"}}}
	got := strings.Join(p.Arguments([]string{"/bin/echo", "-p"}), "\x00")
	if want := strings.Join([]string{"-p", "(version 1)", "-D", "P0=/a b=c", "-D", "P1=-D", "--", "/bin/echo", "-p"}, "\x00"); got != want {
		t.Errorf("got %q", got)
	}
}
