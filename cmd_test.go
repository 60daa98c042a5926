package bailey_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// manager is an initialised Manager with a project of its own.
func manager(t testing.TB) *bailey.Manager {
	t.Helper()
	return newManager(t, bailey.Config{})
}

// newManager is ready to run commands, in an empty directory unless it is given
// another.
func newManager(t testing.TB, c bailey.Config) *bailey.Manager {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	m := bailey.New(c)
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Cleanup() })
	return m
}

func shell(m *bailey.Manager, line string) *bailey.Cmd { return m.Command("sh", "-c", line) }

func TestOutputIsStdoutAlone(t *testing.T) {
	m := manager(t)
	out, err := shell(m, "echo out; echo err >&2").Output()
	if string(out) != "out\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	out, err = shell(m, "echo out; echo err >&2; exit 3").Output()
	var exit *bailey.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(exit.Stderr) != "err\n" || string(out) != "out\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if exit != nil && exit.Error() != "exit status 3" {
		t.Errorf("message %q", exit)
	}
}

func TestCombinedOutputKeepsTheOrder(t *testing.T) {
	out, err := shell(manager(t), "echo 1; echo 2 >&2; echo 3").CombinedOutput()
	if string(out) != "1\n2\n3\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestStateTellsTheEnd(t *testing.T) {
	m := manager(t)
	for _, test := range []struct {
		line    string
		code    int
		signal  syscall.Signal
		message string
	}{
		{"exit 0", 0, 0, "exit status 0"},
		{"exit 255", 255, 0, "exit status 255"},
		{"kill -TERM $$", -1, syscall.SIGTERM, "signal: terminated"},
		{"kill -KILL $$", -1, syscall.SIGKILL, "signal: killed"},
	} {
		c := shell(m, test.line)
		if c.State() != nil || c.Pid() != 0 {
			t.Errorf("before: state %v, pid %d", c.State(), c.Pid())
		}
		err := c.Run()
		s := c.State()
		if s.ExitCode() != test.code || s.Signal() != test.signal || s.String() != test.message || s.Success() != (err == nil) {
			t.Errorf("%s: got %v (%d, %v), error %v", test.line, s, s.ExitCode(), s.Signal(), err)
		}
	}
}

func TestStdinIsCopied(t *testing.T) {
	m := manager(t)
	for name, in := range map[string]io.Reader{
		"string":  strings.NewReader("input"),
		"buffer":  bytes.NewBufferString("input"),
		"wrapped": io.MultiReader(strings.NewReader("in"), strings.NewReader("put")),
	} {
		c := m.Command("cat")
		c.Stdin = in
		if out, err := c.Output(); string(out) != "input" || err != nil {
			t.Errorf("%s: got %q, %v", name, out, err)
		}
	}
	if out, err := m.Command("cat").Output(); len(out) != 0 || err != nil {
		t.Errorf("no stdin: got %q, %v", out, err)
	}
}

func TestFileStreamsAreGivenAsTheyAre(t *testing.T) {
	m := manager(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(file + ".out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := m.Command("cat", "/dev/stdin")
	c.Stdin, c.Stdout, c.Stderr = in, out, out
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file + ".out"); string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
	// Still ours to use.
	if _, err := out.WriteString("more"); err != nil {
		t.Error(err)
	}
}

func TestMuchDataGoesThroughBothWays(t *testing.T) {
	m := manager(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MB
	c := m.Command("cat")
	c.Stdin = bytes.NewReader(data)
	out, err := c.Output()
	if err != nil || sha256.Sum256(out) != sha256.Sum256(data) {
		t.Errorf("%d of %d bytes came back, %v", len(out), len(data), err)
	}
}

func TestCommandThatDoesNotReadItsInput(t *testing.T) {
	m := manager(t)
	in := bytes.NewReader(make([]byte, 1<<20))
	c := m.Command("true")
	c.Stdin = in
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	// A reader that cannot block is at rest when Wait returns.
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		t.Error(err)
	}
}

func TestInputThatNeverEndsDoesNotHoldWait(t *testing.T) {
	m := manager(t)
	r, w := io.Pipe()
	defer w.Close()
	c := shell(m, "exit 4")
	c.Stdin = r
	var exit *bailey.ExitError
	if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("got %v", err)
	}
}

type failing struct{}

var errBroken = errors.New("broken")

func (failing) Read([]byte) (int, error)  { return 0, errBroken }
func (failing) Write([]byte) (int, error) { return 0, errBroken }

func TestCopyErrorsAreReported(t *testing.T) {
	m := manager(t)
	c := m.Command("cat")
	c.Stdin = failing{}
	if err := c.Run(); !errors.Is(err, errBroken) {
		t.Errorf("broken input: %v", err)
	}
	c = shell(m, "echo x; exit 0")
	c.Stdout = failing{}
	if err := c.Run(); !errors.Is(err, errBroken) {
		t.Errorf("broken output: %v", err)
	}
	// A writer that fails does not hold the command.
	c = shell(m, "trap '' PIPE; while echo x; do :; done 2>/dev/null; exit 0")
	c.Stdout = failing{}
	if err := c.Run(); !errors.Is(err, errBroken) {
		t.Errorf("broken output of a long command: %v", err)
	}
}

