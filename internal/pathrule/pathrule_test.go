package pathrule

import (
	"testing"
)

func rule(pattern string, p Permission, priority ...int) Rule {
	r := Rule{Pattern: pattern, Permission: p}
	if len(priority) > 0 {
		r.Priority = priority[0]
	}
	return r
}

func compiled(t testing.TB, lists ...[]Rule) *Set {
	t.Helper()
	s, err := NewSet(lists...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheMostSpecificRuleDecides(t *testing.T) {
	usual := []Rule{rule("**", Read), rule("src/**", Write), rule("**/.env", None), rule("**/secrets/**", None), rule("docs", View)}
	for _, test := range []struct {
		name  string
		rules []Rule
		path  string
		want  Permission
	}{
		{"no rule", nil, "/a", Write},
		{"everything", usual, "/", Read},
		{"everything below", usual, "/a/b/c", Read},
		{"a directory", usual, "/src", Write},
		{"below a directory", usual, "/src/a/b.go", Write},
		{"a name anywhere", usual, "/.env", None},
		{"a name in a directory that is granted later is the later rule's", usual, "/src/.env", None},
		{"below a name anywhere", usual, "/src/secrets/deep/key", None},
		{"view", usual, "/docs/a.md", View},
		{"a path in full beats a name anywhere, wherever it stands", []Rule{rule("src/.env", Read), rule("**/.env", None), rule("src", Write)}, "/src/.env", Read},
		{"and only that path", []Rule{rule("src/.env", Read), rule("**/.env", None), rule("src", Write)}, "/src/a/.env", Write},
		{"neither is more specific: the later", []Rule{rule("**/.env", None), rule("src", Write)}, "/src/.env", Write},
		{"neither is more specific: priority before order", []Rule{rule("**/.env", None, 1), rule("src", Write)}, "/src/.env", None},
		{"priority does not beat what is more specific", []Rule{rule("src", None, 9), rule("src/a", Write)}, "/src/a", Write},
		{"the same pattern twice: priority", []Rule{rule("a", Read, 2), rule("a", None, 1)}, "/a", Read},
		{"the same pattern twice: the later", []Rule{rule("a", Read), rule("a", None)}, "/a", None},
		{"a longer glob is more specific", []Rule{rule("src/*.secret.go", None), rule("src/*.go", Write)}, "/src/a.secret.go", None},
		{"a name is more specific than a glob", []Rule{rule("src/main.go", Write), rule("src/*", None)}, "/src/main.go", Write},
		{"one level is more specific than any", []Rule{rule("*/x", Write), rule("**/x", None)}, "/a/x", Write},
		{"one level is one level", []Rule{rule("*/x", Write), rule("**/x", None)}, "/a/b/x", None},
		{"two of any depth", []Rule{rule("**", Read), rule("**/private/**/*.pem", None)}, "/a/private/b/c/k.pem", None},
		{"two of any depth, next to one another", []Rule{rule("**", Read), rule("**/private/**/*.pem", None)}, "/private/k.pem", None},
		{"two of any depth, out of order", []Rule{rule("**", Read), rule("**/private/**/*.pem", None)}, "/a/k.pem/private", Read},
		{"two of any depth are more specific than one", []Rule{rule("**/private/**/*.pem", Read), rule("**/*.pem", None)}, "/private/k.pem", Read},
		{"braces", []Rule{rule("{a,b/{c,d}}", None)}, "/b/d/x", None},
		{"braces, what they leave out", []Rule{rule("{a,b/{c,d}}", None)}, "/b/e", Write},
		{"each choice of braces for itself", []Rule{rule("src/{a,b}", Read), rule("src/*", None)}, "/src/b", Read},
		{"negation hides the others", []Rule{rule("!src", None)}, "/docs/a", None},
		{"negation leaves what it names", []Rule{rule("!src", None)}, "/src/a", Write},
		{"negation of several", []Rule{rule("!{src,docs}/**", None)}, "/docs/a", Write},
		{"everything is more specific than a negation", []Rule{rule("**", Read), rule("!src", None, 5)}, "/docs", Read},
		{"names that start with a dot", []Rule{rule("*", None)}, "/.git/config", None},
		{"a pattern from the root", []Rule{rule("/a", None)}, "/a", None},
		{"a pattern from here", []Rule{rule("./a", None)}, "/a", None},
		{"an escaped star is a name", []Rule{rule(`\*`, None)}, "/a", Write},
		{"bytes that are no characters", []Rule{rule("?", None)}, "/\xff", None},
	} {
		t.Run(test.name, func(t *testing.T) {
			if d := compiled(t, test.rules).Decide(test.path); d.Permission != test.want {
				t.Errorf("%s: got %v, want %v", test.path, d.Permission, test.want)
			}
		})
	}
}

func TestAHiddenDirectoryShowsOnlyTheWay(t *testing.T) {
	rules := []Rule{rule("**", None), rule("a/b/ok", Write), rule("a/b/ok/no", None), rule("x/*/y", Read)}
	for path, want := range map[string]bool{
		"/":          true,
		"/a":         true,
		"/a/b":       true,
		"/a/c":       false,
		"/a/b/other": false,
		"/a/b/ok/no": false,
		"/x":         true,
		"/x/any":     true,
		"/x/any/z":   false,
		"/q":         false,
	} {
		d := compiled(t, rules).Decide(path)
		if d.Permission != None || d.Way != want {
			t.Errorf("%s: got %v, way %v; want none, way %v", path, d.Permission, d.Way, want)
		}
	}
	negated := compiled(t, []Rule{rule("!a/b", None)})
	for path, want := range map[string]bool{"/": true, "/a": true, "/c": false} {
		if d := negated.Decide(path); d.Permission != None || d.Way != want {
			t.Errorf("%s: got %v, way %v; want none, way %v", path, d.Permission, d.Way, want)
		}
	}
}

func TestEveryListMustAgree(t *testing.T) {
	s := compiled(t, []Rule{rule("**", Write), rule("a", None), rule("a/b", Read)}, []Rule{rule("**", Read), rule("a/b/c", None)})
	for path, want := range map[string]Decision{
		"/x":     {Read, 1, 0, false},
		"/a":     {None, 0, 1, true},
		"/a/b":   {Read, 0, 2, false},
		"/a/b/c": {None, 1, 1, false},
	} {
		if got := s.Decide(path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
	// The first list leads on to a/b, and the second hides all there is.
	s = compiled(t, []Rule{rule("a", None), rule("a/b", Read)}, []Rule{rule("a", None)})
	if d := s.Decide("/a"); d.Way {
		t.Error("a directory leads on although one of the lists hides all of it")
	}
}

func TestBadRulesAreNamed(t *testing.T) {
	for pattern, want := range map[string]string{
		"a/../b":  `rule 2: bad pattern "a/../b": byte 3: ".." as a name; write the path without it`,
		"../b":    `rule 2: bad pattern "../b": byte 1: ".." as a name; write the path without it`,
		"!./{a":   `rule 2: bad pattern "!./{a": byte 4: { without }; write \{ for a brace in a name`,
		"!":       `rule 2: "!" is about no path: its rest matches all; write what is left out after it, as in !src`,
		"!{a,**}": `rule 2: "!{a,**}" is about no path: its rest matches all; write what is left out after it, as in !src`,
	} {
		_, err := NewSet([]Rule{rule("ok", Read), rule(pattern, Read)})
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", pattern, err, want)
		}
	}
}

func TestRulesThatAreSubtrees(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []Rule
		want  []Subtree
		ok    bool
	}{
		{"paths", []Rule{rule("**", Read), rule("src/**", Write), rule("src/{a,b}", None)}, []Subtree{{"/", Read, 0}, {"/src", Write, 1}, {"/src/a", None, 2}, {"/src/b", None, 2}}, true},
		{"a rule that never decides", []Rule{rule("a", None), rule("a", Read)}, []Subtree{{"/a", Read, 1}}, true},
		{"view", []Rule{rule("a", View)}, nil, false},
		{"a wildcard", []Rule{rule("a*", None)}, nil, false},
		{"any depth", []Rule{rule("**/a", None)}, nil, false},
		{"negation", []Rule{rule("!a", None)}, nil, false},
	} {
		l, err := Compile(test.rules)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := l.Subtrees()
		if ok != test.ok || len(got) != len(test.want) {
			t.Errorf("%s: got %v %v, want %v %v", test.name, got, ok, test.want, test.ok)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: got %v, want %v", test.name, got, test.want)
			}
		}
	}
}

func TestARenamedDirectoryKeepsWhatIsBelow(t *testing.T) {
	s := compiled(t, []Rule{rule("**/.env", None), rule("src/gen", Read), rule("!{src,lib}", View)})
	for _, test := range []struct {
		from, to string
		want     bool
	}{
		{"/src/a", "/src/b", true},
		{"/src/a", "/lib/a", true},
		{"/src/gen", "/src/b", false},
		{"/src", "/lib", false},
		{"/src/a", "/other", false},
	} {
		if got := s.SameBelow(test.from, test.to); got != test.want {
			t.Errorf("%s to %s: got %v, want %v", test.from, test.to, got, test.want)
		}
	}
}
