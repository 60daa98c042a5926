package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestStatusIsTheCommandsOwn(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("--", "true").want(t, 0, "", "")
	b.run("--", "sh", "-c", "exit 3").want(t, 3, "", "")
	b.run("-c", "exit 255").want(t, 255, "", "")
	b.run("-c", "kill -9 $$").want(t, 137, "", "")
	b.run("-c", "kill -TERM $$").want(t, 143, "", "")
	b.run("-c", "kill -SEGV $$").want(t, 139, "", "")
}

func TestProgramsThatDoNotStart(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("foo").want(t, 127, "", "bailey: foo: command not found\n")
	b.run("--", "./foo").want(t, 127, "", "bailey: ./foo: no such file or directory\n")
	b.write("plain", "echo\n", 0o644)
	b.run("--", "./plain").want(t, 126, "", "bailey: ./plain: permission denied\n")
	b.write("noformat", "echo\n", 0o755)
	b.run("--", "./noformat").want(t, 126, "", "bailey: ./noformat: exec format error; if it is a script without a #! line: bailey -- sh ./noformat\n")
	b.write("lost", "#!/no/such/shell\n", 0o755)
	b.run("--", "./lost").want(t, 127, "", "bailey: ./lost: its interpreter /no/such/shell does not exist\n")
	b.run("--", b.dir).want(t, 126, "", "bailey: "+b.dir+": permission denied\n")
	b.run("--", "").wantError(t, "no command")
}

