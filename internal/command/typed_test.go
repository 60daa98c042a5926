package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// split reads a line as a shell would, where no shell is needed to know it.
func words(t *testing.T, line string) []string {
	t.Helper()
	commands := Split(line)
	if len(commands) != 1 {
		t.Fatalf("%q: got %q, want one command", line, commands)
	}
	return commands[0]
}

func TestWrappersAreLookedThrough(t *testing.T) {
	r := rules("git push", "rm")
	for _, line := range []string{
		"env git push",
		"env -i -u X --chdir=/ A=b C=d git push",
		"env -S 'git push'",
		"env '-Sgit push' origin",
		"env --split-string='A=b git push'",
		"X=1 Y=2 git push",
		"xargs git push",
		"xargs -0 -n 1 -I {} rm {}",
		"nice -n 5 git push",
		"nice -5 git push",
		"timeout 5 git push",
		"timeout -k 1 -s KILL 5 git push",
		"timeout --signal=KILL -- 5 git push",
		"nohup git push",
		"setsid -w git push",
		"stdbuf -o L -eL git push",
		"time -f %e git push",
		"ionice -c 3 git push",
		"chrt -b 0 git push",
		"taskset -c 0 git push",
		"sudo -n -u root A=b git push",
		"sudo -- git push",
		"doas -u root git push",
		"su -c 'git push' someone",
		"su - someone -c 'git push'",
		"su --command='git push'",
		"runuser -u x -- git push",
		"pkexec --user root git push",
		"find . -name x -exec rm {} \\;",
		"find . -type f -exec true \\; -execdir git push origin {} +",
		"watch -n 1 git push",
		"watch -x git push",
		"flock /tmp/lock git push",
		"flock /tmp/lock -c 'git push'",
		"script -q -c 'git push' /dev/null",
		"strace -f -o log git push",
		"chroot /x git push",
		"unshare -n git push",
		"nsenter -t 1 -m git push",
		"command git push",
		"exec -a x git push",
		"eval git 'push origin'",
		"trap 'git push' EXIT",
		"sh -c 'git push'",
		"bash -lc 'ls && git push'",
		"bash -o pipefail -e -c 'git push' name args",
		"zsh -c 'cd x; git push'",
		"busybox sh -c 'git push'",
		"sudo env nice timeout 5 sh -c 'exec git push'",
		`sh -c "sh -c \"sh -c 'git push'\""`,
		"busybox env git push",
		"/usr/bin/env /usr/bin/git push",
	} {
		if v := r.Typed(words(t, line), Split); v.Allowed {
			t.Errorf("%q: got allowed, want a refusal", line)
		}
	}
}

func TestWrappersOfHarmlessCommandsRun(t *testing.T) {
	r := rules("git push", "rm", "+git push origin docs")
	for _, line := range []string{
		"env git pull",
		"env",
		"env -u git",
		"xargs",
		"xargs grep git push",
		"timeout 5",
		"timeout git push",
		"timeout rm ls",
		"nice -n rm ls",
		"sudo -l rm",
		"command -v rm",
		"find . -name rm",
		"find rm -print",
		"find . -exec grep rm {} \\;",
		"sh -c 'echo git push'",
		"sh git-push-notes push",
		"sh -c ls git push",
		"echo sh -c 'git push'",
		"watch git log",
		"watch -x echo \\; rm",
		"git push origin docs",
		"sudo git push origin docs",
		"xargs git push",
		"xargs git push origin",
		"taskset -p 12",
		"trap - EXIT",
	} {
		if v := r.Typed(words(t, line), Split); !v.Allowed {
			t.Errorf("%q: got %v, want allowed", line, v)
		}
	}
}

func TestWhatIsNotKnownIsNotRefused(t *testing.T) {
	r := rules("git push", "rm", "docker run --privileged", "+git push origin docs")
	for _, c := range []struct {
		argv []string
		want bool
	}{
		{[]string{"git", "-C", Unknown, "push"}, false},
		{[]string{"git", "-C", Unknown, "push", Rest}, true}, // it may be the one that is allowed
		{[]string{"git", "-C", Unknown, "push", "origin", "main"}, false},
		{[]string{"git", "push", "origin", Unknown}, true},
		{[]string{"git", "push", "fork", Unknown}, false},
		{[]string{"git", Unknown, "push"}, true},
		{[]string{"git", Rest}, true},
		{[]string{"git", "push", "origin", "main", Rest}, false},
		{[]string{Unknown, "push"}, true},
		{[]string{Unknown + "/rm", "x"}, false},
		{[]string{"/opt/" + Unknown, "x"}, true},
		{[]string{"docker", "run", "-v", Unknown, "--privileged", "x"}, false},
		{[]string{"sudo", "-u", Unknown, "rm"}, false},
		{[]string{"sh", "-c", "rm " + Unknown}, false},
		{[]string{"sh", "-c", Unknown + " rm"}, true},
		{[]string{"sh", "-c", Unknown}, true},
	} {
		if got := r.Typed(c.argv, Split); got.Allowed != c.want {
			t.Errorf("%q: got %v, want allowed %v", c.argv, got, c.want)
		}
	}
}

