package spec

import (
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// decide is what the broker would say.
func decide(t *testing.T, s *Spec, write bool, path string) Verdict {
	t.Helper()
	for _, rules := range s.Broker.Layers {
		for i := range rules {
			r := &rules[i]
			v := r.Read
			if write {
				v = r.Write
			}
			p, err := pattern.Compile(r.Pattern)
			if err != nil {
				t.Fatal(err)
			}
			if v == "" || !p.Match(path) {
				continue
			}
			if v == Denied {
				return Denied
			}
			break
		}
	}
	return Allowed
}

// verdicts are what the broker would say about one path.
type verdicts struct {
	path        string
	read, write Verdict
}

func wantVerdicts(t *testing.T, s *Spec, cases []verdicts) {
	t.Helper()
	for _, tc := range cases {
		if got := decide(t, s, false, tc.path); got != tc.read {
			t.Errorf("reading %s: got %s, want %s", tc.path, got, tc.read)
		}
		if got := decide(t, s, true, tc.path); got != tc.write {
			t.Errorf("writing %s: got %s, want %s", tc.path, got, tc.write)
		}
	}
}

func TestProtectedNamesCannotBeMade(t *testing.T) {
	f := newSystem("/home/u/p/src/")
	s := mustCompile(t, basicPolicy(), f)
	for _, name := range append(append(slices.Clone(protectedNames), policyNames...), ".git", ".git/hooks/pre-commit") {
		if decide(t, s, true, "/home/u/p/"+name) != Denied {
			t.Errorf("%s can be made", name)
		}
	}
	for _, name := range []string{"main.go", "sub/.envrc", ".gitignore", ".github/workflows/ci.yml", "sub/.git/config", ".config/other"} {
		if decide(t, s, true, "/home/u/p/"+name) != Allowed {
			t.Errorf("%s cannot be made", name)
		}
	}
	if s.Broker.Read {
		t.Error("reading is judged, although no rule is about it")
	}
}

func TestInsistenceLiftsAName(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, ".envrc", ".git", ".vscode/settings.json")
	s := mustCompile(t, p, newSystem("/home/u/p/"))
	for path, want := range map[string]Verdict{
		"/home/u/p/.envrc": Allowed, "/home/u/p/.git/config": Allowed, "/home/u/p/.vscode/settings.json": Allowed,
		"/home/u/p/.vscode/tasks.json": Denied, "/home/u/p/.vscode": Denied, "/home/u/p/bailey.json": Denied,
	} {
		if got := decide(t, s, true, path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestPatternsAreDecidedLater(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.DenyRead = append(p.Filesystem.DenyRead, "**/.env", "~/p/keys/*.pem")
	p.Filesystem.DenyWrite = []string{"*.lock", "later/file"}
	p.Filesystem.AllowRead = append(p.Filesystem.AllowRead, "sample/.env")
	s := mustCompile(t, p, newSystem("/home/u/p/sample/.env", "/home/u/p/.env"))
	wantVerdicts(t, s, []verdicts{
		{"/home/u/p/.env", Denied, Denied},
		{"/home/u/p/a/b/.env", Denied, Denied},
		{"/home/u/p/sample/.env", Allowed, Denied},
		{"/home/u/p/keys/a.pem", Denied, Denied},
		{"/home/u/p/keys/a/b.pem", Allowed, Allowed},
		{"/home/u/p/x.lock", Allowed, Denied},
		{"/home/u/p/a/x.lock", Allowed, Allowed},
		{"/home/u/p/later/file", Allowed, Denied},
		{"/home/u/p/later/other", Allowed, Allowed},
	})
	if !s.Broker.Read {
		t.Error("reading is not judged")
	}
	p.Filesystem.StrictDenyRead = new(true)
	if s := mustCompile(t, p, newSystem("/home/u/p/sample/.env")); decide(t, s, false, "/home/u/p/sample/.env") != Denied {
		t.Error("a strict denial is lifted")
	}
}

func TestPatternGrantsOnlyWhatItMatches(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite = []string{"gen/**/*.go"}
	p.Filesystem.AllowRead = append(p.Filesystem.AllowRead, "/srv/data/*.csv", "/srv/data/docs")
	s := mustCompile(t, p, newSystem("/home/u/p/gen/", "/srv/data/docs/"))
	wantAccess(t, s, AccessWrite, "/home/u/p/gen")
	wantAccess(t, s, AccessRead, "/srv/data")
	wantVerdicts(t, s, []verdicts{
		{"/home/u/p/gen/a/b.go", Allowed, Allowed},
		{"/home/u/p/gen/a/b.c", Denied, Denied},
		{"/srv/data/x.csv", Allowed, Denied},
		{"/srv/data/x.txt", Denied, Denied},
		{"/srv/data/docs/x.txt", Allowed, Denied},
	})
}

// A bound is asked as well, whatever the policy itself grants.
func TestBoundsHaveRulesOfTheirOwn(t *testing.T) {
	p := basicPolicy()
	s := mustCompile(t, bounded(p, policy.Filesystem{AllowRead: p.Filesystem.AllowRead, AllowWrite: []string{"."}, DenyWrite: []string{"**/*.key"}}), newSystem("/home/u/p/"))
	if decide(t, s, true, "/home/u/p/a/x.key") != Denied || decide(t, s, true, "/home/u/p/a/x") != Allowed {
		t.Error("the bound's pattern does not hold")
	}
}

// Landlock must not grant writing to anything above an area, or it would grant
// it in the area.
func TestLandlockGrantsNoWritingAroundAreas(t *testing.T) {
	for _, g := range goldenCases() {
		s := mustCompile(t, g.policy, g.facts)
		for _, area := range s.Broker.Areas {
			for _, r := range s.Landlock.Rules {
				if r.Write && (Covers(r.Path, area) || s.holdsArea(r.Path, s.Broker.Strict)) {
					t.Errorf("%s: landlock grants writing in %s, around the area %s", g.name, r.Path, area)
				}
			}
		}
	}
}

func TestBrokerIsLeftOutWhereNothingNeedsIt(t *testing.T) {
	p := withoutMissing()
	p.Network.AllowAllUnixSockets = new(true)
	if s := mustCompile(t, p, newSystem("/home/u/p/")); s.Broker != nil {
		t.Errorf("got %+v, want none", s.Broker)
	}
}

func TestSocketsAreNamedOneByOne(t *testing.T) {
	p := basicPolicy()
	p.Network.AllowUnixSockets = []string{"/run/daemon.sock", "~/p/*.sock"}
	f := newSystem("/home/u/p/", "/run/daemon.sock")
	f.files["/run/daemon.sock"].Type = TypeSocket
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessRead, "/run/daemon.sock")
	if got, want := s.Broker.Sockets.Allowed, []string{"/run/daemon.sock", "/home/u/p/*.sock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Where the command could rename another socket to an allowed name, the broker
// renames.
func TestNamesOfAllowedSocketsAreGuarded(t *testing.T) {
	for entry, want := range map[string]bool{"/run/daemon.sock": false, "p.sock": true, "~/p": false, "~/p/": false, "**/*.sock": true} {
		p := withoutMissing()
		p.Network.AllowUnixSockets = []string{entry}
		s := mustCompile(t, p, newSystem("/home/u/p/"))
		if got := len(s.Broker.Areas) > 0; got != want {
			t.Errorf("%s: got areas %q, want some: %v", entry, s.Broker.Areas, want)
		}
	}
}

func TestCommandRulesAreAskedOnlyIfThereAreAny(t *testing.T) {
	p := basicPolicy()
	if s := mustCompile(t, p, newSystem("/home/u/p/")); s.Broker.Commands != nil {
		t.Errorf("got %+v, want none", s.Broker.Commands)
	}
	p.Command.Deny, p.Command.RuntimeExecPolicy = []string{"git push"}, new("argv")
	s := mustCompile(t, p, newSystem("/home/u/p/"))
	if s.Broker.Commands == nil || s.Broker.Commands.Reach != command.ReachArgv || len(s.Broker.Commands.Deny) != 1 {
		t.Errorf("got %+v, want git push denied", s.Broker.Commands)
	}
	p.Command.RuntimeExecPolicy = new("off")
	if s := mustCompile(t, p, newSystem("/home/u/p/")); s.Broker.Commands != nil {
		t.Errorf("got %+v, want none", s.Broker.Commands)
	}
}