func TestAProgramTheSandboxHidesIsExplained(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	tool := filepath.Join(b.home, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := "bailey: " + tool + ": exists on the host at " + tool + " but is not visible in the sandbox; --allow-read " + tool + "\n"
	b.run("--", tool).want(t, 127, "", want)
	b.run("--allow-read", tool, "--", tool).want(t, 0, "tool\n", "")
}

func TestArgumentsArriveUntouched(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	args := []string{"~", "*", "", "a\nb", "\xff\xfe", "$HOME", "`x`", "--", "-q", "--help", "a b", "'", `"`, "\\"}
	got := b.run(append([]string{"--", "printf", `%s\0`}, args...)...)
	got.want(t, 0, strings.Join(args, "\x00")+"\x00", "")
}

func TestShellLines(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("-c", `echo "$BASH_VERSION" | grep -q . && echo "$0 $1"`, "zero", "one").want(t, 0, "zero one\n", "")
	b.run("--shell", "sh", "-c", `echo "$0"`).want(t, 0, "sh\n", "")
	b.run("--shell", "/bin/sh", "-c", "echo $0").want(t, 0, "/bin/sh\n", "")
	b.run("--login", "-c", "shopt -q login_shell && echo login").want(t, 0, "login\n", "")
	b.run("--login", "ls").wantError(t, "--shell and --login go with -c")
	b.runWith([]byte("echo from stdin; exit 4\n"), "--shell", "sh", "shell").want(t, 4, "from stdin\n", "")
	b.run("--shell", "sh", "shell", "-c", `echo "$0 $1"`, "zero", "-x").want(t, 0, "zero -x\n", "")
	b.run("audit", "-c", "echo ran").wantError(t, "audit takes no line of shell")
}

func TestStreamsPassUnchanged(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	got := b.runWith(data, "--", "cat")
	if got.status != 0 || sha256.Sum256([]byte(got.stdout)) != sha256.Sum256(data) {
		t.Errorf("status %d, %d bytes of %d came back, or not the same", got.status, len(got.stdout), len(data))
	}
	b.run("-c", "echo out; echo err >&2").want(t, 0, "out\n", "err\n")
}

func TestAClosedReaderEndsTheCommandAsItWould(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	cmd := b.command("--", "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 128+int(syscall.SIGPIPE); got != want {
		t.Errorf("status %d, want %d", got, want)
	}
}

func TestItEndsAlthoughStdinDoesNot(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := b.command("--", "true")
	cmd.Stdin = r
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	r.Close()
}

func TestEnvironmentFlags(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.env = append(b.env, "MY_TOKEN=abc", "TZ=ghp_"+strings.Repeat("a1B2", 9))
	got := b.run("--env", "MY_TOKEN", "--env", "OTHER=a b=c", "-c", `echo "$MY_TOKEN|$OTHER|$BAILEY"`)
	if got.stdout != "abc|a b=c|1\n" {
		t.Errorf("%+v", got)
	}
	got = b.run("-c", `echo "[$MY_TOKEN$TZ]"`)
	if got.stdout != "[]\n" || !strings.Contains(got.stderr, " TZ;") || strings.Contains(got.stderr, "ghp_") {
		t.Errorf("stdout %q, stderr %q: want the name of what was kept out and not its value", got.stdout, got.stderr)
	}
	b.run("-q", "-c", `echo "[$TZ]"`).want(t, 0, "[]\n", "")
}

func TestPathFlagsAreRelativeToTheWorkingDirectory(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	if err := os.WriteFile(filepath.Join(b.home, "f"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.write("secret", "s3cret", 0o644)
	b.write("fixed", "old", 0o644)
	b.run("--allow-read", "../home/f", "--", "cat", "../home/f").want(t, 0, "data", "")
	if got := b.run("--", "cat", "../home/f"); got.status != 1 {
		t.Errorf("without the flag: %+v", got)
	}
	if got := b.run("--deny-read", "secret", "--", "cat", "secret"); got.status == 0 || got.stdout != "" {
		t.Errorf("hidden: %+v", got)
	}
	b.run("--deny-write", "fixed", "-c", "echo new >fixed")
	if data, _ := os.ReadFile(filepath.Join(b.dir, "fixed")); string(data) != "old" {
		t.Errorf("fixed is %q", data)
	}
}

func TestAnInlinePolicyReplacesWhatWouldBeFound(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.write("bailey.jsonc", `{"nonsense": true}`, 0o644)
	b.run("--", "true").wantError(t, "bailey.jsonc:1:2", "nonsense")
	b.run("--policy", `{"env": {"set": {"X": "1"}}}`, "-c", "echo $X").want(t, 0, "1\n", "")
	b.run("--policy", `{"env": {"sat": {}}}`, "--", "true").wantError(t, "--policy:1:10", "set")
	b.run("--policy", `{}`, "--settings", "x", "--", "true").wantError(t, "excludes")
	// Of several, what all grant.
	two := []string{"--policy", "{}", "--policy", `{"extends": "locked"}`}
	b.run(append(two, "-c", "echo >new")...)
	if _, err := os.Stat(filepath.Join(b.dir, "new")); err == nil {
		t.Error("the second policy took nothing away")
	}
}

func TestSettingsAndPresetComeFromTheEnvironmentToo(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.write("p.jsonc", `{"env": {"set": {"X": "file"}}}`, 0o644)
	b.env = append(b.env, "BAILEY_SETTINGS=p.jsonc")
	b.run("-c", "echo $X").want(t, 0, "file\n", "")
	b.run("-t", "locked", "-c", "echo >new")
	if _, err := os.Stat(filepath.Join(b.dir, "new")); err == nil {
		t.Error("the flag did not win over the variable")
	}
	b.env = append(b.env, "BAILEY_PRESET=locked")
	b.run("--", "true").wantError(t, "both set")
	b.run("-s", "p.jsonc", "-t", "code", "--", "true").wantError(t, "exclude each other")
	b.run("-t", "cod", "--", "true").wantError(t, "code")
}

func TestTimeoutEndsTheCommand(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	policy := `{"resources": {"timeout": "200ms"}}`
	b.run("--policy", policy, "--", "sleep", "60").want(t, 124, "", "bailey: timed out after 200ms\n")
	b.run("--policy", policy, "-c", "trap 'echo asked; exit 0' TERM; sleep 60 & wait").want(t, 124, "asked\n", "bailey: timed out after 200ms\n")
	b.run("--policy", policy, "-c", "trap '' TERM; while :; do sleep 1; done").want(t, 124, "", "bailey: timed out after 200ms\n")
}

func TestSignalsAreForwarded(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	for sig, name := range map[syscall.Signal]string{
		syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	} {
		cmd := b.command("-c", "trap 'echo got; exit 5' "+name+"; echo ready; while :; do sleep 0.01; done")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		waitForHandlers(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		if string(rest) != "got\n" || cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("%s: output %q, state %v", name, rest, cmd.ProcessState)
		}
	}
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("nohup"))
	b := newBench(t)
	cmd := exec.Command("nohup", testenv.Binary(t, "bailey"), "-c", "kill -HUP $$; echo alive")
	cmd.Dir, cmd.Env = b.dir, b.env
	out, err := cmd.Output()
	if err != nil || string(out) != "alive\n" {
		t.Errorf("output %q, %v", out, err)
	}
}

func TestAStoppedCommandStopsBailey(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	cmd := b.command("-c", "kill -STOP $$; echo continued")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("bailey did not stop: %v, %v", ws, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "continued\n" {
		t.Errorf("output %q, %v", out.String(), err)
	}
}

func TestTheVariableAloneIsNoSandbox(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.env = append(b.env, "BAILEY=1")
	b.run("--", "echo", "x").want(t, 0, "x\n", "")
}

func TestMessagesHaveColourOnlyOnATerminal(t *testing.T) {
	b := newBench(t)
	if got := b.run("foo", "--nothing"); strings.Contains(got.stderr, "\x1b") {
		t.Errorf("colour in a pipe: %q", got.stderr)
	}
}

func TestTraceRecordsEachPart(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	file := filepath.Join(b.home, "trace")
	b.env = append(b.env, "BAILEY_TRACE="+file, "BAILEY_TRACE_START=1")
	b.run("--", "true").want(t, 0, "", "")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"start", "program start", "policy", "spec", "exec", "teardown"} {
		if !strings.Contains(string(data), `{"part":"`+part+`",`) {
			t.Errorf("no %q in the trace:\n%s", part, data)
		}
	}
	if strings.Contains(string(data), ":-") {
		t.Errorf("a part took less than nothing:\n%s", data)
	}
}

// waitForHandlers returns when the process forwards signals, as its status
// shows: SIGCONT is caught last.
func waitForHandlers(t testing.TB, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "SigCgt:\t")
		mask, err := strconv.ParseUint(rest[:16], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if mask&(1<<(syscall.SIGCONT-1)) != 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no handlers after ten seconds")
}

// The program gives its own threads another timer slack; see package native.
func TestCommandKeepsTheCallersTimerSlack(t *testing.T) {
	testenv.Requires(t, testenv.Root) // the file is closed to others
	const file = "/proc/self/timerslack_ns"
	outside, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := newBench(t).run("--", "cat", file)
	if r.status != 0 || r.stdout != string(outside) {
		t.Errorf("got %q (status %d), want %q", r.stdout, r.status, outside)
	}
}

// runProgram runs another program, which runs bailey.
func (b *bench) runProgram(argv ...string) result {
	b.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return b.collect(cmd)
}

// The program lowers its own limit of open files for a moment, and the Go
// runtime raises it; see package native.
func TestCommandKeepsTheCallersFileLimit(t *testing.T) {
	b := newBench(t)
	for _, script := range []string{
		`ulimit -Sn 100; exec "$0" -- sh -c "ulimit -Sn; ulimit -Hn"`,
		`ulimit -n 99; exec "$0" -- sh -c "ulimit -Sn; ulimit -Hn"`,
		`ulimit -Sn 100; exec "$0" -- sh -c "ulimit -Sn; ulimit -Hn" <&-`,
	} {
		r := b.runProgram("sh", "-c", script, testenv.Binary(t, "bailey"))
		soft, hard, _ := strings.Cut(strings.TrimSpace(r.stdout), "\n")
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		want, wantHard := "100", strconv.FormatUint(limit.Max, 10)
		if strings.Contains(script, "-n 99") {
			want, wantHard = "99", "99"
		}
		if r.status != 0 || soft != want || hard != wantHard {
			t.Errorf("%s: got %q (status %d, %s), want %s and %s", script, r.stdout, r.status, r.stderr, want, wantHard)
		}
	}
}

// The program tells its runtime in a variable to use one processor.
func TestCommandKeepsTheCallersProcessors(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct{ set, want string }{{"", ""}, {"GOMAXPROCS=7", "GOMAXPROCS=7\n"}, {"GOMAXPROX=7", ""}, {"GO=1", ""}} {
		r := b.runProgram("env", cmp.Or(tt.set, "A="), testenv.Binary(t, "bailey"), "--env", "GOMAXPROCS", "--", "sh", "-c", "env | grep GOMAXPROCS")
		if r.stdout != tt.want {
			t.Errorf("%q: got %q (%s)", tt.set, r.stdout, r.stderr)
		}
	}
	// No environment at all is an edge that the search for it meets.
	if r := b.runProgram("env", "-i", testenv.Binary(t, "bailey"), "--", "/bin/echo", "here"); r.stdout != "here\n" {
		t.Errorf("without environment: got %q (%s)", r.stdout, r.stderr)
	}
}

func TestProjectInSharedMemory(t *testing.T) {
	b := newBench(t)
	dir, err := os.MkdirTemp("/dev/shm", "project")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	beside, err := os.MkdirTemp("/dev/shm", "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(beside) })
	b.dir = dir
	for _, runtime := range []string{"native", "bwrap"} {
		got := b.run("-q", "--runtime", runtime, "--", "sh", "-c", "echo "+runtime+" >file && ls -A /dev/shm; echo x >/dev/shm/lost")
		got.want(t, 0, filepath.Base(dir)+"\n", "")
		if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != runtime+"\n" {
			t.Errorf("%s: the project has %q (%v)", runtime, text, err)
		}
		if _, err := os.Stat("/dev/shm/lost"); err == nil {
			t.Errorf("%s: a file beside the project came to the host", runtime)
		}
	}
}
