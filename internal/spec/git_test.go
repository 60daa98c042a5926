package spec

import (
	"slices"
	"strings"
	"testing"
)

const (
	relativeHooks = "[core]\n\thooksPath = .githooks\n"
	huskyHooks    = "[core]\n\thooksPath = .husky/_\n"
)

func TestRelativeHooksPathOfTheUserIsProtected(t *testing.T) {
	for name, tc := range map[string]struct {
		lines   []string
		environ string
	}{
		"system":           {lines: []string{"/etc/gitconfig=" + relativeHooks}},
		"system of git":    {lines: []string{"/usr/local/etc/gitconfig=" + relativeHooks}},
		"home":             {lines: []string{"/home/u/.gitconfig=" + relativeHooks}},
		"configuration":    {lines: []string{"/home/u/.config/git/config=" + relativeHooks}},
		"moved":            {[]string{"/home/u/etc/git/config=" + relativeHooks}, "XDG_CONFIG_HOME=/home/u/etc"},
		"global by name":   {[]string{"/home/u/git.conf=" + relativeHooks}, "GIT_CONFIG_GLOBAL=/home/u/git.conf"},
		"system by name":   {[]string{"/opt/git.conf=" + relativeHooks}, "GIT_CONFIG_SYSTEM=/opt/git.conf"},
		"link":             {lines: []string{"/home/u/.gitconfig -> dotfiles/git", "/home/u/dotfiles/git=" + relativeHooks}},
		"included":         {lines: []string{"/home/u/.gitconfig=[include]\n\tpath = .more\n", "/home/u/.more=" + relativeHooks}},
		"included by link": {lines: []string{"/home/u/.gitconfig -> dotfiles/git", "/home/u/dotfiles/git=[include]\npath=more\n", "/home/u/more=" + relativeHooks}},
		"twice included":   {lines: []string{"/home/u/.gitconfig=[include]\n\tpath = ~/a\n", "/home/u/a=[include]\n\tpath = ~/.gitconfig\n\tpath = /home/u/b\n", "/home/u/b=" + relativeHooks}},
		"optional":         {lines: []string{"/home/u/.gitconfig=[core]\n\thooksPath = :(optional).githooks\n"}},
	} {
		f := newSystem(append(repository("/home/u/p/.git"), append(tc.lines, "/home/u/p/.githooks/pre-push", "/home/u/p/src/")...)...)
		f.host.Environ = []string{tc.environ}
		s := mustCompile(t, basicPolicy(), f)
		if got, m := s.Access("/home/u/p/.githooks/pre-push"); got != AccessRead {
			t.Errorf("%s: the hook is %v by %+v", name, got, m)
		}
		wantAccess(t, s, AccessWrite, "/home/u/p/src", "/home/u/p/.git/index")
	}
}

func TestConditionsOfIncludesAreDecidedWherePossible(t *testing.T) {
	for condition, want := range map[string]Access{
		"gitdir:~/":                        AccessRead,
		"gitdir:~/p/":                      AccessRead,
		"gitdir:~/p/.git":                  AccessRead,
		"gitdir:~/p/.git/modules/x":        AccessRead, // a submodule
		"gitdir:/home/u/p/**":              AccessRead,
		"gitdir:./p/":                      AccessRead,
		"gitdir:/work/":                    AccessRead, // a link to the project
		"gitdir:p/":                        AccessRead, // a pattern
		"gitdir:other/":                    AccessRead,
		"gitdir:~/oth*/":                   AccessRead,
		"gitdir/i:~/other/":                AccessRead,
		"onbranch:main":                    AccessRead,
		"hasconfig:remote.*.url:https://x": AccessRead,
		"gitdir:~/p":                       AccessWrite, // the git directory itself is meant
		"gitdir:~/other/":                  AccessWrite,
		"gitdir:~/other/**":                AccessWrite,
		"gitdir:/home/u/pp/":               AccessWrite,
		"gitdir:./other/":                  AccessWrite,
	} {
		f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.githooks/", "/work -> /home/u/p", "/home/u/other/",
			"/home/u/.gitconfig=[includeIf \""+condition+"\"]\n\tpath = more\n", "/home/u/more="+relativeHooks)...)
		s := mustCompile(t, basicPolicy(), f)
		if got, m := s.Access("/home/u/p/.githooks"); got != want {
			t.Errorf("%s: the hooks are %v by %+v, want %v", condition, got, m, want)
		}
		if len(s.Warnings) > 0 {
			t.Errorf("%s: warnings %q", condition, s.Warnings)
		}
	}
}

