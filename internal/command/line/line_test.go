package line

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func rules(deny ...string) *command.Rules {
	l := command.List{Reach: command.ReachArgv, Allow: []command.Entry{{Text: "git push origin docs"}}}
	for _, text := range deny {
		l.Deny = append(l.Deny, command.Entry{Text: text})
	}
	return l.Compile()
}

func TestDeniedCommandsAreFoundInALine(t *testing.T) {
	r := rules("git push", "rm")
	for _, line := range []string{
		"git push",
		"git push origin main",
		"ls; git push",
		"ls && git push || true",
		"true | git push",
		"git push &",
		"ls\ngit push",
		"! git push",
		"(cd x; git push)",
		"{ git push; }",
		"if true; then git push; fi",
		"for x in 1 2; do git push; done",
		"while git push; do :; done",
		"case x in x) git push;; esac",
		"echo $(git push)",
		"echo \"$(git push)\"",
		"echo `git push`",
		"x=$(git push)",
		"export x=$(git push)",
		"echo ${x:-$(git push)}",
		"cat <(git push)",
		"echo $(( $(git push) + 1 ))",
		"[[ -n $(git push) ]]",
		"cat <<E\n$(git push)\nE",
		"time git push",
		"coproc git push",
		"X=1 git push",
		"env X=1 git push",
		"sudo -u me git push",
		"nohup nice -n 3 git push > log 2>&1 &",
		"g\\it push",
		"'git' \"pu\"sh",
		"$'git' push",
		"git \\\n push",
		"git -C \"$dir\" push fork",
		"git \"--git-dir=$dir\" push fork",
		"\"$HOME/bin/git\" push",
		"/usr/bin/git push",
		"sh -c 'git push'",
		"sh -c \"git push\"",
		"bash -lc \"cd $dir && git push\"",
		"sh -c \"sh -c 'git push'\"",
		"eval 'git push'",
		"trap 'git push' EXIT",
		"exec git push",
		"command git push",
		"find . -exec rm {} \\;",
		"find . -name '*.o' -exec rm {} +",
		"find . -name *.o -exec rm {} +",
		"ls | xargs rm",
		"sh <<E\ngit push\nE",
		"sh <<'E'\ngit push\nE",
		"bash <<E\ngit \\\\push\nE",
		"sudo bash -s x <<-E\n\tgit push\nE",
		"bash -e <<E\ngit -C \"$x\" push fork\nE",
		"sh <<< 'git push'",
		"f() { git push; }; f",
		"rm $x",
		"rm *",
		"rm \"$@\"",
		"timeout \"$t\" rm x",
		"git push origin main --tags $x",
	} {
		if v := Judge(r, line); v.Allowed {
			t.Errorf("%q: got allowed, want a refusal", line)
		}
	}
}

func TestLinesThatAreNotCertainToBeDeniedRun(t *testing.T) {
	r := rules("git push", "rm", "sh")
	for _, line := range []string{
		"",
		"git pull",
		"git log --grep push",
		"git checkout push",
		"echo git push",
		"echo 'git push'",
		"grep -r \"git push\" .",
		"git commit -m 'git push'",
		"# git push",
		"ls # ; git push",
		"for x in git push; do echo $x; done",
		"x='git push'",
		"x=git; y=push",
		"cat <<E\ngit push\nE",
		"cat > script <<'E'\n$(git push)\nE",
		"bash script <<E\ngit push\nE",
		"bash <<'E'\ngit \\\\push\nE",
		"sudo -u \"$@\" rm",
		"sudo -u \"${list[@]}\" rm",
		"$git push",
		"git $verb",
		"git $options push",
		"\"$git\" push",
		"g* push",
		"git {push,pull}",
		"sh_ -c 'git push'",
		"bash -c \"$text\"",
		"bash -c '$git push'",
		"git push origin docs",
		"git push origin \"$branch\"",
		"git push $where",
		"ls | xargs git push",
		"git() { echo; }; git push",
		"function rm { :; }; rm x",
		"git push '",
		"git push; if",
		"((",
		"[[ git == push ]]",
		"case git in push) ;; esac",
		"alias x='git push'",
		"type rm; which rm; command -v rm",
		"env | grep rm",
	} {
		if v := Judge(r, line); !v.Allowed {
			t.Errorf("%q: got %v, want allowed", line, v)
		}
	}
}

