package spec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func mustCompile(t *testing.T, p policy.Policy, f Facts) *Spec {
	t.Helper()
	s, err := Compile(p, f, Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, s)
	return s
}

func wantAccess(t *testing.T, s *Spec, want Access, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if got := hostAccess(s, p); got != want {
			t.Errorf("%s is %v, want %v", p, got, want)
		}
	}
}

// wantRefused compiles and expects a reason that holds every one of texts.
func wantRefused(t *testing.T, p policy.Policy, f Facts, texts ...string) {
	t.Helper()
	_, err := Compile(p, f, Command{Argv: []string{"true"}})
	var refused *Refused
	if !errors.As(err, &refused) {
		t.Errorf("got %v, want it refused for %q", err, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want it to name %q", err, text)
		}
	}
}

func TestProjectIsTheRepositoryAround(t *testing.T) {
	for _, tc := range []struct {
		dir, want string
		files     []string
	}{
		{"/home/u/p/a/b", "/home/u/p", []string{"/home/u/p/.git/HEAD", "/home/u/p/a/b/"}},
		{"/home/u/p/a/b", "/home/u/p/a", []string{"/home/u/p/.git/HEAD", "/home/u/p/a/.git=gitdir: x", "/home/u/p/a/b/"}},
		{"/home/u/p/a", "/home/u/p/a", []string{"/home/u/p/a/"}},
		{"/home/u/p/a", "/home/u/p/a", []string{"/home/u/.git/HEAD", "/home/u/p/a/"}},
		{"/work/x", "/work/x", []string{"/.git/HEAD", "/work/x/"}},
		{"/tmp/x/y", "/tmp/x/y", []string{"/tmp/.git/HEAD", "/tmp/x/y/"}},
		{"/usr/src/app", "/usr/src/app", []string{"/usr/src/app/"}},
	} {
		s := mustCompile(t, basicPolicy(), in(newSystem(tc.files...), tc.dir))
		_, m := s.Access(tc.dir)
		if m == nil || m.Target != tc.want || !m.Write {
			t.Errorf("in %s the project is %+v, want %s", tc.dir, m, tc.want)
		}
	}
}

func TestSomebodyElsesRepositoryAboveIsNotTheProject(t *testing.T) {
	f := in(newSystem("/srv/shared/.git/HEAD", "/srv/shared/mine/"), "/srv/shared/mine")
	f.files["/srv/shared/.git"].UID = 1001
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessWrite, "/srv/shared/mine")
	wantAccess(t, s, AccessNone, "/srv/shared")
}

func TestWideDirectoriesAreNotGranted(t *testing.T) {
	for _, dir := range []string{"/", "/home", "/home/u", "/tmp", "/etc", "/etc/ssl", "/usr", "/usr/lib", "/var", "/var/lib", "/run"} {
		s := mustCompile(t, basicPolicy(), in(newSystem(), dir))
		for _, m := range s.Mounts {
			if m.Kind == Bind && m.Write {
				t.Errorf("in %s %s is granted", dir, m.Target)
			}
		}
		if len(s.Warnings) == 0 || !strings.Contains(s.Warnings[0], dir+" is not a project") {
			t.Errorf("in %s nothing says why: %q", dir, s.Warnings)
		}
	}
}

func TestWideDirectoryIsGrantedOnInsistence(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite, p.Filesystem.DenyRead = append(p.Filesystem.AllowWrite, "/home/u"), nil
	s := mustCompile(t, p, in(newSystem(), "/home/u"))
	wantAccess(t, s, AccessWrite, "/home/u", "/home/u/notes")
	wantAccess(t, s, AccessRead, "/home/u/.ssh") // what the host logs in with is not to be changed
}

func TestUngrantedWorkingDirectoryIsEmpty(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite = nil
	s := mustCompile(t, p, newSystem("/home/u/p/secret"))
	if _, m := s.Access("/home/u/p"); s.Dir != "/home/u/p" || m.Kind != Dir {
		t.Errorf("got %s in %+v", s.Dir, m)
	}
	p.Filesystem.AllowRead, p.Filesystem.DenyRead = append(p.Filesystem.AllowRead, "/srv"), append(p.Filesystem.DenyRead, "/srv/x")
	if s := mustCompile(t, p, in(newSystem("/srv/x/y/"), "/srv/x/y")); s.Dir != "/" {
		t.Errorf("the command starts in the hidden %s", s.Dir)
	}
}

