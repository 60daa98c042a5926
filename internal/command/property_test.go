package command

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var vocabulary = []string{
	"", " ", "-", "--", "---", "=", "-=", "+", "+x", "/", ".", "..", "//", "*", "\x00", "\xff", "é", "\n", "-\xff", "git", "push", "-C", "-c", "alias.p=push",
	"p", "git-push", "git-", "-git", "busybox", "rm", "toybox", "coreutils", "--coreutils-prog=rm", "ld.so", "/lib64/ld-linux-x86-64.so.2",
	"--argv0", "sh", "bash", "-lc", "python3.11", "-m", "pip", "install", "node", "env", "-S", "xargs", "find", "-exec", ";", "{}", "ssh", "host", "-o",
	"HostName=x", "-J", "a,b@c:1", "ssh://x", "docker", "run", "--privileged", "-v", "/:/x", "dd", "if=/dev/sda", "1.1.1.1.1", "x=1", "-rf", "-abcdefgh",
	"sudo", "timeout", "5", "su", "watch", "trap", "EXIT", "eval", "$(rm)", "`rm`", "a;b", "'", "\"", "\\", "$", "${", "$'",
}

func randomArgv(rng *rand.Rand) []string {
	argv := make([]string, rng.IntN(12))
	for i := range argv {
		argv[i] = vocabulary[rng.IntN(len(vocabulary))]
		if rng.IntN(8) == 0 {
			argv[i] += vocabulary[rng.IntN(len(vocabulary))]
		}
	}
	return argv
}

func manyRules() *Rules {
	l := List{
		Reach: ReachArgv, Defaults: true, Deny: entries("git push", "rm", "pip install", "frob * x -rf", "a=b c", "-x", "/", "x/y"),
		Allow: entries("git push origin docs", "rm x"),
		SSH:   &SSH{AllowedHosts: entries("*.x", "1.2.3.4"), AllowedCommands: entries("ls"), DeniedCommands: entries("rm"), InheritDeny: true},
	}
	for i := range 30 {
		l.Deny = append(l.Deny, Entry{Text: fmt.Sprintf("tool%c sub%d --option", 'a'+i%7, i)})
	}
	return l.Compile()
}

func TestAnythingCanBeJudged(t *testing.T) {
	r := manyRules()
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func() string { return vocabulary[rng.IntN(len(vocabulary))] }
	for range testenv.Count(20_000, 2_000_000) {
		e := Exec{Path: pick(), Real: pick(), Argv: randomArgv(rng), Same: randomArgv(rng)}
		if rng.IntN(4) == 0 {
			e.Interpreters = []Interpreter{{Line: pick() + " " + pick(), Real: pick()}, {Line: pick()}}
		}
		if v := r.Judge(e); !v.Allowed && (v.Key == "" || v.Fix == "" || v.String() == "") {
			t.Fatalf("%q: got %+v, want a refusal that says why", e, v)
		}
		r.Typed(e.Argv, Split)
	}
}

// A refusal does not go away because the same thing is said at greater length.
func TestMoreOptionsDoNotHelp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	options := []string{"-q", "--quiet", "-C x", "--dir=x", "--dir x", "-abc", "--", "-o=1", "X=1"}
	for range testenv.Count(5_000, 500_000) {
		line := "frob"
		for _, w := range []string{"", "one ", "two"} {
			line += " " + w
			for range rng.IntN(4) {
				o := options[rng.IntN(len(options))]
				// Behind "--" nothing is an option.
				if strings.Contains(line, " -- ") && strings.HasPrefix(o, "-") {
					continue
				}
				line += " " + o + " "
			}
		}
		if v := rules("frob one two").Judge(run(line)); v.Allowed {
			t.Fatalf("%q: got allowed, want a refusal", line)
		}
	}
}

