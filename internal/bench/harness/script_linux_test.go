package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestWhatTheScriptCannotDoItSays, at once and before it has made anything.
func TestWhatTheScriptCannotDoItSays(t *testing.T) {
	testenv.Requires(t, testenv.Modules, testenv.Program("hyperfine"), testenv.Program("python3"))
	root := testenv.ModuleRoot(t)
	for _, c := range []struct {
		args, path, want string
		status           int
	}{
		{"--frobnicate", "", "--frobnicate: no such option", 2},
		{"--peers=", "", "--peers=: no such option", 2},
		{"--peers=vault", "", "--peers: vault is none of", 1},
		{"--binary /no/such/directory/bailey", "", "--binary /no/such/directory/bailey: not a program", 1},
		{"--binary /etc", "", "--binary /etc: not a program", 1},
		{"--against /etc/passwd", "", "--against /etc/passwd: not a program", 1},
		{"--binary /no/such/directory/bailey", "", "workspace-bench.sh: --binary /no/such/directory/bailey: not a program", 1},
		{"--frobnicate", "", "workspace-bench.sh: --frobnicate: no such option", 2},
		{"--output", "", "--output needs a directory", 1},
		{"--runs 1.5", "", "--runs 1.5: not a number of rounds", 1},
		{"--gate --work", "", "--gate and --work: a run is one of them", 1},
		{"--resident --network", "", "--resident measures nothing else", 1},
		{"--gate", "bash dirname basename id realpath", "not installed, and needed: go git python3 hyperfine (from", 1},
		{"--gate", "bash dirname basename id realpath go git hyperfine python3", "not installed, and needed: make", 1},
		{"--gate --binary /bin/true --output /dev/null/x", "", "/dev/null", 1},
	} {
		script := "scripts/benchmark.sh"
		if strings.HasPrefix(c.want, "workspace-bench") {
			script = "scripts/bench/workspace-bench.sh"
		}
		cmd := exec.Command(filepath.Join(root, script), strings.Fields(c.args)...)
		cmd.Dir = root
		if c.path != "" {
			cmd.Env = append(os.Environ(), "PATH="+onlyPrograms(t, c.path))
		}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.status || !strings.Contains(lastLine(out), c.want) {
			t.Errorf("%s: got %v and %q, want %d and %q", c.args, err, lastLine(out), c.status, c.want)
		}
		if left := leftBy(cmd, root); left != "" {
			t.Errorf("%s: %s is there", c.args, left)
		}
	}
}

// leftBy returns the directories that a script worked in, if they are still there.
func leftBy(cmd *exec.Cmd, root string) string {
	for _, dir := range []string{filepath.Join(root, "benchmarks/work"), filepath.Join(os.Getenv("HOME"), ".cache/bailey-benchmark"), "/tmp/benchmark"} {
		if found, err := filepath.Glob(fmt.Sprintf("%s.%d*", dir, cmd.Process.Pid)); err != nil || len(found) > 0 {
			return fmt.Sprint(found, err)
		}
	}
	return ""
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// onlyPrograms makes a directory with these programs and nothing else.
func onlyPrograms(t *testing.T, names string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range strings.Fields(names) {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// interrupted is a hyperfine during which somebody presses Ctrl-C, and that does not
// end by itself.
const interrupted = `#!/bin/sh
[ "$1" != --version ] || exit 0
echo "$@" >"$SEEN"
kill -INT -$PPID
exec sleep 60
`

func TestCtrlCLeavesNothing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Modules, testenv.NoRace, testenv.Program("hyperfine"), testenv.Program("python3"))
	root, dir := testenv.ModuleRoot(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hyperfine"), []byte(strings.ReplaceAll(interrupted, "$SEEN", dir+"/seen")), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "scripts/benchmark.sh"), "--gate", "--network", "--binary", testenv.Binary(t, "bailey"), "--output", filepath.Join(dir, "out"))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // which the signal is for
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 || !exists(filepath.Join(dir, "seen")) {
		t.Fatalf("got %v, want 130 once commands are measured: %s", err, &out)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("some of its processes are there: %v", err)
	}
	if left := leftBy(cmd, root); left != "" {
		t.Errorf("%s is there", left)
	}
}
