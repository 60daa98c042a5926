package broker

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Names that are kept apart must decide as the patterns do that they stand for.
func TestNamesDecideAsTheirPatternsDo(t *testing.T) {
	const protected = "/p/{.envrc,.vscode,.config/fish}"
	all := []spec.PathRule{
		{Pattern: "/p/.vscode/allowed", Write: spec.Allowed},
		{Pattern: namesPattern(t, "/p", ".envrc"), Write: spec.Denied},
		{Pattern: "/p/**/.envrc", Write: spec.Allowed},
		{Pattern: namesPattern(t, "/p/sub", ".envrc"), Write: spec.Denied},
		{Pattern: protected, Write: spec.Denied},
	}
	l, err := newList(all, writing)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.names) != 2 || len(l.index) != 3 {
		t.Fatalf("got %d rules of names and %d patterns, want 2 and 3", len(l.names), len(l.index))
	}
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Pattern
	}
	set, err := pattern.NewSet(texts)
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"p", "sub", ".envrc", ".envrc2", ".vscode", "allowed", ".config", "fish", "x", "bailey.json"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		path := ""
		for range 1 + random.IntN(5) {
			path += "/" + parts[random.IntN(len(parts))]
		}
		var want *spec.PathRule
		if n := set.First(path); n >= 0 {
			want = &all[n]
		}
		if got := l.first(path); got != want {
			t.Fatalf("%s: got %v, want %v", path, got, want)
		}
	}
}

// namesPattern is the pattern of a compiled Spec about a directory's names.
func namesPattern(t *testing.T, dir, holds string) string {
	t.Helper()
	names := ".aider.conf.yml,.bash_login,.bash_logout"
	for _, list := range spec.NameLists() {
		if strings.Contains(list, holds) {
			names = strings.Trim(list, "{}")
		}
	}
	text := dir + "/{" + names + "}"
	if _, _, ok := spec.NamesIn(text); !ok {
		t.Fatalf("%s is not taken apart", text)
	}
	return text
}

// Where case does not matter, a name in another spelling is the allowed one.
func TestSocketsMoveOnlyWhereTheSameIsAllowed(t *testing.T) {
	var s sockets
	if err := s.prepare(&spec.Sockets{Allowed: []string{"/p/Run/a.sock", "/q/**/b.sock"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"/p/x", "/p/y", true},
		{"/p/x", "/p/Run/a.sock", false},
		{"/p/Run/a.sock", "/p/x", false},
		{"/p/x", "/p/run/A.sock", false},
		{"/p/x", "/p/Run", false},
		{"/p/x", "/p/RUN", false},
		{"/q/x", "/q/y/z", true},
		{"/q/x", "/q/y/b.sock", false},
		{"/q/x", "/p/x", false},
	} {
		if got := s.sameBelow(c.from, c.to); got != c.want {
			t.Errorf("from %s to %s: got %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
