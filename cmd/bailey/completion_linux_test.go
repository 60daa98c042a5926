package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// setUpShell makes a shell say when it is ready, and gives it a function that
// shows the words of its line.
const setUpShell = `
PS1='> '
source ./completion
show() { printf '<%s>' word "$@" end; }
printf '<%s>' ready
`

func TestBashCompletes(t *testing.T) {
	testenv.Requires(t, testenv.Program("bash"))
	b := completionBench(t, bashCompletion())
	b.write("setup", setUpShell, 0o644)
	const insertCompletions = "\x1b*"
	typeCompletions(t, b, insertCompletions, "bash", "--norc", "--noprofile", "-i")
}

func TestZshCompletesEveryPlace(t *testing.T) {
	testenv.Requires(t, testenv.Program("zsh"))
	b := completionBench(t, zshCompletion())
	b.write("setup", `
autoload -Uz compinit
compinit -D -u
zstyle ':completion:all:*' insert true
zstyle ':completion:all:*' completer _all_matches _complete
zle -C all complete-word _generic
bindkey '^X' all
`+setUpShell, 0o644)
	typeCompletions(t, b, "\x18", "zsh", "-f", "-i")
}

// typeCompletions types each line into a shell, then a key that puts all
// completions in the place of the last word, and has the line shown.
func typeCompletions(t *testing.T, b *bench, key string, shell ...string) {
	t.Helper()
	s := openScreen(t)
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env
	s.start(cmd)
	s.write(". ./setup\r")
	s.textBefore("<ready>")
	const toBegin = "\x01"
	shown := regexp.MustCompile(`<(.*?)>`)
	for _, c := range completions {
		s.write(c.line + key + toBegin + "show \r")
		_, text, _ := strings.Cut(s.textBefore("<end>"), "<word>")
		typed := strings.Split(c.line, " ")
		last := typed[len(typed)-1]
		var got []string
		for i, m := range shown.FindAllStringSubmatch(text, -1) {
			// A word that stays as it is has no completion.
			if word := m[1]; i >= len(typed)-1 && word != last {
				got = append(got, word)
			}
		}
		checkCompletion(t, c.line, got, c.want)
	}
}

// textBefore waits for a text and returns what appears before it.
func (s *screen) textBefore(text string) string {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		before, after, found := strings.Cut(string(s.text), text)
		if found {
			s.text = []byte(after)
		}
		s.mu.Unlock()
		if found {
			return before
		}
		select {
		case <-s.more:
		case <-deadline:
			s.t.Fatalf("%q did not appear; on the screen: %q", text, before)
		}
	}
}
