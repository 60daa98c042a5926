package escape

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// exitRefused is the status of bailey's own errors.
const exitRefused = 125

// cli prepares the bailey command in the project.
func (b *box) cli(args ...string) *exec.Cmd {
	b.t.Helper()
	c := exec.Command(testenv.Binary(b.t, "bailey"), args...)
	c.Dir = b.project
	return c
}

// expectRefusal wants that bailey ran nothing, and said why with its own
// status.
func (b *box) expectRefusal(c *exec.Cmd, words ...string) {
	b.t.Helper()
	out, err := c.CombinedOutput()
	b.t.Logf("%q (%v):\n%s", c.Args[1:], err, out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitRefused {
		b.t.Errorf("got %v, want exit status %d", err, exitRefused)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			b.t.Errorf("the message does not say %q", word)
		}
	}
	b.expectNoLoot()
}

var leaveMark = []string{"--", "sh", "-c", "echo ran > loot/ran"}

func TestCommandRefusesMistakesWithTheirPlace(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			b := newBox(t)
			file := b.outside + "/policy.jsonc"
			b.write(file, m.text)
			b.expectRefusal(b.cli(append([]string{"-s", file}, leaveMark...)...), file+m.place, m.word)
			b.write(b.project+"/bailey.jsonc", m.text)
			b.expectRefusal(b.cli(leaveMark...), "bailey.jsonc"+m.place, m.word)
			b.write(b.project+"/bailey.jsonc", "{}")
			b.runFree(b.cli(leaveMark...))
			b.expectLoot("ran")
		})
	}
}

func TestCommandRefusesMistakenFlags(t *testing.T) {
	b := newBox(t)
	for _, args := range [][]string{
		{"--alow-write", "/"},
		{"--allow-write", ""},
		{"--allow-write", "/a*"},
		{"-t", "ofline"},
		{"-s", "/no/such/file"},
		{"--runtime", "none"},
	} {
		b.expectRefusal(b.cli(append(args, leaveMark...)...))
	}
	b.runFree(b.cli(leaveMark...))
	b.expectLoot("ran")
}

func TestCommandTrustsNothingItFinds(t *testing.T) {
	b := newGreedyBox(t)
	argv := []string{"--", "sh", "-c", greedyLine, "sh", b.outside}
	b.write(b.project+"/bailey.jsonc", b.greedy())
	held := []string{b.outside, b.home + "/.ssh", b.home + "/.config"}
	unchanged(t, func() { b.runFree(b.cli(argv...)) }, held...)
	b.expectNothingRead("SECRET")

	// From inside, nothing can be trusted either.
	inside := []string{"--", testenv.Binary(t, "bailey"), "trust", "--yes"}
	unchanged(t, func() { b.runFree(b.cli(inside...)) }, append(held, b.home+"/.local")...)
	unchanged(t, func() { b.runFree(b.cli(argv...)) }, held...)
	b.expectNothingRead("SECRET")

	b.runFree(b.cli("-s", b.project+"/bailey.jsonc", "--", "sh", "-c", greedyLine, "sh", b.outside))
	if got := b.looted(); !strings.Contains(got["key"], "SECRET") {
		t.Errorf("control: the user's own word for the same policy got %q", got)
	}
}

func TestTrustEndsWhenTheFileChanges(t *testing.T) {
	b := newGreedyBox(t)
	must(t, os.MkdirAll(b.home+"/.local/state", 0o755))
	argv := []string{"--", "sh", "-c", greedyLine, "sh", b.outside}
	b.write(b.project+"/bailey.jsonc", b.greedy())
	b.runFree(b.cli("trust", "--yes"))
	b.runFree(b.cli(argv...))
	if got := b.looted(); !strings.Contains(got["key"], "SECRET") {
		t.Errorf("control: a trusted policy got %q", got)
	}
	b.write(b.project+"/bailey.jsonc", b.greedy()+" ")
	held := []string{b.outside, b.home + "/.ssh", b.home + "/.config"}
	unchanged(t, func() { b.runFree(b.cli(argv...)) }, held...)
	b.expectNothingRead("SECRET")
}

