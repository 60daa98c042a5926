package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// language runs the examples of one language, whose names are in its own style.
type language struct {
	name  string
	env   string
	argv  func(example string) []string
	needs []testenv.Requirement
}

func languages(t *testing.T) []language {
	root := testenv.ModuleRoot(t)
	file := func(program, suffix string) func(string) []string {
		return func(example string) []string {
			return []string{program, filepath.Join(root, "examples/sdk", example+suffix)}
		}
	}
	return []language{
		{"python", "PYTHONPATH=" + filepath.Join(root, "sdk/python/src"), file("/usr/bin/python3", ".py"), nil},
		{"node", "", nodeArgv(t, root), []testenv.Requirement{testenv.Program("node")}},
		{"go", "", goArgv(t, root), []testenv.Requirement{testenv.Modules}},
	}
}

// nodeArgv runs an example beside which the client is installed.
func nodeArgv(t *testing.T, root string) func(string) []string {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "sdk/typescript"), filepath.Join(dir, "node_modules/bailey-sandbox")); err != nil {
		t.Fatal(err)
	}
	return func(example string) []string {
		text, err := os.ReadFile(filepath.Join(root, "examples/sdk", example+".mjs"))
		file := filepath.Join(dir, example+".mjs")
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return []string{"node", file}
	}
}

// goArgv builds the examples when the first is run.
func goArgv(t *testing.T, root string) func(string) []string {
	program := filepath.Join(t.TempDir(), "examples")
	return func(example string) []string {
		if _, err := os.Stat(program); err != nil {
			build := exec.Command("go", "build", "-o", program, "./examples/sdk/go")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		return []string{program, strings.ReplaceAll(example, "_", "-")}
	}
}

func TestExamplesDoWhatTheySay(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("python3"))
	t.Setenv("BAILEYD", testenv.Binary(t, "baileyd"))
	t.Setenv("BAILEY_ADDRESS", "")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	plot := filepath.Join(t.TempDir(), "plot.svg")
	for _, l := range languages(t) {
		t.Run(l.name, func(t *testing.T) {
			testenv.Requires(t, l.needs...)
			for _, test := range []struct {
				example string
				args    []string
				want    []string // parts of the output
			}{
				{"run_tests", []string{dir, "cat a.txt; echo more >> a.txt; cat a.txt"}, []string{"one\none\nmore\n"}},
				{"data_analysis", []string{plot}, []string{"mean 3.88\n"}},
				{"fan_out", []string{dir, "cat a.txt; echo $INDEX", "5"}, []string{"0 0 one\n0\n", "4 0 one\n4\n"}},
				{"agent_loop", []string{dir}, []string{"$ ls; cd /tmp\na.txt\n", "/tmp\n", "[exit status 2]", "I saw the error."}},
				{"fork_and_try", []string{dir, "grep -q two a.txt", "echo two > a.txt", "true"}, []string{"works: echo two > a.txt\n", "fails: true\n"}},
			} {
				argv := append(l.argv(test.example), test.args...)
				command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				command.Env, command.Dir = append(os.Environ(), l.env), t.TempDir()
				out, err := command.CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v\n%s", test.example, err, out)
				}
				for _, part := range test.want {
					if !strings.Contains(string(out), part) {
						t.Errorf("%s: there is no %q in\n%s", test.example, part, out)
					}
				}
			}
			if picture, err := os.ReadFile(plot); err != nil || !strings.HasPrefix(string(picture), "<svg ") {
				t.Errorf("the picture: %v, %.40q", err, picture)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(text) != "one\n" {
				t.Errorf("the directory was changed: %q, %v", text, err)
			}
			_ = os.Remove(plot)
		})
	}
}
