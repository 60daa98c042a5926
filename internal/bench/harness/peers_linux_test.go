package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Sandboxes of others that are broken in one way each, by the flags that
// scripts/bench/peers.sh gives them.
var brokenPeers = map[string]string{
	"firejail": "echo 'no permission to do it' >&2; exit 1",
	// It is quick, and runs nothing.
	"fence": "exit 0",
	// It runs the command, but not as it runs outside.
	"landrun": `shift 10; echo noise; exec "$@"`,
	// It fails once, in the first round that counts: it was tried, asked for its
	// version, and ran each of three workloads twice before.
	"greywall": `shift; echo >>"$0.count"; "$@"; [ "$(wc -l <"$0.count")" != 9 ]`,
	// It holds nothing.
	"bwrap": `while [ "$1" != --bind ]; do shift; done; shift 3; exec "$@"`,
}

func TestPeersThatAreBrokenAreToldAndNotTimed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Modules, testenv.NoRace, testenv.Program("hyperfine"), testenv.Program("python3"))
	root, dir := testenv.ModuleRoot(t), t.TempDir()
	for name, script := range brokenPeers {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	names := "bwrap,firejail,fence,landrun,greywall"
	// Who has it installed cannot be told that it is missing.
	const missing = "sandlock"
	if _, err := exec.LookPath(missing); err != nil && !exists(filepath.Join(root, ".cache/peers/bin", missing)) {
		names += "," + missing
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out := filepath.Join(dir, "out")
	runScript(t, root, "--gate", "--runs", "2", "--peers="+names, "--binary", testenv.Binary(t, "bailey"), "--output", out)

	r := onlyReport(t, out)
	w := r.Workloads[0]
	for name, want := range map[string]string{
		"firejail": "did not run the command: no permission to do it",
		"fence":    "did not run the command: it says nothing",
		"landrun":  "printed something else than outside: > noise",
		"greywall": "failed in 1 of 2 rounds",
		missing:    "not installed",
	} {
		if !strings.Contains(names, name) {
			continue
		}
		if got := w.Absent[name]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if w.Find(name) != nil {
			t.Errorf("%s has times", name)
		}
	}
	if len(w.Find("bwrap")) != 2 || len(w.Find(bench.Bailey)) != 2 {
		t.Errorf("what works was not measured: %+v", w)
	}
	// A peer that holds nothing cannot be told from no sandbox at all.
	for _, s := range r.Sandboxes {
		got, isOpen := s.Tried["write elsewhere"]+", "+s.Tried["host loopback"], s.Name != bench.Bailey
		if want := map[bool]string{true: "written, reached", false: "refused, refused"}[isOpen]; got != want {
			t.Errorf("%s: got %q, want %q", s.Name, got, want)
		}
	}
}

// onlyReport reads the one report of a directory, which is what the schema says.
func onlyReport(t *testing.T, dir string) *bench.Report {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err == nil {
		err = validate(testenv.Schema(t, "benchmark.schema.json"), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Read(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}
