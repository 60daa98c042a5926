package spec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// forest is a machine with enough depth for rules to overlap.
func forest() *fakeFacts {
	lines := append(repository("/home/u/p/.git"), repository("/data/a/.git")...)
	for _, root := range []string{"/home/u", "/home/u/p", "/data", "/srv"} {
		for _, a := range []string{"a", "b"} {
			for _, b := range []string{"x", "y"} {
				lines = append(lines, fmt.Sprintf("%s/%s/%s/file", root, a, b), fmt.Sprintf("%s/%s/%s/deep/leaf", root, a, b))
			}
		}
	}
	return newFake(append(lines, "/home/u/p/.envrc", "/data/b/.claude/settings.json", "/tmp/t/", "/srv/link -> /data/a", "/var/tmp/")...)
}

var forestEntries = []string{
	".", "a", "a/x", "a/x/file", "b/y/deep", ".git", ".git/objects", "~", "~/a", "~/a/x", "~/b/x/deep/leaf", "/", "/data", "/data/a", "/data/a/x",
	"/data/a/x/deep", "/data/b", "/srv", "/srv/a/x", "/srv/b/**", "/srv/link", "/srv/link/x", "/tmp", "/tmp/t", "/home", "/nothing",
}

func randomFilesystem(r *rand.Rand) policy.Filesystem {
	pick := func(most int) []string {
		var out []string
		for range r.IntN(most + 1) {
			out = append(out, forestEntries[r.IntN(len(forestEntries))])
		}
		return out
	}
	fs := policy.Filesystem{AllowRead: pick(4), DenyRead: pick(2), AllowWrite: pick(3), DenyWrite: pick(2), PrivateWrite: pick(2)}
	if r.IntN(4) == 0 {
		fs.DefaultDenyRead = new(false)
	}
	if r.IntN(4) == 0 {
		fs.StrictDenyRead = new(true)
	}
	if r.IntN(4) == 0 {
		fs.AllowGitConfig = new(true)
	}
	return fs
}

// oracle decides access from the sentences at policy.Filesystem, one entry at a
// time and without any of the code under test but for resolving names.
func oracle(f *fakeFacts, fs policy.Filesystem, p string) Access {
	longest := func(entries []string) int {
		best := -1
		for _, e := range entries {
			e = strings.TrimSuffix(e, "/**")
			switch {
			case strings.HasPrefix(e, "~"):
				e = "/home/u" + e[1:]
			case e == ".":
				e = "/home/u/p"
			case !strings.HasPrefix(e, "/"):
				e = "/home/u/p/" + e
			}
			e = strings.Replace(e, "/srv/link", "/data/a", 1)
			if _, ok := f.files[e]; ok && (e == "/" || p == e || strings.HasPrefix(p, e+"/")) {
				best = max(best, len(e))
			}
		}
		return best
	}
	edge := 0
	if strings.HasPrefix(p, "/tmp") {
		edge = len("/tmp")
	} else if strings.HasPrefix(p, "/var/tmp") {
		edge = len("/var/tmp")
	}
	grant := func(entries []string) int {
		if n := longest(entries); n >= edge {
			return n
		}
		return -1
	}
	write, private := grant(fs.AllowWrite), grant(fs.PrivateWrite)
	read, deny := max(grant(fs.AllowRead), write, private), longest(fs.DenyRead)
	everything := fs.DefaultDenyRead != nil && !*fs.DefaultDenyRead && edge == 0
	strict := fs.StrictDenyRead != nil && *fs.StrictDenyRead
	switch {
	case deny >= 0 && (strict || deny >= read):
		return AccessNone
	case read < 0 && !everything:
		return AccessNone
	case longest(fs.DenyWrite) >= 0 || write < 0 && private < 0:
		return AccessRead
	case private >= write:
		return AccessPrivate
	}
	return AccessWrite
}

// hostAccess is what a Spec gives of the host's own file at p.
func hostAccess(s *Spec, p string) Access {
	a, m := s.Access(p)
	if !m.showsHost() {
		return AccessNone
	}
	return a
}

var forestProtected = []string{
	"/home/u/p/.git/hooks", "/home/u/p/.git/config", "/data/a/.git/hooks", "/data/a/.git/config", "/home/u/p/.envrc", "/data/b/.claude",
}

// isForestProtected says whether p must not be written under fs: the roots of
// the repositories and files above are only known at a writable root.
func isForestProtected(p string) bool {
	return slices.ContainsFunc(forestProtected, func(q string) bool { return Covers(q, p) })
}

