package spec

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

func workspaceRules(pairs ...string) (rules []policy.WorkspaceRule) {
	for i := 0; i < len(pairs); i += 2 {
		rules = append(rules, policy.WorkspaceRule{Pattern: pairs[i], Permission: pairs[i+1]})
	}
	return rules
}

func ruledSpec(t *testing.T, p policy.Policy) *Spec {
	t.Helper()
	return ruledCommand(t, p, Command{Argv: []string{"true"}})
}

func ruledCommand(t *testing.T, p policy.Policy, c Command) *Spec {
	t.Helper()
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/src/a.go", "/home/u/p/src/gen/x", "/home/u/p/secret/pub/ok", "/home/u/p/docs/a.md")...)
	f.host.Environ = []string{"PATH=/usr/bin:/bin"}
	s, err := Compile(p, f, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func withRules(pairs ...string) policy.Policy {
	p := basicPolicy()
	p.Workspace.Rules = workspaceRules(pairs...)
	return p
}

func TestRulesThatAreSubtreesAreMounts(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []string
		want  map[string]Access
	}{
		{"everything", []string{"**", "read"}, map[string]Access{"/home/u/p": AccessRead, "/home/u/p/src/a.go": AccessRead}},
		{"hidden", []string{"secret", "none"}, map[string]Access{"/home/u/p": AccessWrite, "/home/u/p/secret/pub/ok": AccessNone}},
		{"hidden, and a part of it not", []string{"secret", "none", "secret/pub", "read"}, map[string]Access{"/home/u/p/secret/other": AccessNone, "/home/u/p/secret/pub/ok": AccessRead}},
		{"read-only", []string{"src/gen", "read"}, map[string]Access{"/home/u/p/src/a.go": AccessWrite, "/home/u/p/src/gen/x": AccessRead}},
		{"several", []string{"{docs,src/gen}", "read"}, map[string]Access{"/home/u/p/docs/a.md": AccessRead, "/home/u/p/src/gen": AccessRead, "/home/u/p/src": AccessWrite}},
		{"full access", []string{"**", "write"}, map[string]Access{"/home/u/p/docs": AccessWrite}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := ruledSpec(t, withRules(test.rules...))
			if s.Rules != nil {
				t.Errorf("left to a view: %+v", s.Rules)
			}
			for p, want := range test.want {
				if got, m := s.Access(p); got != want {
					t.Errorf("%s: got %v by %+v, want %v", p, got, m, want)
				}
			}
		})
	}
}

func TestRulesGrantNothing(t *testing.T) {
	p := withRules("**", "write")
	p.Filesystem.AllowWrite, p.Filesystem.AllowRead = nil, append(p.Filesystem.AllowRead, ".")
	if got, _ := ruledSpec(t, p).Access("/home/u/p/src"); got != AccessRead {
		t.Errorf("what can only be read: got %v", got)
	}
	p = withRules("**", "write")
	if got, _ := ruledSpec(t, p).Access("/home/u/.gitconfig"); got == AccessWrite {
		t.Error("a rule of the project made something else writable")
	}
}

func TestWhyAMountIsThereNamesTheRule(t *testing.T) {
	s := ruledSpec(t, withRules("src/gen", "read", "secret", "none"))
	for p, want := range map[string]string{"/home/u/p/src/gen": "workspace.rules src/gen (read)", "/home/u/p/secret": "workspace.rules secret (none)"} {
		if _, m := s.Access(p); m == nil || m.Why != want {
			t.Errorf("%s: got %+v, want %s", p, m, want)
		}
	}
}