func TestReplaceableLinkIsRefusedWithItsTarget(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "out")
	f := newSystem("/home/u/p/out -> /srv/out", "/srv/out/")
	wantRefused(t, p, f, "/home/u/p/out", "name its target /srv/out")

	p.Filesystem.AllowWrite = []string{"~/out"}
	s := mustCompile(t, p, newSystem("/home/u/p/", "/home/u/out -> /srv/out", "/srv/out/"))
	wantAccess(t, s, AccessWrite, "/srv/out")
	if _, m := s.Access("/home/u/out"); m.Kind != Symlink || m.Source != "/srv/out" {
		t.Errorf("the link became %+v", m)
	}
}

func TestProtectedPathsArePinned(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.config/fish/config.fish", "/home/u/p/.mcp.json", "/home/u/p/bailey.jsonc",
		"/home/u/p/a/b/keep", "/home/u/p/tools/policy.jsonc", "/home/u/p/bin/bailey")...)
	f.host.PolicyFiles = []string{"/home/u/p/tools/policy.jsonc"}
	f.host.Self = "/home/u/p/bin/bailey"
	p := basicPolicy()
	p.Filesystem.DenyWrite = []string{"a/b/keep"}
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessRead, "/home/u/p/.git/hooks", "/home/u/p/.git/config", "/home/u/p/.config/fish", "/home/u/p/.mcp.json",
		"/home/u/p/bailey.jsonc", "/home/u/p/a/b/keep", "/home/u/p/tools/policy.jsonc", "/home/u/p/bin/bailey")
	wantAccess(t, s, AccessWrite, "/home/u/p/.git", "/home/u/p/.git/index", "/home/u/p/a/b", "/home/u/p/a/b/other", "/home/u/p/.config/x")
	for _, dir := range []string{"/home/u/p/.git", "/home/u/p/.config", "/home/u/p/a", "/home/u/p/a/b", "/home/u/p/tools", "/home/u/p/bin"} {
		if _, m := s.Access(dir); m.Target != dir {
			t.Errorf("%s is not pinned", dir)
		}
	}
}

func TestGitDirectoryIsPinnedEvenIfNothingInItIsProtected(t *testing.T) {
	s := mustCompile(t, basicPolicy(), newSystem("/home/u/p/.git/objects/"))
	if a, m := s.Access("/home/u/p/.git"); a != AccessWrite || m.Target != "/home/u/p/.git" {
		t.Errorf("got %v by %+v", a, m)
	}
}

func TestGitConfigIsWritableOnlyIfAllLayersSaySo(t *testing.T) {
	f := newSystem(repository("/home/u/p/.git")...)
	p := basicPolicy()
	p.Filesystem.AllowGitConfig = new(true)
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessWrite, "/home/u/p/.git/config")
	wantAccess(t, s, AccessRead, "/home/u/p/.git/hooks")
	wantAccess(t, mustCompile(t, bounded(p, basicPolicy().Filesystem), f), AccessRead, "/home/u/p/.git/config")
}

func TestNamedGrantLiftsProtectionButNotOfGit(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.claude/cache/", "/home/u/p/.vscode/")...)
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, ".claude/cache", ".vscode")
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessWrite, "/home/u/p/.claude/cache/x", "/home/u/p/.vscode")
	wantAccess(t, s, AccessRead, "/home/u/p/.claude", "/home/u/p/.claude/settings.json")
	p.Filesystem.AllowWrite = []string{".", ".git/config"}
	wantRefused(t, p, f, ".git/config", "always protected")
}

func TestProtectedLinkIsPinnedWithWhatItLeadsTo(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/real.git"),
		"/home/u/p/.envrc -> shared", "/home/u/p/shared", "/home/u/p/.git -> real.git",
		"/home/u/p/.config -> conf", "/home/u/p/conf/fish/", "/home/u/p/.vscode -> /usr")...)
	s := mustCompile(t, basicPolicy(), f)
	for _, link := range []string{"/home/u/p/.envrc", "/home/u/p/.git", "/home/u/p/.config", "/home/u/p/.vscode"} {
		if _, m := s.Access(link); m.Target != link || m.Kind != Bind || m.Write || !m.File {
			t.Errorf("%s is shown by %+v, want a read-only mount of the link itself", link, m)
		}
	}
	wantAccess(t, s, AccessRead, "/home/u/p/shared", "/home/u/p/conf/fish", "/home/u/p/real.git/hooks", "/home/u/p/real.git/config")
	wantAccess(t, s, AccessWrite, "/home/u/p/conf/other", "/home/u/p/real.git/index")
}