func TestCommandNestsNothing(t *testing.T) {
	b := newGreedyBox(t)
	program := b.project + "/tools/bailey"
	data, err := os.ReadFile(testenv.Binary(t, "bailey"))
	must(t, err)
	must(t, os.Mkdir(b.project+"/tools", 0o755))
	must(t, os.WriteFile(program, data, 0o755))
	held := []string{b.outside, b.home + "/.ssh", b.home + "/.config"}
	for _, lax := range [][]string{
		{"--allow-write", "/etc", "--allow-read", "/"},
		{"--policy", `{"filesystem": {"defaultDenyRead": false}, "network": {"allowedDomains": ["*"]}}`},
		{"-t", "offline"},
	} {
		nested := append(append([]string{"--", program}, lax...), "--", "sh", "-c", greedyLine, "sh", b.outside)
		unchanged(t, func() { b.runFree(b.cli(nested...)) }, held...)
		b.expectNothingRead("SECRET")
	}
	free := b.cli("--allow-read", b.home+"/.ssh", "--", "sh", "-c", greedyLine, "sh", b.outside)
	free.Path = program
	b.runFree(free)
	if got := b.looted(); !strings.Contains(got["key"], "SECRET") {
		t.Errorf("control: not nested, got %q", got)
	}
}

func TestCommandItselfIsNotReplaced(t *testing.T) {
	b := newBox(t)
	program := b.project + "/tools/bailey"
	data, err := os.ReadFile(testenv.Binary(t, "bailey"))
	must(t, err)
	must(t, os.Mkdir(b.project+"/tools", 0o755))
	must(t, os.WriteFile(program, data, 0o755))
	for _, line := range []string{
		"echo evil > evil; mv -f evil tools/bailey", "rm -f tools/bailey", "chmod 777 tools/bailey",
		"mv tools t; mkdir tools; echo evil > tools/bailey",
	} {
		c := b.cli("--", "sh", "-c", line)
		c.Path = program
		unchanged(t, func() { b.runFree(c) }, program)
	}
	b.runFree(b.cli("--", "sh", "-c", "echo evil > evil; mv -f evil tools/bailey"))
	if got, _ := os.ReadFile(program); string(got) != "evil\n" {
		t.Errorf("control: a copy that does not run was not replaced")
	}
}

func TestCommandPassesOnlyStreams(t *testing.T) {
	b := newBox(t)
	b.write(b.outside+"/file", "original")
	file, err := os.OpenFile(b.outside+"/file", os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	dir, err := os.Open(b.outside)
	must(t, err)
	defer dir.Close()
	c := b.cli("--", b.program, "attack", "descriptors")
	c.ExtraFiles = []*os.File{file, dir, file, dir, file, dir, file, dir, file, dir, file}
	unchanged(t, func() { b.runFree(c) }, b.outside)
	b.expectNoLoot()

	c = b.cli("--", "sh", "-c", "echo ran > loot/ran; echo evil > /dev/fd/0/evil")
	c.Stdin = dir
	unchanged(t, func() { b.expectRefusal(c, "directory") }, b.outside)

	free := b.freeCommand("descriptors")
	free.ExtraFiles = []*os.File{file, dir}
	b.runFree(free)
	b.expectLoot("fd-3", "fd-4")
}

// on starts a program with a terminal as its own, as a shell does.
func on(slave *os.File, c *exec.Cmd) *exec.Cmd {
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return c
}

func TestCommandKeepsTheTerminalToItself(t *testing.T) {
	b := newBox(t)
	master, slave := openTerminal(t)
	drain(t, master, slave)
	for _, stream := range []string{"0", "1", "2"} {
		must(t, on(slave, b.cli("-q", "--", b.program, "attack", "terminal", stream)).Run())
	}
	if n := typed(t, slave); n != 0 {
		t.Errorf("%d bytes were typed into the terminal", n)
	}
	if os.Geteuid() != 0 {
		if text, _ := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); strings.TrimSpace(string(text)) != "1" {
			return // this kernel lets only root type
		}
	}
	must(t, on(slave, b.freeCommand("terminal", "0")).Run())
	if typed(t, slave) == 0 {
		t.Errorf("control: without a sandbox nothing was typed")
	}
}

// drain reads what is written to a terminal, so that nobody waits for it, until
// the test ends.
func drain(t *testing.T, master, slave *os.File) {
	t.Helper()
	fd, done := int(master.Fd()), make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 4096); ; {
			if _, err := unix.Read(fd, buf); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	t.Cleanup(func() {
		slave.Close() // the other end then has nothing to wait for
		<-done
	})
}

