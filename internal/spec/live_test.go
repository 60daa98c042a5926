package spec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// liveRepository makes a git repository of the shape git init leaves, and
// returns facts with it as the working directory.
func liveRepository(t testing.TB) *host.Facts {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{".git/hooks", ".git/objects", ".git/refs", ".git/info", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{".git/HEAD", ".git/config", ".git/hooks/pre-commit.sample", "main.go"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("[core]\n\tbare = false\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	facts, err := host.New()
	if err != nil {
		t.Fatal(err)
	}
	facts.Caller.Dir = dir
	return facts
}

func TestDefaultCompilesOnThisHost(t *testing.T) {
	facts := liveRepository(t)
	s, err := spec.Compile(policy.Default(), facts, spec.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := facts.Caller.Dir
	for path, want := range map[string]spec.Access{
		dir:                                  spec.AccessWrite,
		filepath.Join(dir, "src"):            spec.AccessWrite,
		filepath.Join(dir, ".git"):           spec.AccessWrite,
		filepath.Join(dir, ".git/index"):     spec.AccessWrite,
		filepath.Join(dir, ".git/config"):    spec.AccessRead,
		filepath.Join(dir, ".git/hooks"):     spec.AccessRead,
		filepath.Join(dir, ".git/hooks/x"):   spec.AccessRead,
		"/usr/bin/env":                       spec.AccessRead,
		"/etc/passwd":                        spec.AccessRead,
		"/var/lib":                           spec.AccessNone,
		"/tmp":                               spec.AccessPrivate,
		filepath.Join(dir, ".git/objects/a"): spec.AccessWrite,
	} {
		if got, m := s.Access(path); got != want {
			t.Errorf("%s is %v by %+v, want %v", path, got, m, want)
		}
	}
	for _, m := range s.Mounts {
		if m.Kind != spec.Bind && m.Kind != spec.Private {
			continue
		}
		info, err := os.Lstat(m.Source)
		if err != nil {
			t.Errorf("source of %+v: %v", m, err)
		} else if info.IsDir() == m.File || info.Mode().Type() == os.ModeSymlink {
			t.Errorf("%+v does not fit a source of mode %v", m, info.Mode())
		}
	}
}

func TestWorktreesThatGitMakesAreRecognised(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("requires git")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	main, linked := filepath.Join(dir, "main"), filepath.Join(dir, "linked")
	for _, args := range [][]string{
		{"init", "-q", main},
		{"-C", main, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "x"},
		{"-C", main, "worktree", "add", "-q", linked},
	} {
		if out, err := exec.Command(git, args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	facts := liveRepository(t)
	facts.Caller.Dir = linked
	s, err := spec.Compile(policy.Default(), facts, spec.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]spec.Access{
		".git/objects": spec.AccessWrite, ".git/worktrees/linked/index": spec.AccessWrite, ".git/hooks": spec.AccessRead, ".git/config": spec.AccessRead,
		".git/worktrees/linked/commondir": spec.AccessRead, ".git/worktrees/linked/gitdir": spec.AccessRead,
	} {
		if got, m := s.Access(filepath.Join(main, path)); got != want {
			t.Errorf("%s is %v by %+v, want %v", path, got, m, want)
		}
	}
	if got, _ := s.Access(filepath.Join(linked, ".git")); got != spec.AccessRead {
		t.Errorf(".git of the worktree is %v", got)
	}
}

func BenchmarkCompile(b *testing.B) {
	facts := liveRepository(b)
	p := policy.Default()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := spec.Compile(p, facts, spec.Command{Argv: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
	}
}
