package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An agent's part is added to whichever policy holds, and what its preset builds
// on holds only where nobody has said anything.
func TestAnAgentsPartIsAddedToThePolicyThatHolds(t *testing.T) {
	for _, test := range []struct {
		name, user, project string
		settings            string
		registries, hidden  bool
	}{
		{name: "no file", registries: true},
		{name: "a policy of the user's own", user: `{"filesystem": {"denyRead": ["/hidden"]}}`, hidden: true},
		{name: "a file that is not trusted", project: `{"network": {"allowedDomains": ["@npm", "evil.example"]}, "filesystem": {"denyRead": ["/hidden"]}}`},
		{name: "a named file", settings: `{"filesystem": {"denyRead": ["/hidden"]}}`, hidden: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := t.TempDir()
			o := Options{Dir: filepath.Join(base, "project"), Home: base, ConfigHome: filepath.Join(base, "config"), StateHome: filepath.Join(base, "state"), Agent: "claude"}
			for path, text := range map[string]string{
				UserFile(o.ConfigHome): test.user, filepath.Join(o.Dir, "bailey.jsonc"): test.project, filepath.Join(base, "named.jsonc"): test.settings,
			} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if test.settings != "" {
				o.Settings = filepath.Join(base, "named.jsonc")
			}
			got, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			n, fs := got.Policy.Network, got.Policy.Filesystem
			if !slices.Contains(n.AllowedDomains, "api.anthropic.com") || !slices.Contains(fs.AllowWrite, "~/.claude") || len(n.Inject) == 0 {
				t.Errorf("the agent's own part is missing: %q, %q", n.AllowedDomains, fs.AllowWrite)
			}
			if slices.Contains(n.AllowedDomains, "@pip") != test.registries || slices.Contains(n.AllowedDomains, "evil.example") {
				t.Errorf("hosts %q", n.AllowedDomains)
			}
			if slices.Contains(fs.DenyRead, "/hidden") != test.hidden {
				t.Errorf("hidden %q", fs.DenyRead)
			}
			if test.project != "" && !slices.Contains(n.AllowedDomains, "@npm") {
				t.Error("what code and the project both grant is missing")
			}
			if !slices.Contains(got.Chain, Link{KindPreset, "claude", true}) {
				t.Errorf("the chain is %v", got.Chain)
			}
		})
	}
}

func TestInlinePoliciesHaveTheAgentsPartToo(t *testing.T) {
	got, err := Inline(Options{Dir: t.TempDir(), Agent: "codex"}, "--policy", `{"extends": "none"}`)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.Policy.Filesystem.AllowWrite, "~/.codex") || slices.Contains(got.Policy.Network.AllowedDomains, "@npm") {
		t.Errorf("%q, %q", got.Policy.Filesystem.AllowWrite, got.Policy.Network.AllowedDomains)
	}
}

// An agent must not be able to leave behind what runs the next time: whatever
// can be written is a directory of its own in the home directory.
func TestAgentsWriteOnlyTheirOwnState(t *testing.T) {
	for _, name := range agentPresets {
		data, _ := Preset(name)
		p, err := Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Extends, []string{"code"}) {
			t.Errorf("%s extends %q", name, p.Extends)
		}
		for _, dir := range slices.Concat(p.Filesystem.AllowWrite, p.Filesystem.PrivateWrite) {
			if below, ok := strings.CutPrefix(dir, "~/"); !ok || below == "" || strings.Contains(below, "*") || below == ".config" || below == ".local/share" {
				t.Errorf("%s can write %s", name, dir)
			}
		}
		for _, host := range p.Network.AllowedDomains {
			if host == "*" {
				t.Errorf("%s can reach everything", name)
			}
		}
		for _, i := range p.Network.Inject {
			if i.Optional == nil || !*i.Optional || i.FromEnv != i.Placeholder {
				t.Errorf("%s: %s must be optional, and have itself as its placeholder", name, i.FromEnv)
			}
			for _, host := range i.Hosts {
				if !slices.Contains(p.Network.AllowedDomains, host) {
					t.Errorf("%s: a credential for %s, which cannot be reached", name, host)
				}
			}
		}
	}
}

func TestOptionalGoesWithFromEnv(t *testing.T) {
	for source, ok := range map[string]bool{`"fromEnv": "X"`: true, `"fromFile": "/x"`: false, `"fromCommand": ["x"]`: false} {
		_, err := Parse("f", []byte(`{"network": {"inject": [{"hosts": ["a.example"], "bearer": true, "optional": true, `+source+`}]}}`))
		if (err == nil) != ok {
			t.Errorf("%s: %v", source, err)
		}
	}
}
