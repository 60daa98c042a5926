package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestFirstWordThatIsNoFlagBeginsTheCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls", "-l"}, []string{"ls", "-l"}},
		{[]string{"--", "ls", "--", "-q"}, []string{"ls", "--", "-q"}},
		{[]string{"-q", "ls", "-q", "--help"}, []string{"ls", "-q", "--help"}},
		{[]string{"--preset", "code", "make"}, []string{"make"}},
		{[]string{"--preset=code", "make"}, []string{"make"}},
		{[]string{"-tcode", "make"}, []string{"make"}},
		{[]string{"-qdt", "code", "make"}, []string{"make"}},
		{[]string{"--", "config"}, []string{"config"}},
		{[]string{"--", "-x"}, []string{"-x"}},
		{[]string{"-", "x"}, []string{"-", "x"}},
		{[]string{"--env", "A=b=c", "--env", "D", "x", ""}, []string{"x", ""}},
		{[]string{"-c", "a b", "config", "-q"}, []string{"config", "-q"}},
	} {
		r, err := parse(c.args)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if !slices.Equal(r.args, c.want) || r.verb != nil {
			t.Errorf("%q: got %q (verb %v), want %q", c.args, r.args, r.verb, c.want)
		}
	}
}

func TestVerbsTakeFlagsOnBothSides(t *testing.T) {
	r, err := parse([]string{"-t", "code", "config", "show", "-q"})
	if err != nil {
		t.Fatal(err)
	}
	if r.verb == nil || r.verb.name != "config" || !slices.Equal(r.args, []string{"show"}) || r.preset != "code" || !r.quiet {
		t.Errorf("got verb %v, args %q, preset %q, quiet %v", r.verb, r.args, r.preset, r.quiet)
	}
	r, err = parse([]string{"explain", "--json", "ls", "--json"})
	if err != nil || !r.json || !slices.Equal(r.args, []string{"ls", "--json"}) {
		t.Errorf("explain: args %q, json %v, error %v", r.args, r.json, err)
	}
}

func TestBadFlagsAreErrorsThatHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--setings", "x", "ls"}, "did you mean --settings?"},
		{[]string{"--alow-read=/x", "ls"}, "unknown flag --alow-read; did you mean --allow-read?"},
		{[]string{"-x", "ls"}, "unknown flag -x; see: bailey --help"},
		{[]string{"--settings"}, "--settings wants a value: --settings FILE"},
		{[]string{"-s"}, "-s wants a value: -s FILE"},
		{[]string{"--quiet=yes", "ls"}, "--quiet takes no value"},
		{[]string{"--settings=", "ls"}, "must not be empty"},
		{[]string{"--allow-read", "", "ls"}, "must not be empty"},
		{[]string{"--env", "=x", "ls"}, "no name"},
		{[]string{"config", "--json", "show"}, "unknown flag --json"},
		{[]string{"config", "--", "ls"}, "takes no command"},
	} {
		_, err := parse(c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.args, err, c.want)
		}
	}
}

func TestEveryVerbIsReserved(t *testing.T) {
	for _, v := range verbs() {
		if !isVerb(v.name) || findVerb(v.name) == nil {
			t.Errorf("%s is in the table and not reserved", v.name)
		}
		if !strings.Contains(helpText(), "\n  "+v.name+" ") {
			t.Errorf("%s is not in the help", v.name)
		}
	}
}

func TestFlagsAreDistinct(t *testing.T) {
	for _, v := range append(verbs(), verb{}) {
		seen := map[string]bool{}
		for _, f := range slices.Concat(flags, v.flags) {
			for _, name := range words([]flag{f}, func(*flag) bool { return true }) {
				if seen[name] {
					t.Errorf("verb %q: %s twice", v.name, name)
				}
				seen[name] = true
			}
		}
	}
}

func TestGrantsOfTheCommandLineAreAPolicy(t *testing.T) {
	top := t.TempDir()
	dir := top + "/dir"
	for _, d := range []string{dir + "/a", top + "/b"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if _, err := parse([]string{"--allow-read", "missing", "x"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a grant of nothing: got %v", err)
	}
	r, err := parse([]string{"--allow-read", "a", "--allow-write=../b", "--deny-read", "~/c", "--deny-write", "/d", "--env", "E", "--env", "F=g h", "--runtime", "native", "x"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.overrides()
	if err != nil {
		t.Fatal(err)
	}
	fs := got.Filesystem
	for _, c := range []struct{ got, want []string }{
		{fs.AllowRead, []string{dir + "/a"}},
		{fs.AllowWrite, []string{top + "/b"}},
		{fs.DenyRead, []string{"~/c"}},
		{fs.DenyWrite, []string{"/d"}},
		{got.Env.Allow, []string{"E"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if !reflect.DeepEqual(got.Env.Set, map[string]string{"F": "g h"}) || *got.Runtime != "native" {
		t.Errorf("set %v, runtime %q", got.Env.Set, *got.Runtime)
	}
}