func TestPipes(t *testing.T) {
	m := manager(t)
	c := shell(m, "while read line; do echo got $line; done; echo end >&2")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for i := range 3 {
		fmt.Fprintln(in, i)
		if n, err := out.Read(buf); string(buf[:n]) != fmt.Sprintf("got %d\n", i) {
			t.Errorf("got %q, %v", buf[:n], err)
		}
	}
	in.Close()
	if rest, err := io.ReadAll(errs); string(rest) != "end\n" {
		t.Errorf("stderr %q, %v", rest, err)
	}
	if rest, err := io.ReadAll(out); len(rest) != 0 || err != nil {
		t.Errorf("stdout %q, %v", rest, err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMisuseIsAnError(t *testing.T) {
	m := manager(t)
	c := m.Command("true")
	if err := c.Wait(); err == nil {
		t.Error("Wait before Start")
	}
	if err := c.Kill(); err == nil {
		t.Error("Kill before Start")
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err == nil {
		t.Error("Start twice")
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("Wait twice")
	}
	if err := c.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Kill after the end: %v", err)
	}
	set := m.Command("true")
	set.Stdout, set.Stderr, set.Stdin = io.Discard, io.Discard, strings.NewReader("")
	for name, call := range map[string]func() error{
		"Output":         func() error { _, err := set.Output(); return err },
		"CombinedOutput": func() error { _, err := set.CombinedOutput(); return err },
		"StdinPipe":      func() error { _, err := set.StdinPipe(); return err },
		"StdoutPipe":     func() error { _, err := set.StdoutPipe(); return err },
		"StderrPipe":     func() error { _, err := set.StderrPipe(); return err },
	} {
		if err := call(); err == nil || !strings.HasSuffix(err.Error(), "already set") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandsThatCannotStart(t *testing.T) {
	m := manager(t)
	for name, args := range map[string][]string{
		"missing":  {"no-such-program-anywhere"},
		"empty":    {""},
		"NUL byte": {"echo", "a\x00b"},
	} {
		c := m.Command(args[0], args[1:]...)
		if err := c.Run(); err == nil || !strings.HasPrefix(err.Error(), "bailey: ") {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Start(); err == nil {
			t.Errorf("%s: started the second time", name)
		}
	}
	if err := m.Command("no-such-program-anywhere").Run(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("missing program: %v", err)
	}
	if err := bailey.New(bailey.Config{}).Command("true").Run(); err == nil {
		t.Error("without Initialize")
	}
	if _, err := bailey.New(bailey.Config{}).WrapCommand("true"); err == nil {
		t.Error("WrapCommand without Initialize")
	}
}

func TestInitializeRefusesWhatItCannotUse(t *testing.T) {
	for name, c := range map[string]bailey.Config{
		"missing directory": {Dir: "/no/such/directory"},
		"a file":            {Dir: "/etc/passwd"},
		"two policies":      {Policy: "{}", Preset: "offline"},
		"unknown key":       {Policy: `{"filesytem": {}}`},
		"missing settings":  {Settings: "/no/such/file"},
		"unknown preset":    {Preset: "no-such-preset"},
	} {
		if err := bailey.New(c).Initialize(); err == nil || !strings.HasPrefix(err.Error(), "bailey: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// started runs a command that has said that it runs.
func started(t *testing.T, c *bailey.Cmd) {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
}

const stubborn = "trap '' TERM INT HUP; setsid sleep 1000 & echo up; sleep 1000"

func TestContextEndsTheSandbox(t *testing.T) {
	m := manager(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := m.CommandContext(ctx, "sh", "-c", stubborn)
	started(t, c)
	cancel()
	if err := c.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if c.State().Signal() != syscall.SIGKILL {
		t.Errorf("state %v", c.State())
	}
	if err := m.CommandContext(ctx, "true").Run(); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a context that is done: %v", err)
	}
}

func TestContextAfterTheEndChangesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := manager(t).CommandContext(ctx, "true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	cancel()
	if !c.State().Success() {
		t.Errorf("state %v", c.State())
	}
}

func TestKillEndsEverything(t *testing.T) {
	c := shell(manager(t), stubborn)
	started(t, c)
	pid := c.Pid()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *bailey.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.Signal() != syscall.SIGKILL || exit.ExitCode() != -1 {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process 1 after the end: %v", err)
	}
}

func TestSignalReachesTheCommand(t *testing.T) {
	c := shell(manager(t), "trap 'exit 5' USR1; echo up; while :; do sleep 0.01; done")
	started(t, c)
	if err := c.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var exit *bailey.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("got %v", err)
	}
}

func TestCleanupEndsWhatRuns(t *testing.T) {
	m := manager(t)
	var cmds []*bailey.Cmd
	for range 3 {
		c := shell(m, stubborn)
		started(t, c)
		cmds = append(cmds, c)
	}
	if err := m.Cleanup(); err != nil {
		t.Error(err)
	}
	for _, c := range cmds {
		if err := syscall.Kill(c.Pid(), 0); err != syscall.ESRCH {
			t.Errorf("process 1 after Cleanup: %v", err)
		}
		if err := c.Wait(); err == nil {
			t.Error("a command that was ended succeeded")
		}
	}
	if err := m.Command("true").Run(); err == nil || !strings.Contains(err.Error(), "cleaned up") {
		t.Errorf("after Cleanup: %v", err)
	}
	if err := m.Cleanup(); err != nil {
		t.Errorf("second Cleanup: %v", err)
	}
}

func TestCleanupDuringStarts(t *testing.T) {
	for range testenv.Count(5, 100) {
		m := manager(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				c := m.Command("sleep", "1000")
				if err := c.Start(); err == nil {
					_ = c.Wait()
				}
			})
		}
		all.Go(func() { _ = m.Cleanup() })
		all.Wait() // would not end if a start slipped through
	}
}

func TestManagerIsUsedFromManyGoroutines(t *testing.T) {
	m := manager(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c := m.Command("sh", "-c", "cat; exit "+strconv.Itoa(i%4))
			c.Stdin = strings.NewReader(strconv.Itoa(i))
			out, err := c.Output()
			if string(out) != strconv.Itoa(i) || c.State().ExitCode() != i%4 {
				t.Errorf("command %d: %q, %v", i, out, err)
			}
		})
	}
	all.Wait()
}

func TestPolicyIsEnforced(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for policy, allowed := range map[string]bool{
		`{}`: false,
		fmt.Sprintf(`{"filesystem": {"allowWrite": [".", %q]}}`, filepath.Dir(outside)): true,
	} {
		m := bailey.New(bailey.Config{Dir: dir, Policy: policy})
		if err := m.Initialize(); err != nil {
			t.Fatal(err)
		}
		out, err := m.Command("sh", "-c", `echo x >inside && echo x >"$0"`, outside).CombinedOutput()
		if _, statErr := os.Stat(outside); (statErr == nil) != allowed {
			t.Errorf("policy %s: written %v, want %v (%v)\n%s", policy, statErr == nil, allowed, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "inside")); err != nil {
			t.Errorf("policy %s: %v", policy, err)
		}
		os.Remove(outside)
		m.Cleanup()
	}
}

func TestEnvironmentIsChosenFromTheConfig(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	m := bailey.New(bailey.Config{Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "GITHUB_TOKEN=ghp_0123456789012345678901234567890123456789"}})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	out, err := m.Command("env").Output()
	if err != nil || !strings.Contains(string(out), "BAILEY=1\n") || !strings.Contains(string(out), "LANG=C.UTF-8\n") || strings.Contains(string(out), "TOKEN") {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestWrappedCommandRunsAnywhere(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	for _, runtime := range []string{"native", "bwrap"} {
		t.Run(runtime, func(t *testing.T) { tryWrappedCommand(t, runtime) })
	}
}

func tryWrappedCommand(t *testing.T, runtime string) {
	t.Helper()
	if runtime == "bwrap" {
		testenv.Requires(t, testenv.Program("bwrap"))
	}
	dir := t.TempDir()
	m := bailey.New(bailey.Config{Dir: dir, Binary: testenv.Binary(t, "bailey"), Runtime: runtime})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	w, err := m.WrapCommand("sh", "-c", `printf '%s\n' "$@"; echo x >inside; echo x 2>/dev/null >"$1"; exit 7`, "sh", outside, "it's", "", "a b", "*", "$HOME", "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := outside + "\nit's\n\na b\n*\n$HOME\n\n\n"
	for name, cmd := range map[string]*exec.Cmd{
		"argv":   exec.Command(w.Argv[0], w.Argv[1:]...),
		"string": exec.Command("/bin/sh", "-c", w.String()),
	} {
		cmd.Dir = "/"
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, _ := cmd.Output()
		if string(out) != want || cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("%s: got %q and %v, want %q and exit status 7\n%s", name, out, cmd.ProcessState, want, &errs)
		}
		if _, err := os.Stat(outside); err == nil {
			t.Errorf("%s: wrote outside", name)
		}
		if err := os.Remove(filepath.Join(dir, "inside")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if runtime == "bwrap" {
		without := exec.Command(w.Argv[0], w.Argv[1:]...)
		without.Env = []string{"PATH=" + t.TempDir()}
		if out, err := without.CombinedOutput(); err == nil || !strings.Contains(string(out), "runtime bwrap") {
			t.Errorf("where there is no bwrap: %q, %v", out, err)
		}
	}
}

func TestWrapCommandFindsItsProgram(t *testing.T) {
	m := manager(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := m.WrapCommand("true"); err == nil || !strings.Contains(err.Error(), "Config.Binary") {
		t.Errorf("got %v", err)
	}
}
