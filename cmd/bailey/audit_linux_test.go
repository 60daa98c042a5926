package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/probe"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestAuditEndsWithOneLineThatSaysIt(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	overlay := b.write("../overlay.jsonc", `{"extends": "default", "workspace": {"mode": "overlay"}, "resources": {"disk": "8M"}}`, 0o644)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	for _, args := range [][]string{{"audit"}, {"-t", "offline", "audit"}, {"audit", "-t", "locked"}, {"audit", "-s", overlay}} {
		got := b.run(args...)
		var stopped, all int
		words := strings.Fields(lastLine(got.stdout))
		if len(words) > 2 {
			stopped, all = atoi(t, words[0]), atoi(t, words[2])
		}
		if got.status != 0 || stopped < 50 || stopped != all || !strings.Contains(got.stdout, " attacks were stopped") {
			t.Errorf("%q: status %d\n%s%s", args, got.status, got.stdout, got.stderr)
		}
		if strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%q: colours, but stdout is no terminal", args)
		}
	}
	for _, dir := range []string{b.dir, b.home + "/data/workspaces", b.home + "/data/tmp"} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

func atoi(t *testing.T, text string) (n int) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatalf("%q is no number: %v", text, err)
	}
	return n
}

func TestAuditTellsGrantsFromWaysOut(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	got := b.run("--allow-network", "audit", "--json")
	if got.status != 0 || got.stderr != "" {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	results := map[string]probe.Result{}
	for line := range strings.Lines(got.stdout) {
		var f probe.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		results[f.Attack] = f.Result
	}
	for attack, want := range map[string]probe.Result{
		"TCP to the host's 127.0.0.1":      probe.Granted,
		"reach another machine":            probe.Granted,
		"abstract unix socket of the host": probe.Stopped,
		"create .envrc":                    probe.Stopped,
		"write outside the project":        probe.Stopped,
	} {
		if results[attack] != want {
			t.Errorf("%s: got %q, want %q", attack, results[attack], want)
		}
	}
}

// The attacks must not be run on the host itself.
func TestAuditAttacksNothingButASandbox(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("audit", probe.InsideWord).wantError(t, "audit takes no argument inside")
	b.env = append(b.env, "BAILEY=1")
	b.run("audit", probe.InsideWord).wantError(t, "audit takes no argument inside")
}

func TestAuditInASandboxIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	program := testenv.Binary(t, "bailey")
	b.run("--allow-read", program, "--", program, "audit").want(t, exitOwn, "", "bailey: "+errInside.Error()+"\n")
}

func TestAuditWithoutAWallDoesNotRun(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	b.withSetting("echo 0 >/proc/sys/user/max_net_namespaces", []string{"-Ur"}, "-q", "audit").
		wantError(t, "wall that is missing", "nothing ran")
}

func TestAuditRemovesWhatAKilledOneLeft(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	left := func() []string {
		names, err := filepath.Glob(filepath.Join(b.dir, ".bailey-audit-*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	// Killed the moment that it has made something, unless it was faster.
	for tries := 0; len(left()) == 0; tries++ {
		if tries == 20 {
			t.Fatal("no audit was killed in time")
		}
		killed := b.command("audit")
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); len(left()) == 0 && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond)
		}
		_ = killed.Process.Kill()
		_ = killed.Wait()
	}
	if got := b.run("audit"); got.status != 0 || len(left()) > 0 {
		t.Errorf("status %d, left %q: %s", got.status, left(), got.stderr)
	}
}
