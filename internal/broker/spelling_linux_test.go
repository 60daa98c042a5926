package broker

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestSpellingsFoldToOne(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/p/.git/hooks", "/p/.git/hooks"},
		{"/p/.GIT/Hooks", "/p/.git/hooks"},
		{"/p/.g\u200cit", "/p/.git"},     // a character that is not seen
		{"/p/.git\ufeff/x", "/p/.git/x"}, // the same
		{"/p/.ba\u017fhrc", "/p/.bashrc"},
		{"/p/x.\u212aey", "/p/x.key"},
		{"/p/.git./x", "/p/.git/x"},
		{"/p/.git ", "/p/.git"},
		{"/p/...", "/p/..."},
		{"/ÄÖ", "/äö"},
		{"/ΣΑΣ", "/σασ"},
	} {
		if got := fold(c.path); got != c.want {
			t.Errorf("%q: got %q, want %q", c.path, got, c.want)
		}
	}
}

// Names are compared with folded paths as they are.
func TestProtectedNamesAreFolded(t *testing.T) {
	for _, list := range spec.NameLists() {
		if fold(list) != list {
			t.Errorf("%s is not folded", list)
		}
	}
}

func TestSpellingIsDeniedUnlessItIsAllowed(t *testing.T) {
	protected := namesPattern(t, "/P", ".envrc")
	rules, err := newRules(&spec.Spec{Broker: &spec.Broker{Layers: [][]spec.PathRule{{
		{Pattern: "/P/A.KEY", Write: spec.Allowed},
		{Pattern: "/P/**/*.key", Write: spec.Denied},
		{Pattern: "/P/**/*[A-_].Odd", Write: spec.Denied}, // no range when it is folded
		{Pattern: "/P/**/README", Write: spec.Denied, Read: spec.Denied},
		{Pattern: protected, Write: spec.Denied},
		{Pattern: "/P/late.TXT", Write: spec.Allowed},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		a    access
		want bool
	}{
		{"/P/x.key", writing, true},
		{"/P/X.KEY", writing, true},
		{"/P/A.KEY", writing, false},
		{"/P/a.Key", writing, true},
		{"/P/X.KEY", reading, false},
		{"/P/readme", reading, true},
		{"/P/sub/ReadMe/x", writing, true},
		{"/P/.EnvRC", writing, true},
		{"/P/.EnvRC/x", writing, true},
		{"/P/.EnvRCx", writing, false},
		{"/P/late.TXT", writing, false},
		{"/P/plain", writing, false},
		{"/p/.envrc", writing, true},
	} {
		if got := rules.isSuspect(c.a, c.path); got != c.want {
			t.Errorf("%s: got %v, want %v", c.path, got, c.want)
		}
	}
}
