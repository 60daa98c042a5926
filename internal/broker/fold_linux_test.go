package broker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// spelledWays are ways to protected names in other case. They are tried in a
// project that has .git/hooks, config/token.key and config/fixed.lock.
var spelledWays = []struct {
	name string
	way  func() error
}{
	{"create a name", func() error { return openAndClose(".ENVRC", unix.O_WRONLY|unix.O_CREAT) }},
	{"create a name with a long s", func() error { return openAndClose("ſub/x.LOC\u212a", unix.O_WRONLY|unix.O_CREAT) }},
	{"create a name by a path that leads back", func() error { return openAndClose("sub/../.Envrc", unix.O_WRONLY|unix.O_CREAT) }},
	{"mkdir", func() error { return unix.Mkdir(".VSCode", 0o777) }},
	{"mkdir and a name in it", func() error {
		return errors.Join(unix.Mkdir(".Config", 0o777), unix.Mkdir(".Config/Fish", 0o777))
	}},
	{"rename to", func() error { return unix.Rename("plain", ".Mcp.Json") }},
	{"link", func() error { return unix.Link("plain", ".Mcp.Json") }},
	{"symlink", func() error { return unix.Symlink("sub", ".VSCODE") }},
	{"a hook", func() error { return openAndClose(".GIT/HOOKS/pre-commit", unix.O_WRONLY|unix.O_CREAT) }},
	{"rename what holds the hooks", func() error { return unix.Rename(".Git", "moved") }},
	{"rename the hooks", func() error { return unix.Rename(".git/Hooks", "moved") }},
	{"truncate what a pattern denies", func() error { return unix.Truncate("CONFIG/FIXED.LOCK", 0) }},
	{"write what a pattern denies", func() error { return openAndClose("Config/fixed.Lock", unix.O_WRONLY|unix.O_TRUNC) }},
	{"remove what a pattern denies", func() error { return unix.Unlink("config/FIXED.lock") }},
	{"make what a pattern denies", func() error { return openAndClose("sub/other.LOCK", unix.O_WRONLY|unix.O_CREAT) }},
	{"read what a pattern denies", func() error { return show("config/TOKEN.KEY") }},
	{"read by an absolute path", func() error {
		dir, err := os.Getwd()
		return errors.Join(err, show(dir+"/CONFIG/token.Key"))
	}},
	{"read what capitals deny", func() error { return show("readme.PRIVATE") }},
}

func show(name string) error {
	data, err := os.ReadFile(name)
	fmt.Printf("%s", data)
	return err
}

const spellWord = "spell-names"

func init() {
	if len(os.Args) != 3 || os.Args[1] != spellWord {
		return
	}
	for _, w := range spelledWays {
		if w.name == os.Args[2] {
			if err := w.way(); err != nil {
				fmt.Println(err)
			} else {
				fmt.Println("done")
			}
		}
	}
	unix.Exit(0)
}

func fillSpelled(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"sub", "config", ".git/hooks", ".git/objects", ".git/refs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"plain": "text", "config/token.key": spelledSecret, "README.private": spelledSecret, "config/fixed.lock": "locked",
		".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const spelledSecret = "the secret"

func TestProtectionHoldsInAnyCase(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	dir := filepath.Join(base, "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAnyCase(t, dir)
	fillSpelled(t, dir)
	program := filepath.Join(dir, "program")
	copySelf(t, program)
	before := shape(t, dir)
	m := bailey.New(bailey.Config{Dir: dir, Policy: `{"filesystem": {
		"denyRead": ["**/*.key", "**/README.private"], "denyWrite": ["**/*.lock"]}}`})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	for _, w := range spelledWays {
		t.Run(w.name, func(t *testing.T) {
			out, err := m.Command(program, spellWord, w.name).CombinedOutput()
			if err != nil || strings.Contains(string(out), spelledSecret) || strings.HasSuffix(string(out), "done\n") {
				t.Errorf("got %q (%v), want an error", out, err)
			}
			after := shape(t, dir)
			if w.name == "mkdir and a name in it" {
				_ = os.Remove(filepath.Join(dir, ".config"))
				after = shape(t, dir)
			}
			if !strings.EqualFold(after, before) {
				t.Errorf("got\n%swant\n%s", after, before)
			}
		})
	}
}

// Where names in other case are other files, they are nobody's business.
func TestOtherCaseIsAnotherFile(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	trial := newTrial(t, filepath.Join(base, "project"))
	fillSpelled(t, trial.dir)
	m := bailey.New(bailey.Config{Dir: trial.dir, Policy: `{"filesystem": {"denyRead": ["**/*.key"], "denyWrite": ["**/*.lock"]}}`})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	for _, name := range []string{"create a name", "mkdir", "rename to", "symlink", "make what a pattern denies"} {
		out, err := m.Command(trial.program, spellWord, name).CombinedOutput()
		if err != nil || string(out) != "done\n" {
			t.Errorf("%s: got %q (%v), want it done", name, out, err)
		}
	}
}