func TestProtectedLinkToNothingIsRefused(t *testing.T) {
	wantRefused(t, basicPolicy(), newSystem("/home/u/p/.envrc -> later"), "/home/u/p/.envrc", "/home/u/p/later")
}

func TestMissingHooksAreWarnedOf(t *testing.T) {
	f := newSystem(repository("/home/u/p/.git")...)
	delete(f.files, "/home/u/p/.git/hooks")
	s := mustCompile(t, withoutMissing(), f)
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "/home/u/p/.git/hooks") {
		t.Errorf("warnings are %q", s.Warnings)
	}
	s = mustCompile(t, basicPolicy(), f)
	if len(s.Warnings) != 0 || decide(t, s, true, "/home/u/p/.git/hooks/pre-commit") != Denied {
		t.Errorf("hooks can be made; warnings are %q", s.Warnings)
	}
}

// withoutMissing is the basic policy without protection of names that do not
// exist.
func withoutMissing() policy.Policy {
	p := basicPolicy()
	p.Filesystem.ProtectMissing = new(false)
	return p
}

func TestHooksPathAndIncludesAreProtected(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/githooks/pre-push", "/home/u/p/git/extra=[include]\n\tpath = more\n", "/home/u/p/git/more=[core]\n\thooksPath = h2\n",
		"/home/u/p/h2/")...)
	f.files["/home/u/p/.git/config"].text = "[core]\n\thooksPath = \"githooks\" ; ours\n[includeIf \"gitdir:~/\"]\n\tpath = ../git/extra\n"
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessRead, "/home/u/p/githooks", "/home/u/p/git/extra", "/home/u/p/git/more", "/home/u/p/h2")
}

func TestSubmodulesOfTheProjectAreProtected(t *testing.T) {
	lines := append(repository("/home/u/p/.git"), repository("/home/u/p/.git/modules/libs/one")...)
	lines = append(lines, "/home/u/p/.git/modules/libs/one/config=[core]\n worktree = ../../../../libs/one\n", "/home/u/p/libs/one/.git=gitdir: x")
	s := mustCompile(t, basicPolicy(), newSystem(lines...))
	wantAccess(t, s, AccessRead, "/home/u/p/.git/modules/libs/one/hooks", "/home/u/p/.git/modules/libs/one/config", "/home/u/p/libs/one/.git")
	wantAccess(t, s, AccessWrite, "/home/u/p/.git/modules/libs/one/index", "/home/u/p/libs/one/main.c")
}

func TestTooManyModulesAreProtectedAsAWhole(t *testing.T) {
	lines := repository("/home/u/p/.git")
	for i := range maxGitEntries + 1 {
		lines = append(lines, fmt.Sprintf("/home/u/p/.git/modules/m%d/HEAD", i))
	}
	s := mustCompile(t, basicPolicy(), newSystem(lines...))
	wantAccess(t, s, AccessRead, "/home/u/p/.git/modules", "/home/u/p/.git/modules/m3/index")
}

func TestUnverifiedGitPointerGrantsNothing(t *testing.T) {
	other := repository("/home/u/other/.git")
	for name, lines := range map[string][]string{
		"plain":             {"/home/u/p/.git=gitdir: /home/u/other/.git\n"},
		"no gitdir back":    {"/home/u/p/.git=gitdir: /home/u/other/.git/worktrees/x\n", "/home/u/other/.git/worktrees/x/commondir=../.."},
		"back to another":   {"/home/u/p/.git=gitdir: /home/u/other/.git/worktrees/x\n", "/home/u/other/.git/worktrees/x/gitdir=/home/u/q/.git", "/home/u/q/.git", "/home/u/other/.git/worktrees/x/commondir=../.."},
		"own directory":     {"/home/u/p/.git=gitdir: fake/worktrees/x\n", "/home/u/p/fake/worktrees/x/gitdir=/home/u/p/.git", "/home/u/p/fake/worktrees/x/commondir=/home/u/other/.git"},
		"submodule of none": {"/home/u/p/.git=gitdir: ../other/.git\n", "/home/u/other/.git/config=[core]\n worktree = /home/u/q\n", "/home/u/q/"},
	} {
		s := mustCompile(t, basicPolicy(), newSystem(append(slices.Clone(other), lines...)...))
		if hostAccess(s, "/home/u/other/.git") != AccessNone || len(s.Warnings) != 1 {
			t.Errorf("%s: %v, warnings %q", name, hostAccess(s, "/home/u/other/.git"), s.Warnings)
		}
	}
}

