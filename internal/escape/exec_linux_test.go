package escape

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const noPush = `{"command": {"deny": ["git push"]}}`

// pushes are ways to run a denied command, as lines of shell. PUSH stands for
// its arguments.
var pushes = []struct{ name, line string }{
	{"plain", "git PUSH"},
	{"through env", "env A=1 git PUSH"},
	{"escaped", `g\it PUSH`},
	{"options in front", "git -C . -c a.b=c --no-pager PUSH"},
	{"variable", "set -- PUSH; git \"$@\""},
	{"program in a variable", "g=git; $g PUSH"},
	{"new line", "true\ngit PUSH"},
	{"background", "git PUSH & wait"},
	{"substitution", "echo \"$(git PUSH)\""},
	{"pipe to a shell", "echo git PUSH | sh"},
	{"shell in a shell", "sh -c 'sh -c \"git PUSH\"'"},
	{"xargs", "echo PUSH | xargs git"},
	{"full path", "$(command -v git) PUSH"},
	{"another name", `exec bash -c 'exec -a harmless git PUSH'`},
	{"copy", "cp $(command -v git) g2; ./g2 PUSH"},
	{"link", "ln -s $(command -v git) g3; ./g3 PUSH"},
	{"loader", "$(ls /lib*/ld-linux*.so* | head -n 1) $(command -v git) PUSH"},
	{"loader of a copy", "cp $(command -v git) g4; $(ls /lib*/ld-linux*.so* | head -n 1) ./g4 PUSH"},
	{"program of its own", "p=$(git --exec-path)/git-push; set -- PUSH; shift; $p \"$@\""},
	{"script", "printf '#!/bin/sh\\nexec git \"$@\"\\n' >w; chmod +x w; ./w PUSH"},
	{"interpreter", "printf '#!%s push\\n' $(command -v git) >i; chmod +x i; ./i 2>/dev/null; git PUSH"},
	{"memory", "../attacker attack nameless $(command -v git) PUSH"},
}

func TestDeniedCommandIsNotRun(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"), testenv.Program("bash"))
	for _, way := range pushes {
		t.Run(way.name, func(t *testing.T) {
			b := newBox(t)
			host := pushable(t, b)
			line := strings.ReplaceAll(way.line, "PUSH", "push -q ../remote HEAD:refs/heads/got")
			b.policy = noPush
			b.run("sh", "-c", "cd work; "+line)
			if got := host("for-each-ref"); got != "" {
				t.Errorf("it was run: %s", got)
			}
			b.run("sh", "-c", "cd work; git log --grep=push; git checkout -q -b push; echo git push >said")
			if got := host("-C", "../work", "branch", "--list", "push"); !strings.Contains(got, "push") {
				t.Errorf("other commands do not work: %q", got)
			}
			b.policy = ""
			b.run("sh", "-c", "cd work; "+line)
			if got := host("for-each-ref"); !strings.Contains(got, "refs/heads/got") {
				t.Errorf("control: without the rule it is not run either: %q", got)
			}
		})
	}
}

// pushable makes a repository with something to push, and one to push to. It
// returns how to ask git on the host about the second.
func pushable(t *testing.T, b *box) func(args ...string) string {
	t.Helper()
	git := func(args ...string) string {
		c := exec.Command("git", args...)
		c.Dir = b.project
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q", "--bare", "remote")
	git("init", "-q", "work")
	git("-C", "work", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "something")
	return func(args ...string) string { return git(append([]string{"-C", "remote"}, args...)...) }
}

func init() {
	// A copy of a program without a name.
	attacks["nameless"] = func(args []string) {
		data, err := os.ReadFile(args[0])
		if err != nil {
			fmt.Println(err)
			return
		}
		fd, err := unix.MemfdCreate("x", 0)
		if err == nil {
			_, err = unix.Write(fd, data)
		}
		if err == nil {
			err = unix.Exec("/proc/self/fd/"+strconv.Itoa(fd), append([]string{"git"}, args[1:]...), os.Environ())
		}
		fmt.Println(err)
	}
	attacks["flip"] = func(args []string) {
		tries, _ := strconv.Atoi(args[0])
		for range tries {
			_ = exec.Command("./attacker", "attack", "flip once").Run() // killed, if it was caught
		}
	}
	attacks["flip once"] = func([]string) { flipArgument() }
	attacks["exec beside"] = func([]string) {
		execBeside()
		select {}
	}
}

// execBeside executes echo on a thread that is not the first of the process.
func execBeside() {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			execBeside()
			select {}
		}
		fmt.Println(unix.Exec("/usr/bin/echo", []string{"echo", "executed"}, nil))
	}()
}

// flipArgument executes touch while another thread changes its argument between
// two names.
func flipArgument() {
	path, first, word := []byte("/usr/bin/touch\x00"), []byte("touch\x00"), []byte("good\x00")
	argv := []*byte{&first[0], &word[0], nil}
	env := []*byte{nil}
	var begun atomic.Bool
	go func() {
		begun.Store(true)
		for {
			copy(word, "evil")
			copy(word, "good")
		}
	}()
	for !begun.Load() {
		runtime.Gosched()
	}
	// Somewhere in the middle of the changes.
	for range rand.IntN(20000) {
		runtime.KeepAlive(argv)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	fmt.Println(errno)
}

// What is executed takes the place of the whole process then, with another number than
// that of the thread which was judged.
func TestAnyThreadCanExecute(t *testing.T) {
	testenv.Requires(t, testenv.File("/usr/bin/echo"))
	b := newBox(t)
	b.policy = `{"command": {"deny": ["touch evil"], "useDefaults": false}}`
	for range 10 {
		if out := b.attack("exec beside"); !strings.Contains(out, "executed") {
			t.Fatalf("%q", out)
		}
	}
}

func TestArgumentsThatChangeAreNotExecuted(t *testing.T) {
	testenv.Requires(t, testenv.File("/usr/bin/touch"), testenv.NoRace) // it is one
	tries := testenv.Count(400, 10000)
	if isContainer() {
		tries = 100 // it is whether what was caught can be ended that differs there
	}
	b := newBox(t)
	b.policy = `{"command": {"deny": ["touch evil"], "useDefaults": false}}`
	b.attack("flip", strconv.Itoa(tries))
	if _, err := os.Lstat(b.project + "/evil"); err == nil {
		t.Error("the command was run with another argument than the one that was judged")
	}
	if _, err := os.Lstat(b.project + "/good"); err != nil {
		t.Errorf("control: it was never run with the allowed one: %v", err)
	}
	b.policy = ""
	for range 20 {
		b.attack("flip", "100")
		if _, err := os.Lstat(b.project + "/evil"); err == nil {
			return
		}
	}
	t.Error("control: without the rule the argument does not change")
}
