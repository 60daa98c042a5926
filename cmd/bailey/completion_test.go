package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// completions are lines as somebody types them, and all that a shell may offer
// for the last word. The files are those of completionBench.
var completions = []struct {
	line string
	want []string
}{
	{"bailey --allow-re", []string{"--allow-read"}},
	{"bailey -t code-", []string{"code-strict"}},
	{"bailey --preset lock", []string{"locked"}},
	{"bailey --preset=lock", []string{"--preset=locked"}},
	{"bailey -qt lock", []string{"locked"}},
	{"bailey --runtime na", []string{"native"}},
	{"bailey --env ZZ_", []string{"ZZ_VARIABLE"}},
	{"bailey --env=ZZ_", []string{"--env=ZZ_VARIABLE"}},
	{"bailey --dir zz-", []string{"zz-dir"}},
	{"bailey --dir=zz-", []string{"--dir=zz-dir"}},
	{"bailey -s zz-", []string{"zz-dir", "zz-file", "zz-with space"}},
	{"bailey --allow-read zz-f", []string{"zz-file"}},
	{"bailey --allow-read=zz-f", []string{"--allow-read=zz-file"}},
	{"bailey --shell zz-t", []string{"zz-tool"}},
	{"bailey -c zz-", nil},

	{"bailey prese", []string{"presets"}},
	{"bailey --dir zz-dir prese", []string{"presets"}},
	{"bailey --dir=zz-dir -qt locked prese", []string{"presets"}},
	{"bailey presets s", []string{"show"}},
	{"bailey presets show code-", []string{"code-strict"}},
	{"bailey presets show locked code-", nil},
	{"bailey config ", []string{"init", "path", "schema", "show", "validate"}},
	{"bailey config validate zz-f", []string{"zz-file"}},
	{"bailey config validate zz-file zz-f", []string{"zz-file"}},
	{"bailey config show zz-", nil},
	{"bailey help prese", []string{"presets"}},
	{"bailey completion z", []string{"zsh"}},
	{"bailey shell zz-", nil},
	{"bailey trust zz-f", []string{"zz-file"}},
	{"bailey trust --li", []string{"--list"}},
	{"bailey trust --revoke zz-f", []string{"zz-file"}},
	{"bailey trust --allow-re", []string{"--allow-read"}},
	{"bailey presets --revo", nil},
	{"bailey --js", []string{"--json"}},
	{"bailey -m --js", []string{"--json"}},
	{"bailey presets --js", nil},
	{"bailey --overl", []string{"--overlay"}},
	{"bailey --overlay zz-t", []string{"zz-tool"}},
	{"bailey shell --overl", []string{"--overlay"}},
	{"bailey ws sq", []string{"squash"}},
	{"bailey ws diff --pat", []string{"--patch"}},
	{"bailey ws diff name zz-f", []string{"zz-file"}},
	{"bailey ws undo name zz-", nil},
	{"bailey learn --pro", []string{"--prove"}},
	{"bailey learn --save zz-f", []string{"zz-file"}},
	{"bailey learn --prove zz-t", []string{"zz-tool"}},

	{"bailey zz-t", []string{"zz-tool"}},
	{"bailey -- zz-t", []string{"zz-tool"}},
	{"bailey -- prese", nil},
	{"bailey zz-dir/in", []string{"zz-dir/inner"}},
	{"bailey -- zz-dir/in", []string{"zz-dir/inner"}},
	{"bailey -q zz-tool zz-f", []string{"zz-file"}},
	{"bailey -- zz-tool zz-f", []string{"zz-file"}},
	{"bailey zz-tool --allow-re", nil},
	{"bailey explain --js", []string{"--json"}},
	{"bailey explain zz-t", []string{"zz-tool"}},
	{"bailey explain --json -- zz-t", []string{"zz-tool"}},
	{"bailey explain zz-tool zz-f", []string{"zz-file"}},
}

func completionBench(t *testing.T, script string) *bench {
	t.Helper()
	b := newBench(t)
	for _, dir := range []string{filepath.Join(b.home, "bin"), filepath.Join(b.dir, "zz-dir")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.write("zz-file", "", 0o644)
	b.write("zz-with space", "", 0o644)
	b.write("zz-dir/inner", "#!/bin/sh\n", 0o755)
	b.write("../home/bin/zz-tool", "#!/bin/sh\n", 0o755)
	b.write("completion", script, 0o644)
	b.env = append(b.env, "PATH="+b.home+"/bin:/usr/bin:/bin", "ZZ_VARIABLE=1", "TERM=dumb", "INPUTRC=/dev/null")
	return b
}

// checkCompletion compares what a shell offers with the table.
func checkCompletion(t *testing.T, line string, got, want []string) {
	t.Helper()
	for i := range got {
		got[i] = strings.TrimSuffix(got[i], "/") // not all mark a directory
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%q: got %.300q, want %q", line, got, want)
	}
}

func TestFishCompletes(t *testing.T) {
	testenv.Requires(t, testenv.Program("fish"))
	b := completionBench(t, fishCompletion())
	for _, c := range completions {
		cmd := exec.Command("fish", "--no-config", "-c", "source completion; complete -C $argv", c.line)
		cmd.Dir, cmd.Env = b.dir, b.env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", c.line, err, out)
		}
		typed := c.line[strings.LastIndexByte(c.line, ' ')+1:]
		var got []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if strings.HasPrefix(word, typed) { // fish has also words that are only alike
				got = append(got, word)
			}
		}
		checkCompletion(t, c.line, got, c.want)
	}
}

func TestCompletionOfAnUnknownShellIsAnError(t *testing.T) {
	b := newBench(t)
	b.run("completion", "tcsh").wantError(t, "there are bash, zsh and fish")
	b.run("completion").wantError(t, "usage")
}

func TestCompletionsKnowEveryFlagAndVerb(t *testing.T) {
	for name, script := range map[string]string{"bash": bashCompletion(), "zsh": zshCompletion(), "fish": fishCompletion()} {
		for _, f := range everyFlag() {
			for _, s := range f.spellings() {
				if !strings.Contains(script, s) {
					t.Errorf("%s does not know %s", name, s)
				}
			}
		}
		for _, v := range verbNames() {
			if !strings.Contains(script, "/"+v) {
				t.Errorf("%s does not know %s", name, v)
			}
		}
		if left := regexp.MustCompile("@[A-Z]+@").FindString(script); left != "" {
			t.Errorf("%s has %s in it", name, left)
		}
	}
}