func TestHardLinksOfProtectedFilesAreRefused(t *testing.T) {
	for _, p := range []string{"/home/u/p/.mcp.json", "/home/u/p/.git/config", "/home/u/p/.git/hooks/pre-commit", "/home/u/p/.vscode/a/tasks.json"} {
		f := newSystem(append(repository("/home/u/p/.git"), p)...)
		f.files[p].Nlink = 2
		wantRefused(t, basicPolicy(), f, p, "hard link")
	}
	pol := basicPolicy()
	pol.Filesystem.DenyWrite = []string{"/home/u/p/keep"}
	f := newSystem("/home/u/p/keep")
	f.files["/home/u/p/keep"].Nlink = 2
	wantRefused(t, pol, f, "/home/u/p/keep")
	f.files["/etc/shadow"].Nlink, f.files["/etc/shadow"].Dev = 2, 9
	f.files["/home/u/p/keep"].Nlink = 1
	mustCompile(t, pol, f)
}

func TestBindMountsOfRestrictedPathsAreRefused(t *testing.T) {
	base := []MountPoint{{"8:1", "/", "/", "ext4"}}
	for name, tc := range map[string]struct {
		mount  MountPoint
		write  []string
		denied []string
	}{
		"inside the project":        {MountPoint{"8:1", "/home/u/p/.git/hooks", "/home/u/p/sub", "ext4"}, nil, nil},
		"project at another grant":  {MountPoint{"8:1", "/home/u", "/srv", "ext4"}, []string{"/srv"}, nil},
		"denied directory in part":  {MountPoint{"8:1", "/data/secret/part", "/srv", "ext4"}, []string{"/srv"}, []string{"/data/secret"}},
		"denied file by read grant": {MountPoint{"8:1", "/etc", "/opt", "ext4"}, nil, nil},
	} {
		f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/sub/", "/srv/", "/data/secret/part/x")...)
		f.mounts = append(slices.Clone(base), tc.mount)
		p := basicPolicy()
		p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, tc.write...)
		p.Filesystem.DenyRead = append(p.Filesystem.DenyRead, tc.denied...)
		if _, err := Compile(p, f, Command{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), tc.mount.Target) {
			t.Errorf("%s: got %v, want %s named", name, err, tc.mount.Target)
		}
	}
	// The same directory granted under both names, each with its protection.
	f := newSystem(append(repository("/home/u/p/.git"), repository("/srv/.git")...)...)
	f.mounts = append(base, MountPoint{"8:1", "/home/u/p", "/srv", "ext4"})
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "/srv")
	mustCompile(t, p, f)
}

func TestOwnDirectoriesMustExistWhereTheyCouldBeMade(t *testing.T) {
	f := newSystem("/home/u/p/", "/home/u/.local/state/bailey/trust.json")
	f.host.OwnDirs = []string{"/home/u/.config/bailey", "/home/u/.local/state/bailey"}
	mustCompile(t, basicPolicy(), f)
	p := basicPolicy()
	p.Filesystem.AllowWrite, p.Filesystem.DenyRead = append(p.Filesystem.AllowWrite, "~"), nil
	wantRefused(t, p, f, "/home/u/.config/bailey", "mkdir -p /home/u/.config/bailey")
	f.add("/home/u/.config/bailey/")
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessRead, "/home/u/.config/bailey", "/home/u/.local/state/bailey/trust.json")
	p.Filesystem.AllowWrite = []string{"~/.config/bailey"}
	wantRefused(t, p, f, "always protected")
}

func TestDefaultDenialsMayBeMissing(t *testing.T) {
	p := policy.Default()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "~")
	mustCompile(t, p, newSystem("/home/u/p/"))
}

func TestUnreadableFilesNeedNotBeHidden(t *testing.T) {
	f := newSystem("/home/u/p/")
	hidden := func() bool {
		_, m := mustCompile(t, basicPolicy(), f).Access("/etc/shadow")
		return m.Kind == Hide
	}
	if !hidden() {
		t.Error("a readable file is not hidden")
	}
	f.unreadable["/etc/shadow"] = true
	if hidden() {
		t.Error("an unreadable file of root is hidden")
	}
	f.files["/etc/shadow"].UID = 1000
	if !hidden() {
		t.Error("a file whose owner can make it readable is not hidden")
	}
	f.files["/etc/shadow"].UID = 33
	f = asRoot(f)
	if !hidden() {
		t.Error("a file is not hidden from root")
	}
}