func TestSplitFindsEveryCommand(t *testing.T) {
	for text, want := range map[string]string{
		``:                                ``,
		`ls -l`:                           `ls -l`,
		`a && b || c; d & e | f`:          `a/b/c/d/e/f`,
		"a\nb":                            `a/b`,
		`(a; b)`:                          `a/b`,
		`'a b' "c d" e\ f`:                `a b,c d,e f`,
		`g\it "pu"sh`:                     `git push`,
		`a "" ''`:                         `a  `,
		`a $x b`:                          `a ...`,
		`a "$x" b`:                        `a ? b`,
		`a "$x$y"$z"" b`:                  `a ...`,
		`a "$x$y" ** b`:                   `a ? ? b`,
		`a "$@" b`:                        `a ...`,
		`a --x="$y" b`:                    `a --x=? b`,
		`a $(b c) d`:                      `b c/a ...`,
		`a "$(b; c)" d`:                   `b/c/a ? d`,
		"a `b \\`c\\``":                   `c/b .../a ...`,
		`a ${x:-y} b`:                     `a ...`,
		`a <(b) >(c)`:                     `b/c/a ? ?`,
		`a >x 2>&1 <y b`:                  `a b`,
		`a 2>/dev/null &>>x b`:            `a b`,
		`a # b`:                           `a`,
		`a#b`:                             `a#b`,
		`a {b,c}`:                         `a ...`,
		`find -exec rm {} \;`:             `find -exec rm {} ;`,
		`a *.c b`:                         `a ?.c b`,
		`if a; then b; fi`:                `if a/then b/fi`,
		`a 'unterminated`:                 `a ...`,
		`a "unterminated`:                 `a ...`,
		`a $'x\'y' b`:                     `a x?y b`,
		`a $"x" $ b$`:                     `a x $ b$`,
		"a \\\nb":                         `a b`,
		`echo "a;b" 'c|d' e\&f`:           `echo a;b c|d e&f`,
		`case x in y) a;; esac`:           `case x in y/a/esac`,
		`f() { a; }`:                      `f/{ a/}`,
		`"a\"b\$c\d"`:                     `a"b$c\d`,
		`$(`:                              `...`,
		"`":                               `...`,
		`\`:                               ``,
		`a $((1+2)) b`:                    `1+2/a ...`,
		strings.Repeat("$(", 50) + "git":  `*`,
		strings.Repeat("`", 51) + "git":   `*`,
		strings.Repeat("(", 1000) + "git": `git`,
	} {
		var parts []string
		for _, argv := range Split(text) {
			sep := " "
			if slices.ContainsFunc(argv, func(w string) bool { return strings.Contains(w, " ") }) {
				sep = ","
			}
			line := strings.Join(argv, sep)
			line = strings.ReplaceAll(line, Rest, "...")
			parts = append(parts, strings.ReplaceAll(line, Unknown, "?"))
		}
		if got := strings.Join(parts, "/"); got != want && want != "*" {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTypedStopsInTime(t *testing.T) {
	r := rules("git push")
	nested := "git push"
	for range 12 {
		nested = "sh -c " + fmt.Sprintf("%q", nested)
	}
	for name, argv := range map[string][]string{
		"nested shells":   {"sh", "-c", nested},
		"nested wrappers": append(slices.Repeat([]string{"env"}, 100_000), "git", "push"),
		"many commands":   {"sh", "-c", strings.Repeat("a;", 30_000) + "git push"},
		"a long text":     {"sh", "-c", strings.Repeat("x", 1<<20) + "; git push"},
		"many finds":      append([]string{"find"}, slices.Repeat([]string{"-exec", "a", ";"}, 30_000)...),
	} {
		if v := r.Typed(argv, Split); !v.Allowed {
			t.Errorf("%s: got %v, want it left to the exec", name, v)
		}
	}
}