func TestOtherRulesAreLeftToAView(t *testing.T) {
	for name, rules := range map[string][]string{
		"a pattern":                          {"**/.env", "none"},
		"a name and a size":                  {"docs", "view"},
		"what does not exist":                {"later", "none"},
		"writable inside what is not":        {"src", "read", "src/gen", "write"},
		"writable inside what is hidden":     {"secret", "none", "secret/pub", "write"},
		"negation":                           {"!src", "none"},
		"subtrees beside something else too": {"docs", "read", "**/*.pem", "none"},
	} {
		s := ruledSpec(t, withRules(rules...))
		if s.Rules == nil || s.Rules.Root != "/home/u/p" || len(s.Rules.Lists) != 1 || len(s.Rules.Lists[0]) != len(rules)/2 {
			t.Errorf("%s: got %+v", name, s.Rules)
		}
		if got, _ := s.Access("/home/u/p/src"); got != AccessWrite {
			t.Errorf("%s: the mount around it is %v; the view alone judges", name, got)
		}
	}
}

func TestBoundsOfRulesAreListsOfTheirOwn(t *testing.T) {
	p := withRules("**/a", "read")
	p.RuleBounds = [][]policy.WorkspaceRule{workspaceRules("**/b", "none"), workspaceRules("docs", "read")}
	s := ruledSpec(t, p)
	want := [][]pathrule.Rule{
		{{Pattern: "**/a", Permission: pathrule.Read}}, {{Pattern: "**/b", Permission: pathrule.None}}, {{Pattern: "docs", Permission: pathrule.Read}},
	}
	if s.Rules == nil || !reflect.DeepEqual(s.Rules.Lists, want) {
		t.Errorf("got %+v", s.Rules)
	}
}

func TestNothingIsMountedWhereAViewShowsNothing(t *testing.T) {
	hooks := func(s *Spec) bool {
		for _, m := range s.Mounts {
			if strings.HasPrefix(m.Target, "/home/u/p/.git") {
				return true
			}
		}
		return false
	}
	if s := ruledSpec(t, withRules("**/.env", "none")); !hooks(s) {
		t.Error("hooks are not protected")
	}
	if s := ruledSpec(t, withRules("**/.env", "none", ".git", "none")); hooks(s) {
		t.Errorf("hidden hooks are mounted: %+v", s.Mounts)
	}
}

func TestOnlyTheRulesOfAViewCanChange(t *testing.T) {
	from := ruledSpec(t, withRules("**/.env", "none"))
	if err := Changeable(from, ruledSpec(t, withRules("**/*.pem", "view"))); err != nil {
		t.Errorf("other rules: %v", err)
	}
	for name, to := range map[string]*Spec{
		"no rules any more": ruledSpec(t, basicPolicy()),
		"rules of mounts":   ruledSpec(t, withRules("docs", "read")),
	} {
		if Changeable(from, to) == nil {
			t.Errorf("%s: can be changed", name)
		}
	}
}

func TestARuntimeWithoutViewsRefuses(t *testing.T) {
	var refused *Unsupported
	p := withRules("**/.env", "none")
	p.Runtime = new("landlock")
	_, err := Compile(p, newSystem(repository("/home/u/p/.git")...), Command{Argv: []string{"true"}})
	if !errors.As(err, &refused) || refused.Key != "workspace.rules" {
		t.Errorf("got %v", err)
	}
	if (*Rules)(nil).Refused("any") != nil {
		t.Error("no rules are refused")
	}
}

// TestASandboxThatHasAViewTakesAnyRules: also those that mounts could hold.
func TestASandboxThatHasAViewTakesAnyRules(t *testing.T) {
	from := ruledSpec(t, withRules("**/*.md", "view"))
	for _, rules := range [][]string{nil, {"secret", "none", "src/gen", "read"}, {"**", "write"}, {"**/*.go", "none"}} {
		to := ruledCommand(t, withRules(rules...), Command{Argv: []string{"true"}, View: true})
		if err := Changeable(from, to); err != nil {
			t.Errorf("%q: %v", rules, err)
		}
		if to.Rules == nil || len(rules) > 0 && len(to.Rules.Lists[0]) != len(rules)/2 {
			t.Errorf("%q: the view is told %+v", rules, to.Rules)
		}
	}
}