func TestSearchPathIsReadable(t *testing.T) {
	f := newSystem("/home/u/p/", "/home/u/tools/bin/", "/home/u/denied/bin/", "/srv/open/", "/home/u/sdk -> /srv/sdk-1", "/srv/sdk-1/bin/", "/usr/local/bin/")
	f.files["/srv/open"].Mode = 0o777
	f.host.Environ = []string{"PATH=/home/u/tools/bin:/home/u/denied/bin:/home/u:/srv/open:/home/u/sdk/bin::rel:/usr/bin:/missing"}
	p := basicPolicy()
	p.Filesystem.DenyRead = append(p.Filesystem.DenyRead, "~/denied")
	s := mustCompile(t, p, f)
	wantAccess(t, s, AccessRead, "/home/u/tools/bin", "/srv/sdk-1/bin")
	wantAccess(t, s, AccessNone, "/home/u/denied/bin", "/home/u", "/srv/open")
	if _, m := s.Access("/home/u/sdk"); m.Kind != Symlink {
		t.Errorf("the link on the way is %+v", m)
	}
	if want := "/home/u/tools/bin/true"; s.Exec[0] != want || slices.Contains(s.Exec, "rel/true") || slices.Contains(s.Exec, "/true") {
		t.Errorf("programs tried are %v", s.Exec)
	}
	wantAccess(t, mustCompile(t, bounded(p, basicPolicy().Filesystem), f), AccessNone, "/home/u/tools/bin")
}