func TestDaemonDiesWithTheCommand(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprintf("cli-daemon-of-%d", os.Getpid())
	b.runFree(b.cli("--", b.program, "attack", "daemonise", mark))
	b.expectLoot("daemon")
	if pids := processes(mark); len(pids) > 0 {
		t.Errorf("left after the command's end: %v", pids)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		c := b.cli("--", b.program, "attack", "daemonise", mark, "wait")
		must(t, c.Start())
		b.await("daemon")
		if len(processes(mark)) == 0 {
			t.Errorf("control: the daemon is not seen while bailey lives")
		}
		must(t, c.Process.Signal(sig))
		_ = c.Wait()
		for end := time.Now().Add(10 * time.Second); len(processes(mark)) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("left after %v: %v", sig, processes(mark))
			}
		}
		b.looted()
	}
}

func TestTimeoutLeavesNothing(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprintf("timeout-of-%d", os.Getpid())
	policy := `{"resources": {"timeout": "300ms"}}`
	for name, start := range map[string]func() error{
		"command": func() error {
			return b.cli("--policy", policy, "--", b.program, "attack", "daemonise", mark, "wait").Run()
		},
		"library": func() error {
			b.policy = policy
			c := b.command(b.program, "attack", "daemonise", mark, "wait")
			if err := c.Start(); err != nil {
				return err
			}
			timer := time.AfterFunc(5*time.Second, func() {
				t.Errorf("%s: the time limit is not held", "library")
				_ = c.Kill()
			})
			defer timer.Stop()
			return c.Wait()
		},
	} {
		if err := start(); err == nil {
			t.Errorf("%s: ended by itself", name)
		}
		b.expectLoot("daemon") // it did run
		if pids := processes(mark); len(pids) > 0 {
			t.Errorf("%s: left after the time limit: %v", name, pids)
		}
	}
}

// The native runtime needs all of them. The one without namespaces takes its place
// unless it cannot hold the policy, needs Landlock and the filter itself, and says which
// wall is missing even to who wants to hear nothing; it has tests of its own.
func TestCommandWithoutAWallRunsNothing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	b := newBox(t)
	bailey := func(flags ...string) []string {
		return append(append([]string{"exec", testenv.Binary(t, "bailey"), "-q"}, flags...), leaveMark...)
	}
	without := map[string]func(argv []string) *exec.Cmd{
		"user namespace": func(argv []string) *exec.Cmd {
			return namespaced(b.freeCommand("without-namespaces", append([]string{"user"}, argv...)...))
		},
		"network namespace": func(argv []string) *exec.Cmd {
			return namespaced(b.freeCommand("without-namespaces", append([]string{"net"}, argv...)...))
		},
		"fresh /proc": func(argv []string) *exec.Cmd { return namespaced(b.freeCommand("without-proc", argv...)) },
		"landlock": func(argv []string) *exec.Cmd {
			return b.freeCommand("without-call", append([]string{fmt.Sprint(unix.SYS_LANDLOCK_CREATE_RULESET), fmt.Sprint(int(unix.ENOSYS)), ""}, argv...)...)
		},
		"seccomp": func(argv []string) *exec.Cmd {
			return b.freeCommand("without-call", append([]string{fmt.Sprint(unix.SYS_SECCOMP), fmt.Sprint(int(unix.EINVAL)), ""}, argv...)...)
		},
	}
	for wall, command := range without {
		refused := [][]string{{"--runtime", "native"}, {"--policy", `{"require": ["userns"]}`}}
		if wall == "landlock" || wall == "seccomp" {
			refused = append(refused, nil)
		}
		for _, flags := range refused {
			out := b.runFree(command(bailey(flags...)))
			b.expectNoLoot()
			if !strings.Contains(out, fmt.Sprintf("exit status %d", exitRefused)) || !strings.Contains(out, "the wall that is missing: "+wall) {
				t.Errorf("%s, %q: bailey did not end with its own status, or did not name the wall", wall, flags)
			}
		}
		if len(refused) == 2 {
			out := b.runFree(command(bailey()))
			b.expectLoot("ran")
			if !strings.Contains(out, "bailey: weaker walls: the landlock runtime is used, since a wall is missing: "+wall) {
				t.Errorf("%s: nobody was told", wall)
			}
		}
	}
	b.runFree(b.freeCommand(bailey()[0], bailey()[1:]...))
	b.expectLoot("ran")
}

func init() {
	attacks["exec"] = func(args []string) {
		c := exec.Command(args[0], args[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		report("exec", c.Run())
	}
}
