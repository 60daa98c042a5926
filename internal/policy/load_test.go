package policy

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// world is a home directory with a project in it.
type world struct {
	t *testing.T
	Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, Options{
		Dir: filepath.Join(home, "project"), Home: home,
		ConfigHome: filepath.Join(home, "config"), StateHome: filepath.Join(home, "state"),
	}}
	if err := os.Mkdir(w.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// write makes a file; its path is relative to the home directory.
func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.Home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) load() *Loaded {
	w.t.Helper()
	l, err := Load(w.Options)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) refuses(want string) {
	w.t.Helper()
	_, err := Load(w.Options)
	if err == nil {
		w.t.Fatalf("loaded, want an error with %q", want)
	}
	if got := strings.ReplaceAll(err.Error(), w.Home+"/", ""); !strings.Contains(got, want) {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
}

func (w *world) trust(path string) {
	w.t.Helper()
	p, err := Inspect(w.Options, path)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := NewStore(w.StateHome).Trust(p.Bundle); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) chain() string {
	w.t.Helper()
	var out []string
	for _, l := range w.load().Chain {
		name := strings.TrimPrefix(l.Name, w.Home+"/")
		if !l.Trusted {
			name = "(" + name + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestWithoutFilesTheDefaultHolds(t *testing.T) {
	w := newWorld(t)
	l := w.load()
	if !reflect.DeepEqual(l.Policy, Default()) {
		t.Errorf("got %s", Marshal(l.Policy, ""))
	}
	if len(l.Files) != 0 || l.Root != w.Dir || l.Project != "" {
		t.Errorf("files %v, root %s, project %q", l.Files, l.Root, l.Project)
	}
}

func TestSearchOrder(t *testing.T) {
	w := newWorld(t)
	check := func(want string) {
		t.Helper()
		if got := w.chain(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	check("default")
	w.write("config/bailey/bailey.jsonc", `{}`)
	check("default config/bailey/bailey.jsonc")
	w.trust(w.write("bailey.json", `{}`))
	check("default bailey.json")
	w.trust(w.write("project/bailey.jsonc", `{}`))
	check("default project/bailey.jsonc")
	w.Preset = "code"
	check("default code")
	w.write("project/named.jsonc", `{}`)
	w.Settings = "named.jsonc"
	check("default project/named.jsonc")
	w.Overrides.Env.Allow = []string{"A"}
	check("default project/named.jsonc command line")
}

func TestTwoFilesInOneDirectoryAreRefused(t *testing.T) {
	w := newWorld(t)
	w.write("project/bailey.jsonc", `{}`)
	w.write("project/bailey.json", `{}`)
	w.refuses("project: both bailey.jsonc and bailey.json are there")
}

func TestExtendsBuildsOnEachPolicyOnce(t *testing.T) {
	w := newWorld(t)
	w.write("config/bailey/bailey.jsonc", `{"env": {"allow": ["USER_1"]}}`)
	w.write("project/base/a.jsonc", `{"extends": ["code", "./b"], "env": {"allow": ["A"]}, "runtime": "bwrap"}`)
	w.write("project/base/b", `{"extends": "code", "env": {"allow": ["B", "C"]}, "runtime": "native"}`)
	w.Settings = w.write("project/p.jsonc", `{"extends": ["@user", "base/a.jsonc", "base/b"], "env": {"allow": ["P", "!C"]}}`)
	if got, want := w.chain(), "default config/bailey/bailey.jsonc code project/base/b project/base/a.jsonc project/p.jsonc"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l := w.load()
	if want := []string{"USER_1", "B", "A", "P"}; !reflect.DeepEqual(l.Policy.Env.Allow, want) {
		t.Errorf("got %v, want %v", l.Policy.Env.Allow, want)
	}
	if *l.Policy.Runtime != "bwrap" {
		t.Errorf("got %s, want the later policy's bwrap", *l.Policy.Runtime)
	}
	if !slices.Contains(l.Files, filepath.Join(w.Home, "project/base/b")) || len(l.Files) != 4 {
		t.Errorf("files: %v", l.Files)
	}
	if pos := l.Policy.Origins[Origin{"env.allow", "B"}]; pos.File != filepath.Join(w.Home, "project/base/b") || pos.Line != 1 {
		t.Errorf("origin of B: %v", pos)
	}
}

func TestNoneStartsFromNothing(t *testing.T) {
	w := newWorld(t)
	w.Settings = w.write("p.jsonc", `{"extends": "none", "env": {"allow": ["A"]}}`)
	if got, want := strings.TrimSpace(string(Marshal(w.load().Policy, ""))), `{"env":{"allow":["A"]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUserWithoutAFileHasTheDefault(t *testing.T) {
	w := newWorld(t)
	w.Settings = w.write("p.jsonc", `{"extends": "@user"}`)
	if got, want := w.chain(), "default p.jsonc"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBadExtendsAreRefused(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown preset", `{"extends": "cod"}`, `p.jsonc:1:13: unknown preset "cod"; did you mean "code"?; a file is written with ./ before it`},
		{"missing file", "{\n \"extends\": [\"code\",\n \"./x.jsonc\"]}", `p.jsonc:3:2: lstat`},
		{"directory", `{"extends": "./config/"}`, `p.jsonc:1:13: config is not a regular file`},
		{"unknown name", `{"extends": "@team"}`, `p.jsonc:1:13: unknown name "@team" in extends`},
		{"itself", `{"extends": "./p.jsonc"}`, `p.jsonc:1:13: extends itself: p.jsonc extends p.jsonc`},
		{"cycle", `{"extends": "./q.jsonc"}`, `q.jsonc:1:13: extends itself: p.jsonc extends q.jsonc extends p.jsonc`},
		{"cycle through a link", `{"extends": "./link.jsonc"}`, `p.jsonc:1:13: extends itself`},
		{"mistake in the other file", `{"extends": "./bad.jsonc"}`, `bad.jsonc:2:1: unknown key "x"`},
		{"nothing to remove", "{\n\"env\": {\"allow\": [\"!X\"]}}", `p.jsonc:2:19: env.allow: nothing to remove: "X" is not inherited`},
		{"removed twice", `{"filesystem": {"allowRead": ["!/usr"]}, "extends": "./removes.jsonc"}`, `p.jsonc:1:31: filesystem.allowRead: nothing to remove: "/usr"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.write("config/x", "")
			w.write("q.jsonc", `{"extends": "./p.jsonc"}`)
			w.write("bad.jsonc", "{\n\"x\": 1}")
			w.write("removes.jsonc", `{"filesystem": {"allowRead": ["!/usr"]}}`)
			w.Settings = w.write("p.jsonc", c.file)
			if err := os.Symlink("p.jsonc", filepath.Join(w.Home, "link.jsonc")); err != nil {
				t.Fatal(err)
			}
			w.refuses(c.want)
		})
	}
}

func TestPortsOfClosedLoopbackAreRefusedInOneFile(t *testing.T) {
	w := newWorld(t)
	w.Settings = w.write("s.jsonc", "{\"network\": {\"allowLocalOutbound\": false,\n\"allowLocalOutboundPorts\": [5432]}}")
	w.refuses(`s.jsonc:2:29: network.allowLocalOutboundPorts: "allowLocalOutbound": false closes every port`)
	// One file may close what another opened.
	w.write("base.jsonc", `{"network": {"allowLocalOutboundPorts": [5432]}}`)
	w.write("s.jsonc", `{"extends": "./base.jsonc", "network": {"allowLocalOutbound": false, "allowLocalOutboundPorts": ["!5432"]}}`)
	w.load()
}

func TestLongChainsAreRefused(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.write("p"+strings.Repeat("x", i)+".jsonc", `{"extends": "./p`+strings.Repeat("x", i+1)+`.jsonc"}`)
	}
	w.Settings = filepath.Join(w.Home, "p.jsonc")
	w.refuses("extends more than 16 deep")
}

func TestPresetsLoad(t *testing.T) {
	for _, name := range PresetNames() {
		w := newWorld(t)
		w.Preset = name
		p := w.load().Policy
		if name != "none" && len(p.Filesystem.AllowRead) == 0 {
			t.Errorf("%s: nothing can be read", name)
		}
		if s := PresetSummary(name); s == "" || strings.Contains(s, "\n") {
			t.Errorf("%s: summary %q", name, s)
		}
	}
	w := newWorld(t)
	w.Preset = "cod"
	w.refuses(`unknown preset "cod"; did you mean "code"?`)
}

// The presets that do not build on the default repeat its system paths.
func TestEveryPresetIsInThePageOnPolicies(t *testing.T) {
	data, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n## Presets\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, name := range PresetNames() {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("%s is missing in the table", name)
		}
	}
}

func TestPresetsFollowTheDefault(t *testing.T) {
	system := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p[0] != '/' })
	}
	def := Default().Filesystem
	for _, name := range []string{"code-strict", "locked"} {
		w := newWorld(t)
		w.Preset = name
		f := w.load().Policy.Filesystem
		if got, want := system(f.AllowRead), system(def.AllowRead); !slices.Equal(got, want) {
			t.Errorf("%s: allowRead\ngot  %v\nwant %v", name, got, want)
		}
		if got, want := system(f.DenyRead), system(def.DenyRead); !slices.Equal(got, want) {
			t.Errorf("%s: denyRead\ngot  %v\nwant %v", name, got, want)
		}
	}
}

func TestDefaultHasNoPatternsAndPassesItsOwnChecks(t *testing.T) {
	p := Default()
	reparse(t, p)
	for _, list := range [][]string{p.Filesystem.AllowRead, p.Filesystem.DenyRead, p.Filesystem.AllowWrite, p.Filesystem.PrivateWrite} {
		for _, path := range list {
			if strings.ContainsAny(path, "*?[{") {
				t.Errorf("%s is a pattern", path)
			}
		}
	}
}
