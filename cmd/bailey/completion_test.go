package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestBashCompletes(t *testing.T) {
	testenv.Requires(t, testenv.Program("bash"))
	b := newBench(t)
	b.write("some file", "", 0o644)
	const script = `eval "$(cat completion)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bailey; printf '%s\n' "${COMPREPLY[@]}"`
	b.write("completion", bashCompletion(), 0o644)
	for _, c := range []struct {
		words []string
		want  string // one of the completions
		not   string // none of them
	}{
		{[]string{"--al"}, "--allow-read", "--env"},
		{[]string{"-"}, "-c", "config"},
		{[]string{"-t", "code-"}, "code-strict", "code"},
		{[]string{"--runtime", "na"}, "native", "auto"},
		{[]string{"--env", "HOM"}, "HOME", ""},
		{[]string{"-s", "compl"}, "completion", ""},
		{[]string{"conf"}, "config", "help"},
		{[]string{"config", "s"}, "schema", "init"},
		{[]string{"trust", "--r"}, "--revoke", "--yes"},
		{[]string{"-q", "completion", ""}, "fish", "--quiet"},
		{[]string{"presets", "show", "lo"}, "locked", "code"},
		{[]string{"--", "bas"}, "bash", "config"},
		{[]string{"ba"}, "bash", ""},
		{[]string{"-q", "cat", "compl"}, "completion", ""},
		{[]string{"--", "cat", "compl"}, "completion", ""},
	} {
		cmd := exec.Command("bash", append([]string{"--norc", "-c", script, "bash", "bailey"}, c.words...)...)
		cmd.Dir, cmd.Env = b.dir, b.env
		out, err := cmd.Output()
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || !slices.Contains(got, c.want) || c.not != "" && slices.Contains(got, c.not) {
			t.Errorf("%q: got %.200q (%v), want %q and not %q", c.words, got, err, c.want, c.not)
		}
	}
}

func TestFishCompletes(t *testing.T) {
	testenv.Requires(t, testenv.Program("fish"))
	b := newBench(t)
	b.write("completion", fishCompletion(), 0o644)
	for line, want := range map[string]string{
		"bailey --allow-r":    "--allow-read",
		"bailey -t code-":     "code-strict",
		"bailey conf":         "config",
		"bailey config sch":   "schema",
		"bailey -- bas":       "bash",
		"bailey cat --no-suc": "",
	} {
		cmd := exec.Command("fish", "--no-config", "-c", "source completion; complete -C '"+line+"'")
		cmd.Dir, cmd.Env = b.dir, b.env
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains("\n"+string(out), "\n"+want) {
			t.Errorf("%s: got %.200q (%v), want %q", line, out, err, want)
		}
	}
}

func TestZshCompletionParses(t *testing.T) {
	testenv.Requires(t, testenv.Program("zsh"))
	file := filepath.Join(t.TempDir(), "_bailey")
	if err := os.WriteFile(file, []byte(zshCompletion()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("zsh", "-f", "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCompletionOfAnUnknownShellIsAnError(t *testing.T) {
	b := newBench(t)
	b.run("completion", "tcsh").wantError(t, "there are bash, zsh and fish")
	b.run("completion").wantError(t, "usage")
}
