package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
// milliseconds are for long runs; beside other tests more are found sooner.
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

	// On a machine that is busy it takes more rounds to be sure.
	text := ""
	for _, rounds := range []string{"20", "60", "180"} {
		out := filepath.Join(dir, "out-"+rounds)
		runScript(t, root, "--gate", "--runs", rounds, "--binary", filepath.Join(slow, "bailey"), "--against", filepath.Join(fast, "bailey"), "--output", out)
		var found bool
		if found, text = isFoundSlow(t, filepath.Join(fast, "bailey"), out); found {
			return
		}
	}
	t.Errorf("not found, or not named:\n%s", text)
}

// isFoundSlow says whether a comparison fails, because of launches, and names the
// part of them that takes longer.
func isFoundSlow(t *testing.T, bailey, out string) (found bool, text string) {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	table, err := exec.Command(bailey, "bench", "compare", runs[0]).CombinedOutput()
	var exit *exec.ExitError
	found = errors.As(err, &exit) && exit.ExitCode() == 1
	for _, row := range []string{"| true | bailey |", "| launch | program start |"} {
		found = found && slices.ContainsFunc(strings.Split(string(table), "\n"), func(line string) bool {
			return strings.HasPrefix(line, row) && strings.HasSuffix(line, "| slower |")
		})
	}
	return found, string(table)
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