func TestProgramWithSlashIsTakenAsItIs(t *testing.T) {
	s, err := Compile(basicPolicy(), newSystem("/home/u/p/"), Command{Argv: []string{"./a.out", "x"}})
	if err != nil || !slices.Equal(s.Exec, []string{"./a.out"}) {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestExecuteIsLimitedToNamedAndSystemPaths(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowExecute = []string{"tools", "~/.nvm"}
	f := newSystem("/home/u/p/tools/", "/home/u/.nvm/")
	executable := func(s *Spec, p string) bool {
		return slices.ContainsFunc(s.Landlock.Rules, func(r LandlockRule) bool { return r.Execute && Covers(r.Path, p) })
	}
	s := mustCompile(t, p, f)
	bound := basicPolicy().Filesystem
	bound.AllowRead, bound.AllowExecute = append(bound.AllowRead, "~/.nvm"), []string{"~/.nvm"}
	for _, tc := range []struct {
		path        string
		plain, both bool
	}{
		{"/usr/bin/x", true, true},
		{"/home/u/p/tools/x", true, false},
		{"/home/u/.nvm/x", true, true},
		{"/home/u/p/x", false, false},
		{"/tmp/x", false, false},
		{"/opt/x", false, false},
	} {
		if got := executable(s, tc.path); got != tc.plain {
			t.Errorf("%s executable: %v, want %v", tc.path, got, tc.plain)
		}
		if got := executable(mustCompile(t, bounded(p, bound), f), tc.path); got != tc.both {
			t.Errorf("%s executable under bounds: %v, want %v", tc.path, got, tc.both)
		}
	}
}

func TestCompileIsStable(t *testing.T) {
	for _, g := range goldenCases() {
		first := mustCompile(t, g.policy, g.facts)
		for range 5 {
			if again := mustCompile(t, g.policy, g.facts); !reflect.DeepEqual(again, first) {
				t.Fatalf("%s: %+v\nthen %+v", g.name, first, again)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	l := newLookups(newFake("/a/b/", "/l -> a", "/a/up -> ../a/b", "/abs -> /a/b", "/loop -> loop", "/file", "/a/dd -> b/../.."))
	for in, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "/l/b": "/a/b", "/a/up": "/a/b", "/abs/..": "/a", "/a/dd/l": "/a", "/a//b/.": "/a/b",
		"/l/none/x": "/a/none/x missing", "/file/x": "/file/x missing", "/loop": errLinks.Error(),
	} {
		r, err := l.resolve(in)
		got := r.path
		if r.missing {
			got += " missing"
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{"/": "/", "/a/.b/..c/d.": "/a/.b/..c/d.", "/a//b": "/a/b", "/a/": "/a", "/a/../b": "/b", "/a/.": "/a", "/..": "/", "//": "/", "/a/...": "/a/..."} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTrustedPolicyFileMarksTheProject(t *testing.T) {
	f := newSystem("/home/u/p/sub/deep/", "/home/u/p/sub/.git/")
	f.host.Dir, f.host.Root = "/home/u/p/sub/deep", "/home/u/p"
	wantAccess(t, mustCompile(t, basicPolicy(), f), AccessWrite, "/home/u/p/file")
	f.host.Root = "/home/u" // never the whole home
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessWrite, "/home/u/p/sub/file")
	if a, _ := s.Access("/home/u/p/file"); a == AccessWrite {
		t.Error("a policy file in the home directory granted all of it")
	}
}

func TestWhatCannotBeLookedAtIsRefusedInsideAGrant(t *testing.T) {
	f := newSystem(repository("/home/u/p/.git")...)
	f.closed = "/home/u/p/.git/"
	wantRefused(t, basicPolicy(), f, "/home/u/p/.git", "cannot be looked at")
	f.closed = "/srv/"
	mustCompile(t, basicPolicy(), f)
}

func TestModuleStaysProtectedWithoutItsHead(t *testing.T) {
	lines := append(repository("/home/u/p/.git"), repository("/home/u/p/.git/modules/one")...)
	lines = append(lines, "/home/u/p/.git/modules/one/config=[core]\n worktree = ../../../one\n", "/home/u/p/one/.git=gitdir: x")
	f := newSystem(lines...)
	delete(f.files, "/home/u/p/.git/modules/one/HEAD")
	wantAccess(t, mustCompile(t, basicPolicy(), f), AccessRead,
		"/home/u/p/.git/modules/one/config", "/home/u/p/.git/modules/one/hooks", "/home/u/p/one/.git")
}

func TestWorktreeInsideTheProjectKeepsItsPointer(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.git/worktrees/wt/gitdir=/home/u/p/wt/.git\n", "/home/u/p/wt/.git=gitdir: x")...)
	wantAccess(t, mustCompile(t, basicPolicy(), f), AccessRead, "/home/u/p/wt/.git")
}

func TestHookThatIsALinkIsProtectedAtItsTarget(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.git/hooks/pre-commit -> ../../scripts/pc", "/home/u/p/scripts/pc", "/home/u/p/scripts/other")...)
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessRead, "/home/u/p/scripts/pc")
	wantAccess(t, s, AccessWrite, "/home/u/p/scripts/other")
}

func TestHardLinkBelowADeniedDirectoryIsRefused(t *testing.T) {
	f := newSystem("/home/u/p/secrets/key", "/home/u/p/other")
	f.files["/home/u/p/secrets/key"].Nlink = 2
	p := basicPolicy()
	p.Filesystem.DenyRead = append(p.Filesystem.DenyRead, "secrets")
	wantRefused(t, p, f, "/home/u/p/secrets/key", "hard link")
}

func TestKernelFileSystemsBelowAGrantAreHidden(t *testing.T) {
	f := newSystem("/home/u/p/image/proc/", "/home/u/p/image/home/", "/home/u/p/netns")
	f.mounts = append(f.mounts, MountPoint{"0:5", "/", "/home/u/p/image/proc", "proc"}, MountPoint{"8:2", "/", "/home/u/p/image/home", "ext4"},
		MountPoint{"0:4", "net:[4026531840]", "/home/u/p/netns", "nsfs"})
	s := mustCompile(t, basicPolicy(), f)
	if _, m := s.Access("/home/u/p/netns"); m.Kind != Hide || !m.File || m.Source != "file" {
		t.Errorf("a namespace, which is a file, is covered by %+v", m)
	}
	if _, m := s.Access("/home/u/p/image/proc/sys"); m.Kind != Hide {
		t.Errorf("the host's proc is shown by %+v", m)
	}
	wantAccess(t, s, AccessWrite, "/home/u/p/image/home/x")
}

func TestSomebodysHomeIsNoProject(t *testing.T) {
	f := in(newSystem("/home/v/.ssh/id"), "/home/v")
	if a, _ := mustCompile(t, basicPolicy(), f).Access("/home/v/.ssh/id"); a == AccessWrite {
		t.Error("another user's home was granted")
	}
}

func TestMessagesHoldNoControlCharacters(t *testing.T) {
	for _, text := range []string{"\x1b]0;T\x07", "\x9b2J"} {
		_, err := Compile(basicPolicy(), newSystem("/home/u/p/.mcp.json -> a"+text), Command{Argv: []string{"true"}})
		if err == nil || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x1b\x07") {
			t.Errorf("got %q", err)
		}
	}
}
