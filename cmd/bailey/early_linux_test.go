package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// What the program begins before it knows its arguments must not be seen by
// anybody: not by those who asked for something else, and not in errors.

func TestWhatIsNotLaunchedLeavesNoProcess(t *testing.T) {
	b := newBench(t)
	program := ownCopy(t)
	for _, argv := range [][]string{
		{"presets"},
		{"explain", "--", "true"},
		{"config", "show"},
		{"-c"},
		{"--no-such-flag", "--", "true"},
		{"--settings", "/nowhere", "--", "true"},
		{"--allow-write", "/proc", "--", "true"},
		{"--", "no-such-program"},
		{"--", "true"},
	} {
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			cmd := exec.Command(program, argv...)
			cmd.Dir, cmd.Env = b.dir, b.env
			_ = cmd.Run()
			waitForNone(t, program)
		})
	}
}

// ownCopy is the program under a name that no other test's processes have.
func ownCopy(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "bailey")
	// By another program: a file that is open for writing in a child of ours, if
	// only for a moment, cannot be executed.
	if out, err := exec.Command("cp", testenv.Binary(t, "bailey"), program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func TestKilledAtAnyMomentItLeavesNoProcess(t *testing.T) {
	b := newBench(t)
	program := ownCopy(t)
	for i := range testenv.Count(60, 2000) {
		cmd := exec.Command(program, "--", "sh", "-c", "sleep 1000", program)
		cmd.Dir, cmd.Env = b.dir, b.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%60) * 100 * time.Microsecond) // from before the runtime starts until after the command does
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	waitForNone(t, program)
}

func TestEachMissingNamespaceIsNamed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	program := testenv.Binary(t, "bailey")
	for kind, wall := range map[string]string{
		"user": "user namespace", "pid": "user namespace", "mnt": "mount namespace", "ipc": "ipc namespace",
		"uts": "uts namespace", "cgroup": "cgroup namespace", "net": "network namespace",
	} {
		t.Run(kind, func(t *testing.T) {
			line := "echo 0 >/proc/sys/user/max_" + kind + "_namespaces && exec " + program + " --runtime native -- echo it ran"
			cmd := exec.Command("unshare", "--user", "--map-root-user", "sh", "-c", line)
			cmd.Dir, cmd.Env = b.dir, b.env
			out, err := cmd.CombinedOutput()
			if err == nil || strings.Contains(string(out), "it ran\n") || !strings.Contains(string(out), "the wall that is missing: "+wall) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// waitForNone waits until no process runs a program. One that died with its parent
// may take a moment.
func waitForNone(t *testing.T, program string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		left := processesOf(t, program)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", left)
		}
	}
}

// processesOf lists processes that were started with this name, or have it as an
// argument.
func processesOf(t *testing.T, program string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), program) {
			found = append(found, file)
		}
	}
	return found
}