func TestHooksPathHoldsInEveryWorktree(t *testing.T) {
	lines := append(repository("/home/u/main/.git"),
		"/home/u/main/.git/config="+relativeHooks, "/home/u/main/.git/worktrees/p/gitdir=/home/u/p/.git\n", "/home/u/main/.git/worktrees/p/commondir=../..\n",
		"/home/u/main/.git/worktrees/p/config.worktree=[core]\n\thooksPath = own\n", "/home/u/main/.githooks/", "/home/u/main/own/", "/home/u/main/src/",
		"/home/u/main/.git/config.worktree=[core]\n\thooksPath = mine\n", "/home/u/main/mine/",
		"/home/u/p/.git=gitdir: /home/u/main/.git/worktrees/p\n", "/home/u/p/.githooks/", "/home/u/p/own/", "/home/u/p/src/")
	p := basicPolicy()
	for _, dir := range []string{"/home/u/p", "/home/u/main"} {
		p.Filesystem.AllowWrite = []string{"/home/u/p", "/home/u/main"}
		s := mustCompile(t, p, in(newSystem(lines...), dir))
		wantAccess(t, s, AccessRead, "/home/u/p/.githooks", "/home/u/p/own", "/home/u/main/.githooks", "/home/u/main/mine")
		wantAccess(t, s, AccessWrite, "/home/u/main/own", "/home/u/p/src", "/home/u/main/src")
	}
	// However many worktrees somebody has left there.
	for i := range maxGitEntries + 1 {
		lines = append(lines, "/home/u/main/.git/worktrees/"+strings.Repeat("x", i+1)+"/")
	}
	s := mustCompile(t, basicPolicy(), newSystem(lines...))
	wantAccess(t, s, AccessRead, "/home/u/p/.githooks", "/home/u/main/.git/worktrees")
}

func TestHooksPathOfTheUserHoldsInSubmodules(t *testing.T) {
	lines := append(repository("/home/u/p/.git"), repository("/home/u/p/.git/modules/lib")...)
	lines = append(lines, "/home/u/p/.git/modules/lib/config=[core]\n worktree = ../../../lib\n", "/home/u/p/lib/.git=gitdir: ../.git/modules/lib",
		"/home/u/.gitconfig="+relativeHooks, "/home/u/p/lib/.githooks/", "/home/u/p/.githooks/", "/home/u/p/lib/src/")
	s := mustCompile(t, basicPolicy(), newSystem(lines...))
	wantAccess(t, s, AccessRead, "/home/u/p/lib/.githooks", "/home/u/p/.githooks")
	wantAccess(t, s, AccessWrite, "/home/u/p/lib/src")
}

func TestScriptsThatHuskyRunsAreProtected(t *testing.T) {
	for name, lines := range map[string][]string{
		"of the repository": {"/home/u/p/.git/config=" + huskyHooks, "/home/u/p/.husky/_/pre-commit"},
		"of the user":       {"/home/u/.gitconfig=" + huskyHooks, "/home/u/p/.husky/_/pre-commit"},
		"not installed":     {"/home/u/p/.git/config=" + huskyHooks},
		"with a slash":      {"/home/u/p/.git/config=[core]\nhooksPath = .husky/_/\n"},
		"by a link":         {"/home/u/p/.git/config=" + huskyHooks, "/home/u/p/.husky/_ -> ../real", "/home/u/p/real/pre-commit"},
	} {
		s := mustCompile(t, basicPolicy(), newSystem(append(repository("/home/u/p/.git"), append(lines, "/home/u/p/.husky/pre-commit", "/home/u/p/src/")...)...))
		if got, m := s.Access("/home/u/p/.husky/pre-commit"); got != AccessRead || len(s.Warnings) > 0 {
			t.Errorf("%s: the script is %v by %+v, warnings %q", name, got, m, s.Warnings)
		}
		if slices.Contains(lines, "/home/u/p/real/pre-commit") {
			wantAccess(t, s, AccessRead, "/home/u/p/real")
		}
		wantAccess(t, s, AccessWrite, "/home/u/p/src")
	}
	// The project is never closed as a whole.
	s := mustCompile(t, basicPolicy(), newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.git/config=[core]\nhooksPath = _\n", "/home/u/p/_/pre-commit")...))
	wantAccess(t, s, AccessRead, "/home/u/p/_")
	wantAccess(t, s, AccessWrite, "/home/u/p/main.c")
}

func TestConfigurationOfTheUserIsProtectedWhereItIsKept(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/.gitconfig -> p/gitconfig", "/home/u/p/gitconfig=[include]\n\tpath = p/more\n", "/home/u/p/more", "/home/u/p/other")...)
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessRead, "/home/u/p/gitconfig", "/home/u/p/more")
	wantAccess(t, s, AccessWrite, "/home/u/p/other")
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "gitconfig", "more")
	wantAccess(t, mustCompile(t, p, f), AccessWrite, "/home/u/p/gitconfig", "/home/u/p/more")
}