func TestDeepNestingIsLeftToTheExec(t *testing.T) {
	r := rules("git push")
	for name, line := range map[string]string{
		"parentheses":  strings.Repeat("(", 30_000) + "git pull" + strings.Repeat(")", 30_000),
		"substitution": strings.Repeat("$(", 20_000) + "git pull" + strings.Repeat(")", 20_000),
		"braces":       strings.Repeat("{ ", 20_000) + "git pull" + strings.Repeat("; }", 10_000),
		"backquotes":   strings.Repeat("`", 60_000),
		"quotes":       strings.Repeat("\"$(", 15_000),
		"ifs":          strings.Repeat("if ", 15_000),
		"negations":    strings.Repeat("! ", 30_000) + "git pull",
		"lists":        strings.Repeat("a && ", 12_000) + "b",
		"pipes":        strings.Repeat("a | ", 12_000) + "b",
		"functions":    strings.Repeat("function f ", 5_000),
		"arithmetic":   "echo $((" + strings.Repeat("-", 30_000) + "1))",
		"tests":        "[[ " + strings.Repeat("! ", 30_000) + "x ]]",
		"long":         strings.Repeat("git push;", 100_000),
	} {
		if v := Judge(r, line); !v.Allowed {
			t.Errorf("%s: got %v, want allowed", name, v)
		}
	}
}

// The parser would need hundreds of megabytes of stack.
func TestDeepNestingIsNotParsed(t *testing.T) {
	if got := Split(strings.Repeat("(", maxOpen+1) + "ls"); len(got) != 1 {
		t.Errorf("got %q, want what the small splitter finds", got)
	}
	if got := Split(strings.Repeat("(", maxOpen) + "ls"); len(got) != 0 {
		t.Errorf("got %q, want nothing from a text that does not parse", got)
	}
}

// The small splitter and the parser agree about lines that both can read.
func TestSplittersAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pieces := []string{
		"a", "b c", "'x y'", "\"p q\"", "r\\ s", "\"$v\"", "--x=\"$v\"", "$v", "$(d e)", "\"$(f)\"", "`g`", "a'b'\"c\"", "\\\\", "\"\\\"\"", "''", "*.c", "x{1,2}", "{}",
		"> o", "2>&1", "< i", ">> \"$v\"", "2> /dev/null", "$'t'", "<(h)", "=", "a=b", "-",
	}
	separators := []string{"; ", " && ", " || ", " | ", " & ", "\n"}
	for range testenv.Count(5_000, 500_000) {
		var b strings.Builder
		for i := range 1 + rng.IntN(4) {
			if i > 0 {
				b.WriteString(separators[rng.IntN(len(separators))])
			}
			b.WriteString("cmd")
			for range rng.IntN(5) {
				b.WriteString(" " + pieces[rng.IntN(len(pieces))])
			}
		}
		text := b.String()
		got, want := normal(command.Split(text)), normal(Split(text))
		if !slices.Equal(got, want) {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
	}
}

// normal puts commands into one order: the parser meets an outer command before
// the ones in it.
func normal(commands [][]string) []string {
	var out []string
	for _, argv := range commands {
		out = append(out, fmt.Sprintf("%q", argv))
	}
	slices.Sort(out)
	return out
}

func FuzzJudge(f *testing.F) {
	for _, line := range []string{
		"git push", "ls; sh -c 'git push'", "sh <<E\ngit push\nE", "echo $(git push) `x`", "env X=1 find . -exec rm {} \\;", "f() { :; }; f", "a=$'\\x' ${b[@]} \"$@\"",
	} {
		f.Add(line)
	}
	r := rules("git push", "rm")
	f.Fuzz(func(t *testing.T, line string) {
		if v := Judge(r, line); !v.Allowed && !strings.Contains(line, "push") && !strings.Contains(line, "rm") &&
			!strings.ContainsAny(line, "\\'\"") {
			t.Errorf("%q: got %v, want allowed: no denied word is in it", line, v)
		}
	})
}
