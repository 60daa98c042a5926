package spec

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a Spec, or the explanation of one, with testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	testenv.Golden(t, name, string(got), *update)
}

// basicPolicy is a default that does not change with the real one.
func basicPolicy() policy.Policy {
	return policy.Policy{Filesystem: policy.Filesystem{
		AllowRead:    []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "~/.gitconfig", "~/.nvm"},
		AllowWrite:   []string{"."},
		PrivateWrite: []string{"~/.cache/go-build", "~/go"},
		DenyRead:     []string{"/etc/shadow", "/etc/ssl/private", "~/go/credentials"},
	}}
}

func bounded(p policy.Policy, bounds ...policy.Filesystem) policy.Policy {
	p.Bounds = bounds
	return p
}

func asRoot(f *fakeFacts) *fakeFacts {
	f.host.UID, f.host.GID, f.host.Home = 0, 0, "/root"
	return f
}

func in(f *fakeFacts, dir string) *fakeFacts {
	f.host.Dir = dir
	return f
}

type goldenCase struct {
	name   string
	policy policy.Policy
	facts  *fakeFacts
}

func goldenCases() []goldenCase {
	project := append(repository("/home/u/p/.git"), "/home/u/p/src/", "/home/u/p/.vscode/tasks.json", "/home/u/.gitconfig",
		"/home/u/.cache/go-build/", "/home/u/go/credentials")
	user := in(newSystem(project...), "/home/u/p/src")
	user.unreadable["/etc/shadow"] = true
	user.host.Environ = []string{
		"HOME=/home/u", "PATH=/usr/local/bin:/usr/bin:/bin:.", "LANG=C.UTF-8", "GITHUB_TOKEN=x",
		"PIP_INDEX_URL=https://u:p@pip.example/", "TERM=xterm",
	}

	worktree := append(repository("/home/u/main/.git"),
		"/home/u/p/.git=gitdir: /home/u/main/.git/worktrees/p\n",
		"/home/u/main/.git/worktrees/p/gitdir=/home/u/p/.git\n",
		"/home/u/main/.git/worktrees/p/commondir=../..\n",
		"/home/u/main/.git/worktrees/p/HEAD=ref: refs/heads/p")
	submodule := append(repository("/home/u/super/.git/modules/lib"),
		"/home/u/super/lib/.git=gitdir: ../.git/modules/lib\n",
		"/home/u/super/.git/config=[core]\n")
	submodule = append(submodule, "/home/u/super/.git/modules/lib/config=[core]\n\tworktree = ../../../lib\n")

	strict := policy.Policy{Filesystem: policy.Filesystem{
		AllowRead: []string{"/usr", "/bin", "/lib", "/lib64", "/etc"}, AllowWrite: []string{"."},
		DenyRead: []string{"/etc/ssl/private", "secrets"}, DenyWrite: []string{"vendor/lib"},
		AllowExecute: []string{"bin"}, StrictDenyRead: new(true),
	}}
	everything := policy.Policy{Filesystem: policy.Filesystem{
		DefaultDenyRead: new(false), DenyRead: []string{"~"}, AllowRead: []string{"~/.gitconfig"}, AllowWrite: []string{"."},
	}}
	open := basicPolicy()
	open.Network.AllowedDomains = []string{"*"}
	network := newSystem(repository("/home/u/p/.git")...)
	network.add("/run/resolve/stub.conf=nameserver 127.0.0.53")
	network.add("/etc/resolv.conf -> ../run/resolve/stub.conf")

	return []goldenCase{
		{"default-user", basicPolicy(), user},
		{"default-root", basicPolicy(), asRoot(in(newSystem(append(repository("/root/p/.git"), "/root/.gitconfig")...), "/root/p"))},
		{"project-in-tmp", basicPolicy(), in(newSystem(repository("/tmp/p/.git")...), "/tmp/p")},
		{"symlinked-home", basicPolicy(), in(newSystem(append(repository("/data/u/p/.git"), "/home/u2/", "/data/u/.gitconfig")...).linkHome(), "/data/u/p")},
		{"worktree", basicPolicy(), newSystem(worktree...)},
		{"submodule", basicPolicy(), in(newSystem(submodule...), "/home/u/super/lib")},
		{"strict", strict, newSystem(append(repository("/home/u/p/.git"), "/home/u/p/secrets/k", "/home/u/p/vendor/lib/", "/home/u/p/bin/")...)},
		{"bounds", bounded(basicPolicy(), policy.Filesystem{AllowRead: []string{"/usr", "/etc"}, AllowWrite: []string{"src"}}), user},
		{"read-everything", everything, newSystem(append(repository("/home/u/p/.git"), "/home/u/.gitconfig", "/srv/data")...)},
		{"host-network", open, network},
	}
}

// linkHome makes the home directory a link to /data/u.
func (f *fakeFacts) linkHome() *fakeFacts {
	for p := range f.files {
		if Covers("/home/u", p) {
			delete(f.files, p)
		}
	}
	f.add("/home/u -> ../data/u")
	return f
}

func TestGoldenSpecs(t *testing.T) {
	for _, g := range goldenCases() {
		t.Run(g.name, func(t *testing.T) {
			s, err := Compile(g.policy, g.facts, Command{Argv: []string{"make", "all"}})
			if err != nil {
				t.Fatal(err)
			}
			checkInvariants(t, s)
			got, err := json.MarshalIndent(s, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, g.name+".golden.json", append(got, '\n'))
		})
	}
}

func TestExplain(t *testing.T) {
	g := goldenCases()[0]
	s, err := Compile(g.policy, g.facts, Command{Argv: []string{"sh", "-c", "echo 'a b'"}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Explain(&b, s); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.golden.txt", []byte(b.String()))
}

// checkInvariants holds for every Spec.
func checkInvariants(t *testing.T, s *Spec) {
	t.Helper()
	targets := map[string]*Mount{}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		if targets[m.Target] != nil {
			t.Errorf("two mounts at %s", m.Target)
		}
		if i > 0 && comparePaths(s.Mounts[i-1].Target, m.Target) >= 0 {
			t.Errorf("%s stands before %s", s.Mounts[i-1].Target, m.Target)
		}
		if clean(m.Target) != m.Target || !strings.HasPrefix(m.Target, "/") || m.Target == "/" {
			t.Errorf("bad target %q", m.Target)
		}
		targets[m.Target] = m
		checkAround(t, s, m, targets)
	}
	if !slices.IsSorted(s.Env) {
		t.Errorf("environment is not sorted: %v", s.Env)
	}
	for _, must := range []string{"/proc", "/dev"} {
		if targets[must] == nil {
			t.Errorf("no %s", must)
		}
	}
}

// checkAround looks at the mount that m lies in: every directory between a
// writable one and m must be a mount, and nothing may lie in what is hidden.
func checkAround(t *testing.T, s *Spec, m *Mount, targets map[string]*Mount) {
	t.Helper()
	_, around := s.Access(filepath.Dir(m.Target))
	if around == nil {
		return
	}
	switch {
	case around.Kind == Hide || around.Kind == Symlink || around.File:
		t.Errorf("%s lies in %+v", m.Target, *around)
	case around.Kind == Bind && around.Write:
		if filepath.Dir(m.Target) != around.Target {
			t.Errorf("%s is not pinned: the mount around it is %s", m.Target, around.Target)
		}
		if m.Kind == Bind && m.Write && !m.Devices && m.Why != "pin" && !strings.HasPrefix(m.Why, "filesystem.allowWrite") {
			t.Errorf("%+v changes nothing", *m)
		}
	}
}
