package spec

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func TestReasonOfAMountIsTheRuleThatDecides(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowRead = append(p.Filesystem.AllowRead, "vendor", "/srv/data")
	p.Filesystem.DenyWrite = []string{"vendor", "/srv/data"}
	s := mustCompile(t, p, newSystem("/home/u/p/vendor/x", "/srv/data/x"))
	for path, want := range map[string]string{
		"/home/u/p/vendor": "filesystem.denyWrite vendor", // else it could be written
		"/srv/data":        "filesystem.allowRead /srv/data",
		"/home/u/p":        "filesystem.allowWrite .",
	} {
		if _, m := s.Access(path); m == nil || m.Why != want {
			t.Errorf("%s: got %+v, want %s", path, m, want)
		}
	}
}

func TestDenialsHoldWhereNothingIsGranted(t *testing.T) {
	p := bounded(basicPolicy(), policy.Filesystem{AllowWrite: []string{"."}, DenyRead: []string{"/srv/bound"}})
	p.Filesystem.DenyWrite = []string{"/srv/data", "/srv/missing"}
	s := mustCompile(t, p, newSystem("/home/u/p/x", "/srv/data/x", "/srv/bound/x"))
	for _, c := range []struct {
		path  string
		write bool
		want  string
	}{
		{"/srv/data/x", true, "filesystem.denyWrite /srv/data"},
		{"/srv/data/x", false, ""},
		{"/srv/missing", true, "filesystem.denyWrite /srv/missing"},
		{"/srv/bound/x", false, "filesystem.denyRead /srv/bound"},
		{"/srv/bound/x", true, "filesystem.denyRead /srv/bound"},
		{"/srv/datum", true, ""},
	} {
		if got := s.DeniedBy(c.path, c.write); got != c.want {
			t.Errorf("%s: got %q, want %q", c.path, got, c.want)
		}
	}
}

func TestUnwritableIsWhatIsProtected(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.DenyWrite = []string{"vendor", "later/*.lock"}
	s := mustCompile(t, p, newSystem("/home/u/p/vendor/x", "/home/u/p/.git/hooks/x", "/home/u/p/src/a"))
	why, err := s.Unwritable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		dir  bool
		want string
	}{
		{"/home/u/p/src/a", false, ""},
		{"/home/u/p/new", false, ""},
		{"/home/u/p/vendor/x", false, "filesystem.denyWrite vendor"},
		{"/home/u/p/later/a.lock", false, "filesystem.denyWrite later/*.lock"},
		{"/home/u/p/.git/hooks/new", false, "protected .git/hooks"},
		{"/home/u/p/.git", true, ""},
		{"/home/u/p/.git", false, "protected .git/hooks"}, // removed, or a link
		{"/home/u/p/.envrc", false, "protected name"},
		{"/srv/x", false, "no rule grants it"},
	} {
		if got := why(c.path, c.dir); got != c.want {
			t.Errorf("%s, a directory: %v: got %q, want %q", c.path, c.dir, got, c.want)
		}
	}
}