func TestLinksOnTheWayToHooksArePinned(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/.git/config -> ../git.conf", "/home/u/p/git.conf=[core]\n\thooksPath = tools/hooks\n",
		"/home/u/p/tools -> scripts", "/home/u/p/scripts/hooks/pre-push", "/home/u/p/scripts/build")...)
	s := mustCompile(t, basicPolicy(), f)
	wantAccess(t, s, AccessRead, "/home/u/p/scripts/hooks/pre-push", "/home/u/p/git.conf")
	wantAccess(t, s, AccessWrite, "/home/u/p/scripts/build")
	for _, link := range []string{"/home/u/p/tools", "/home/u/p/.git/config"} {
		if _, m := s.Access(link); m.Target != link || m.Write || !m.File {
			t.Errorf("%s is shown by %+v, want a read-only mount of the link itself", link, m)
		}
	}
}

func TestHooksBehindLinksInACircleStayClosed(t *testing.T) {
	f := newSystem(append(repository("/home/u/p/.git"), "/home/u/.gitconfig="+relativeHooks, "/home/u/p/.githooks -> round", "/home/u/p/round -> .githooks")...)
	s := mustCompile(t, basicPolicy(), f)
	for _, link := range []string{"/home/u/p/.githooks", "/home/u/p/round"} {
		if _, m := s.Access(link); m.Target != link || m.Write {
			t.Errorf("%s is shown by %+v, want a read-only mount of the link itself", link, m)
		}
	}
}

func TestMissingPlacesThatGitWouldActOnAreWarnedOf(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  string
	}{
		"hooks of the repository":   {[]string{"/home/u/p/.git/config=" + relativeHooks}, "/home/u/p/.githooks does not exist"},
		"hooks of the user":         {[]string{"/home/u/.gitconfig=" + relativeHooks}, "/home/u/p/.githooks does not exist"},
		"husky before its install":  {[]string{"/home/u/p/.git/config=" + huskyHooks}, "/home/u/p/.husky/_ does not exist"},
		"include of the repository": {[]string{"/home/u/p/.git/config=[include]\n\tpath = ../.gitsettings\n"}, "/home/u/p/.gitsettings does not exist"},
		"out of reach":              {[]string{"/home/u/.gitconfig=[core]\n\thooksPath = ~/hooks\n[include]\n\tpath = none\n"}, ""},
		"no hooks at all":           {[]string{"/home/u/.gitconfig=[core]\n\thooksPath = /dev/null\n"}, ""},
		"another user's":            {[]string{"/home/u/.gitconfig=[core]\n\thooksPath = ~v/hooks\n"}, ""},
		"empty":                     {[]string{"/home/u/.gitconfig=[core]\n\thooksPath =\n"}, ""},
	} {
		f := newSystem(append(repository("/home/u/p/.git"), tc.lines...)...)
		s := mustCompile(t, withoutMissing(), f)
		if got := strings.Join(s.Warnings, "\n"); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		s = mustCompile(t, basicPolicy(), f)
		if missing, ok := strings.CutSuffix(tc.want, " does not exist"); ok && decide(t, s, true, missing) != Denied {
			t.Errorf("%s: %s can be made", name, missing)
		}
	}
}
