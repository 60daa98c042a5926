package main

import (
	"crypto/sha256"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// nested returns the words that run a command in sandboxes, one in the other.
func nested(t testing.TB, depth int, argv ...string) []string {
	t.Helper()
	program := testenv.Binary(t, "bailey")
	for range depth {
		argv = append([]string{program, "-q", "--allow-read", filepath.Dir(program), "--"}, argv...)
	}
	return argv[1:]
}

// nestedBench is for scripts that call bailey inside a sandbox, by that name.
func nestedBench(t *testing.T) (b *bench, run func(line string) result) {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	b = newBench(t)
	dir := filepath.Dir(testenv.Binary(t, "bailey"))
	b.env = append(slices.DeleteFunc(b.env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }), "PATH=/usr/local/bin:/usr/bin:/bin:"+dir)
	return b, func(line string) result { return b.run("-q", "-c", line) }
}

func TestNestedCommandIsTheProcessItself(t *testing.T) {
	b, run := nestedBench(t)
	b.write("plain", "echo\n", 0o644)
	const anything = "what bash says of its jobs"
	for _, c := range []struct {
		name, line, stdout, stderr string
		status                     int
	}{
		{"status", `bailey -q -- sh -c 'exit 3'`, "", "", 3},
		{"same process", `bailey -q -- sh -c 'echo $$ >pid' & wait $!; [ $! = $(cat pid) ]`, "", "", 0},
		{"signal", `bailey -q -- sh -c 'kill -TERM $$'; echo $?`, "143\n", anything, 0},
		{"closed reader", `bailey -q -- yes | head -n 1; echo ${PIPESTATUS[0]}`, "y\n141\n", "", 0},
		{"stop and continue", `set -m; bailey -q -- sh -c 'kill -STOP $$; echo on; exit 5'; echo $?; fg >/dev/null; echo $?`, "147\non\n5\n", anything, 0},
		{"not found", `bailey -q -- nosuch; echo $?`, "127\n", "bailey: nosuch: command not found\n", 0},
		{"not executable", `bailey -q -- ./plain; echo $?`, "126\n", "bailey: ./plain: permission denied\n", 0},
		{"arguments", `bailey -q -- printf '[%s]' '' 'a b' '*' '$HOME'`, "[][a b][*][$HOME]", "", 0},
		{"mask and directory", `umask 027; mkdir d; cd d; bailey -q --dir .. -- sh -c 'umask; pwd'`, "0027\n" + b.dir + "\n", "", 0},
		{"timer slack", `bailey -q -- cat /proc/self/timerslack_ns`, "50000\n", "", 0},
		{"open files", `ulimit -Sn 100; bailey -q -- sh -c 'ulimit -Sn'`, "100\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(c.line)
			if c.stderr == anything {
				got.stderr = anything
			}
			got.want(t, c.status, c.stdout, c.stderr)
		})
	}
}

func TestNestedStreamsPassUnchanged(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	b := newBench(t)
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	got := b.runWith(data, nested(t, 2, "cat")...)
	if got.status != 0 || sha256.Sum256([]byte(got.stdout)) != sha256.Sum256(data) {
		t.Errorf("status %d, %d bytes of %d came back, or not the same", got.status, len(got.stdout), len(data))
	}
}

func TestNestedCommandIsToldWhatItShares(t *testing.T) {
	_, run := nestedBench(t)
	got := run("bailey -- true")
	if got.status != 0 || !strings.HasPrefix(got.stderr, "bailey: inside another sandbox, ") || !strings.Contains(got.stderr, "/tmp, ") {
		t.Errorf("%+v", got)
	}
	run("bailey -q -- true").want(t, 0, "", "")
}

func TestNothingIsReportedOfANestedStart(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	b := newBench(t)
	program := testenv.Binary(t, "bailey")
	// The outer one tells at its end what it refused.
	b.run("--allow-read", filepath.Dir(program), "--", program, "-q", "--", "true").want(t, 0, "", "")
}

func TestToolsWorkNested(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"), testenv.Program("make"))
	b, run := nestedBench(t)
	b.write("Makefile", "all: a b c d\na b c d:\n\t@echo $@ >$@; cat $@\n", 0o644)
	if out, err := exec.Command("git", "init", "-q", b.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run("bailey -q -- make -s -j4 | sort").want(t, 0, "a\nb\nc\nd\n", "")
	run(`bailey -q -- sh -c 'rm a; mv b e; mkdir g; ln -s ../e g/f; cat g/f; echo x >/tmp/x; cat /tmp/x; echo y >~/y; cat ~/y'`).
		want(t, 0, "b\nx\ny\n", "")
	run(`bailey -q -- sh -c 'git add e; git -c user.name=n -c user.email=e commit -qm m; git log --format=%s; git status --short'`).
		want(t, 0, "m\n?? Makefile\n?? c\n?? d\n?? g/\n", "")
}

func TestSandboxesNestAsDeepAsTheKernelAllows(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	b := newBench(t)
	for _, depth := range []int{3, 16} {
		b.run(nested(t, depth, "echo", "deep")...).want(t, 0, "deep\n", "")
	}
	b.run(nested(t, 17, "echo", "deep")...).wantError(t, "Landlock rulesets are nested too deep", "fix: start bailey outside some of the sandboxes around it")
}

func TestVerbsThatNeedTheHostAreRefusedInside(t *testing.T) {
	_, run := nestedBench(t)
	for _, line := range []string{"bailey audit", "bailey learn -- true"} {
		run(line).want(t, exitOwn, "", "bailey: "+errInside.Error()+"\n")
	}
	run("bailey --json -- true").wantError(t, "--json goes with --monitor")
}

func TestNestedWithoutTheVariableIsExplained(t *testing.T) {
	_, run := nestedBench(t)
	run("BAILEY=0 bailey -q -- echo x").want(t, 0, "x\n", "")
	run("env -u BAILEY bailey -- true").wantError(t, "cause: already inside a Bailey sandbox", "or set BAILEY=1")
}