func TestHugeArgumentsAreJudgedInTime(t *testing.T) {
	r := manyRules()
	const n = 100_000
	long := strings.Repeat("a1.", 40_000)
	for name, argv := range map[string][]string{
		"words":         slices.Repeat([]string{"x"}, n),
		"options":       append([]string{"frob"}, slices.Repeat([]string{"-x"}, n)...),
		"git options":   append([]string{"git"}, slices.Repeat([]string{"-c", "alias.p=push"}, n/2)...),
		"docker":        append([]string{"docker"}, slices.Repeat([]string{"-v", "/x:/y"}, n/2)...),
		"applets":       slices.Repeat([]string{"busybox"}, n),
		"loaders":       slices.Repeat([]string{"ld.so"}, n),
		"interpreters":  slices.Repeat([]string{"python3"}, n),
		"git-helper":    append([]string{"git-push"}, slices.Repeat([]string{"x"}, n)...),
		"ssh":           append([]string{"ssh", "a.x"}, slices.Repeat([]string{"ls;"}, n)...),
		"ssh options":   append([]string{"ssh"}, slices.Repeat([]string{"-J", "a.x"}, n/2)...),
		"a long name":   {long, "x"},
		"a long word":   {"git", "-c", strings.Repeat("alias.p=push ", 10_000), "p"},
		"a long option": {"docker", "--mount=" + strings.Repeat("source=/", 10_000)},
	} {
		began := time.Now()
		r.Judge(Exec{Path: argv[0], Real: argv[0], Argv: argv, Interpreters: []Interpreter{{Line: "#!/bin/sh"}}})
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: took %v, want milliseconds", name, took)
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("git\npush", "/usr/bin/git", "", "git")
	f.Add("busybox\nrm\n-rf", "/bin/busybox", "#!/bin/sh -e", "")
	f.Add("ld.so\n--argv0\nx\n/usr/bin/ssh\n-oHostName=x\nhost\nls; rm", "/lib/ld.so", "", "")
	f.Add("docker\nrun\n-v\n/:/\n--privileged", "docker", "", "docker")
	f.Add("env\n-S\ngit push", "env", "", "")
	r := manyRules()
	f.Fuzz(func(t *testing.T, argv, path, line, same string) {
		e := Exec{Path: path, Real: path, Argv: strings.Split(argv, "\n"), Same: strings.Split(same, "\n")}
		if line != "" {
			e.Interpreters = []Interpreter{{Line: line}}
		}
		if v := r.Judge(e); !v.Allowed && v.Key == "" {
			t.Errorf("%q: got %+v, want a refusal that says why", e, v)
		}
		// What is denied by its words stays denied by whatever name it is called.
		if e.Argv[0] == "git" && len(e.Argv) > 1 && e.Argv[1] == "push" && len(e.Argv) < 4 && r.Judge(e).Allowed {
			t.Errorf("%q: got allowed, want a refusal", e)
		}
		r.Typed(e.Argv, Split)
	})
}

func FuzzSplit(f *testing.F) {
	for _, text := range []string{"a && b | c", "a \"$(b `c`)\" 'd'", "a >x 2>&1 <(b)", "$'\\'' ${x} {a,b}", "if a; then b; fi"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, argv := range Split(text) {
			for i, w := range argv {
				if w == Rest && i != len(argv)-1 {
					t.Errorf("%q: got %q, want nothing behind what is not known", text, argv)
				}
			}
		}
	})
}

func benchmarkRules(b *testing.B) *Rules {
	b.Helper()
	l := List{Reach: ReachArgv, Defaults: true}
	for i := range 40 {
		l.Deny = append(l.Deny, Entry{Text: fmt.Sprintf("program%d verb --option", i)})
	}
	for _, verb := range []string{"push", "reset", "clean", "rebase", "merge", "stash drop", "branch -D", "checkout --"} {
		l.Deny = append(l.Deny, Entry{Text: "git " + verb})
	}
	l.Allow = entries("git push origin docs", "git reset --soft")
	return l.Compile()
}

func BenchmarkJudge(b *testing.B) {
	r := benchmarkRules(b)
	fifteen := strings.Repeat(" word", 15)
	for _, c := range []struct{ name, line string }{
		{"no rule", "/usr/bin/cc -c -O2 -o x.o x.c" + fifteen},
		{"some rules", "git -C dir --no-pager log" + fifteen + " x"},
		{"refused", "git -C dir --no-pager push" + fifteen + " x"},
		{"interpreter", "python3.11 -I script.py --verbose x" + fifteen},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := run(c.line)
			b.ReportAllocs()
			for b.Loop() {
				r.Judge(e)
			}
		})
	}
	b.Run("script", func(b *testing.B) {
		e := run("npm run build" + fifteen + " x y")
		e.Interpreters = []Interpreter{{Line: "#!/usr/bin/env node", Real: "/usr/bin/env"}}
		b.ReportAllocs()
		for b.Loop() {
			r.Judge(e)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	l := List{Reach: ReachArgv, Defaults: true, Deny: entries("git push", "npm publish", "sudo")}
	b.ReportAllocs()
	for b.Loop() {
		l.Compile()
	}
}
