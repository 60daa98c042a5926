package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// ignoring makes a repository with a second work tree beside it, both of which hold
// files that are ignored by rules of every kind, and one that is tracked all the same.
func ignoring(t *testing.T) (dir, linked string) {
	t.Helper()
	dir = t.TempDir() + "/project"
	linked = filepath.Dir(dir) + "/linked"
	write(t, dir+"/.gitignore", "/build/\n*.tmp\n*.log\n")
	write(t, dir+"/deep/keep/.gitignore", "!b.log\n")
	write(t, dir+"/deep/kept.tmp", "tracked")
	runGit(t, dir, "init", "-q", "--object-format=sha256")
	runGit(t, dir, "add", "-A")
	runGit(t, dir, "add", "-f", "deep/kept.tmp")
	runGit(t, dir, "commit", "-qm", "one")
	runGit(t, dir, "worktree", "add", "-q", linked)
	write(t, dir+"/.git/info/exclude", "excluded\n")
	write(t, dir+"/.git/rules", "*.mine\n")
	runGit(t, dir, "config", "core.excludesFile", dir+"/.git/rules")
	for _, tree := range []string{dir, linked} {
		for _, name := range []string{"src/main.go", "build/inner/out", "notes.tmp", "deep/a.log", "deep/a.mine", "deep/excluded", "deep/keep/b.log", "deep/build/x"} {
			write(t, tree+"/"+name, name)
		}
	}
	return dir, linked
}

func TestWhatGitIgnoresIsLeftOut(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	s := newStore(t)
	dir, linked := ignoring(t)
	// A setting of the project that names a program must not be followed.
	runGit(t, dir, "config", "core.fsmonitor", "touch "+dir+"/pwned")
	const deep = "build/x keep/.gitignore keep/b.log kept.tmp"
	const whole = ".gitignore deep/build/x deep/keep/.gitignore deep/keep/b.log deep/kept.tmp src/main.go"
	outside := t.TempDir()
	write(t, outside+"/.gitignore", "*.log\n")
	write(t, outside+"/a.log", "")
	must(t, os.Symlink(linked+"/deep", outside+"/link"))
	for _, test := range []struct{ name, dir, want string }{
		{"tree", dir, whole},
		{"below", dir + "/deep", deep},
		{"linked", linked, ".git " + whole},
		{"below-linked", linked + "/deep", deep},
		{"by-link", outside + "/link", deep},
		{"none", outside, ".gitignore link"},
	} {
		c, err := s.ImportDirectory(test.dir, ImportOptions{Name: test.name, GitIgnore: true})
		must(t, err)
		if got := files(t, s.LayerTree(c.Layers[0])); got != test.want {
			t.Errorf("%s: imported\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
	if _, err := os.Lstat(dir + "/pwned"); err == nil {
		t.Error("a program of the project's settings was run")
	}
}

// files lists the files of a tree, without those of its repository.
func files(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	must(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		list = append(list, strings.TrimPrefix(name, dir+"/"))
		return nil
	}))
	return strings.Join(list, " ")
}

func TestWhatGitCannotTellIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	s := newStore(t)
	dir, linked := ignoring(t)
	moved, odd := t.TempDir(), t.TempDir()
	write(t, moved+"/.git", "gitdir: "+linked+"/moved\n")
	write(t, odd+"/.git", "something\n")
	for _, test := range []struct{ dir, want string }{
		{dir + "/build", "/project/build: git ignores all of it; "},
		{linked + "/build/inner", "/linked/build/inner: git ignores all of it; "},
		{moved, "/.git: there is no repository where it says: "},
		{odd, "/.git: it does not say where the repository is; "},
	} {
		_, err := s.ImportDirectory(test.dir, ImportOptions{Name: "one", GitIgnore: true})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "; import it without --gitignore") {
			t.Errorf("%s: %v, want %q", test.dir, err, test.want)
		}
	}
}
