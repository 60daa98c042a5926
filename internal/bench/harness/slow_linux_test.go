package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// slowSource is added to a build, to slow the start of the program by so many
// milliseconds.
const slowSource = `package spec

import "time"

func init() {
	for begin := time.Now(); time.Since(begin) < %d*time.Millisecond; {
	}
}
`

// The whole way: a build that is slower, the script, and the comparison. Two
// milliseconds are found on a machine that does nothing else; where other tests
// run beside this one, it takes more to be sure.
func TestASlowLaunchIsFoundAndNamed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Modules, testenv.NoRace, testenv.Program("hyperfine"))
	delay := testenv.Count(25, 2)
	root, dir := testenv.ModuleRoot(t), t.TempDir()
	fast, slow := filepath.Join(dir, "fast"), filepath.Join(dir, "slow")
	build(t, root, fast, nil)
	added := filepath.Join(dir, "slow.go")
	if err := os.WriteFile(added, fmt.Appendf(nil, slowSource, delay), 0o600); err != nil {
		t.Fatal(err)
	}
	build(t, root, slow, map[string]string{filepath.Join(root, "internal/spec/slow.go"): added})

	out := filepath.Join(dir, "out")
	runScript(t, root, "--gate", "--runs", "20", "--binary", filepath.Join(slow, "bailey"), "--against", filepath.Join(fast, "bailey"), "--output", out)
	runs, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	text, err := exec.Command(filepath.Join(fast, "bailey"), "bench", "compare", runs[0]).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the comparison does not fail: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		slower := strings.HasSuffix(strings.TrimSpace(line), "| slower |")
		switch {
		case strings.HasPrefix(line, "| true | bailey |") && !slower,
			strings.HasPrefix(line, "| launch | program start |") && !slower:
			t.Errorf("not found: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

func build(t *testing.T, root, to string, overlay map[string]string) {
	t.Helper()
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := to + ".overlay"
	if err := os.WriteFile(file, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"bailey", "baileyd"} {
		args := []string{"build", "-overlay", file, "-o", filepath.Join(to, program)}
		if program == "bailey" {
			args = append(args, "-ldflags", "-s -w -E github.com/bailey-sandbox/bailey/internal/sandbox/native.entry")
		}
		cmd := exec.Command("go", append(args, "./cmd/"+program)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func runScript(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts/benchmark.sh"), args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