func TestRandomPoliciesGrantWhatTheySay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f := forest()
	compiled := 0
	for range 4000 {
		fs := randomFilesystem(r)
		s, err := Compile(policy.Policy{Filesystem: fs}, f, Command{Argv: []string{"true"}})
		if err != nil {
			continue
		}
		compiled++
		checkInvariants(t, s)
		for p, file := range f.files {
			if file.Type == TypeLink || p == "/" {
				continue
			}
			got, want := hostAccess(s, p), oracle(f, fs, p)
			if file.Type == TypeRegular && want == AccessPrivate && got == AccessRead {
				continue // a file alone cannot have private writes
			}
			if got != want && !(isForestProtected(p) && got == AccessRead && want == AccessWrite) {
				t.Fatalf("%s is %v, want %v under %+v\n%+v", p, got, want, fs, s.Mounts)
			}
		}
		checkProtected(t, s, fs)
		if t.Failed() {
			t.Fatalf("under %+v\n%+v", fs, s.Mounts)
		}
	}
	if compiled < 400 {
		t.Errorf("only %d policies compiled", compiled)
	}
}

// checkProtected holds for repositories at a root the policy names.
func checkProtected(t *testing.T, s *Spec, fs policy.Filesystem) {
	t.Helper()
	named := map[string]bool{"/home/u/p": true}
	for _, e := range fs.AllowWrite {
		named[strings.TrimSuffix(strings.Replace(e, "/srv/link", "/data/a", 1), "/**")] = true
	}
	for _, p := range forestProtected {
		root := p[:strings.Index(p, "/.")]
		gitConfig := strings.HasSuffix(p, "/config") && fs.AllowGitConfig != nil
		if named[root] && !gitConfig && hostAccess(s, p) == AccessWrite {
			t.Errorf("%s can be written", p)
		}
	}
	for _, git := range []string{"/home/u/p/.git", "/data/a/.git"} {
		if a, m := s.Access(git); named[strings.TrimSuffix(git, "/.git")] && a == AccessWrite && m.Target != git {
			t.Errorf("%s is not pinned", git)
		}
	}
}

func TestBoundsNeverAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	f := forest()
	compiled := 0
	for range 4000 {
		a, b := randomFilesystem(r), randomFilesystem(r)
		compile := func(fs policy.Filesystem, bounds ...policy.Filesystem) *Spec {
			s, err := Compile(policy.Policy{Filesystem: fs, Bounds: bounds}, f, Command{Argv: []string{"true"}})
			if err != nil {
				return nil
			}
			return s
		}
		both := compile(a, b)
		if both == nil {
			continue
		}
		compiled++
		checkInvariants(t, both)
		for p, file := range f.files {
			if file.Type == TypeLink || p == "/" {
				continue
			}
			if got, most := hostAccess(both, p), min(oracle(f, a, p), oracle(f, b, p)); got > most {
				t.Fatalf("%s is %v, but at most %v under %+v bounded by %+v", p, got, most, a, b)
			}
		}
		if t.Failed() {
			t.Fatalf("%+v bounded by %+v", a, b)
		}
	}
	if compiled < 200 {
		t.Errorf("only %d policies compiled", compiled)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("/usr", "/etc/shadow", ".", "a", "~/go", "make", "A=b")
	f.Add("~/../..", "..", "a/../../x", "/srv/link", "/**", "./x", "PATH=:/a:b")
	f.Add("/proc/1", "/dev/null", "/tmp/../tmp", "//", "/data/", "", "=")
	f.Fuzz(func(t *testing.T, allow, deny, write, denyWrite, private, program, env string) {
		facts := forest()
		facts.host.Environ = []string{env}
		p := policy.Policy{Filesystem: policy.Filesystem{
			AllowRead: []string{allow}, DenyRead: []string{deny}, AllowWrite: []string{write},
			DenyWrite: []string{denyWrite}, PrivateWrite: []string{private},
		}}
		s, err := Compile(p, facts, Command{Argv: []string{program}})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		checkInvariants(t, s)
		if denied, ok := (&compiler{host: facts.host, project: "/home/u/p", facts: newLookups(facts), spec: &Spec{}}).resolveEntry("", denyWrite); ok && hostAccess(s, denied.path) == AccessWrite && decide(t, s, true, denied.path) != Denied {
			t.Errorf("denied %s can be written", denied.path)
		}
	})
}
