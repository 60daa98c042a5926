package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// keepBench is a bench with a keeper of its own, which is gone at the end.
func keepBench(t *testing.T) *bench {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	testenv.Binary(t, "baileyd")
	b := newBench(t)
	runtime := filepath.Join(b.dir, "..", "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "XDG_RUNTIME_DIR="+runtime)
	t.Cleanup(b.endKeeper)
	return b
}

// endKeeper ends the keeper in the runtime directory of the environment, and
// waits until it is gone.
func (b *bench) endKeeper() {
	b.run("box", "stop", "--all")
	var runtime string
	for _, v := range b.env {
		if dir, ok := strings.CutPrefix(v, "XDG_RUNTIME_DIR="); ok {
			runtime = dir
		}
	}
	b.until("the keeper removes its socket", func() bool {
		_, err := os.Stat(filepath.Join(runtime, "bailey"))
		return os.IsNotExist(err)
	})
}

func (b *bench) until(what string, is func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// boxes returns what "box ps" knows.
func (b *bench) boxes() map[string]boxJSON {
	b.t.Helper()
	got := b.run("box", "ps", "--json")
	if got.status != 0 || got.stderr != "" {
		b.t.Fatalf("box ps: %+v", got)
	}
	boxes := make(map[string]boxJSON)
	for line := range strings.Lines(got.stdout) {
		var box boxJSON
		if err := json.Unmarshal([]byte(line), &box); err != nil {
			b.t.Fatal(err)
		}
		boxes[box.Name] = box
	}
	return boxes
}

func TestKeptSandboxIsFoundAgain(t *testing.T) {
	b := keepBench(t)
	b.run("--keep", "dev", "-c", "echo one > /tmp/note; exit 4").want(t, 4, "", "")
	pid := b.boxes()["dev"].Pid
	b.run("--keep", "dev", "--", "cat", "/tmp/note").want(t, 0, "one\n", "")
	b.runWith([]byte("in"), "-k", "dev", "-c", "cat; echo err >&2; kill -TERM $$").want(t, 143, "in", "err\n")
	if got := b.boxes()["dev"].Pid; got != pid {
		t.Errorf("process 1 was %d and is %d", pid, got)
	}
	b.run("--keep", "other", "--", "test", "-e", "/tmp/note").want(t, 1, "", "")
	b.run("box", "exec", "dev", "cat", "/tmp/note").want(t, 0, "one\n", "")
	b.run("box", "exec", "dev", "--", "sh", "-c", "pwd; exit 9").want(t, 9, b.dir+"\n", "")
	b.run("--keep", "dev", "nosuchprogram").want(t, 127, "", "bailey: nosuchprogram: command not found\n")
	b.run("box", "stop", "dev").want(t, 0, "", "")
	if got := b.boxes(); len(got) != 1 || got["other"].Name == "" {
		t.Errorf("left are %v", got)
	}
	b.run("box", "exec", "dev", "true").want(t, 125, "", "bailey: there is no such sandbox: dev; see: bailey box ps\n")
}

func TestKeptSandboxHoldsThePolicy(t *testing.T) {
	b := keepBench(t)
	for range 2 {
		got := b.run("-k", "dev", "-c", "touch ok; touch .envrc; mkdir .git; touch "+b.home+"/x; exit 0")
		if !strings.Contains(got.stderr, "bailey: denied: create .envrc (protected name)") || !strings.Contains(got.stderr, "denied: mkdir .git") {
			t.Errorf("stderr %q", got.stderr)
		}
	}
	for _, name := range []string{".envrc", ".git"} {
		if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
			t.Errorf("%s exists", name)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.home, "x")); err == nil {
		t.Error("the home was written to")
	}
}

// What one command is denied the client of another does not hear of.
func TestDenialsReachTheirOwnClient(t *testing.T) {
	b := keepBench(t)
	b.run("-k", "dev", "true")
	var group sync.WaitGroup
	for _, name := range []string{".envrc", ".bashrc", ".zshrc", ".profile"} {
		group.Go(func() {
			for range 5 {
				got := b.run("-k", "dev", "-c", "touch "+name+" 2>/dev/null; true")
				if want := "create " + name; strings.Count(got.stderr, "denied:") != 1 || !strings.Contains(got.stderr, want) {
					t.Errorf("%s: stderr %q", name, got.stderr)
				}
			}
		})
	}
	group.Wait()
}

func TestChangedPolicyIsANewSandbox(t *testing.T) {
	b := keepBench(t)
	b.run("-k", "dev", "-c", "echo old > /tmp/note").want(t, 0, "", "")
	running := b.command("-k", "dev", "-c", "echo here; read x; cat /tmp/note")
	in, _ := running.StdinPipe()
	out, _ := running.StdoutPipe()
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, _ := lines.ReadString('\n'); line != "here\n" {
		t.Fatalf("got %q", line)
	}
	secret := b.write("secret", "s3cret\n", 0o644)
	got := b.run("-k", "dev", "--deny-read", secret, "-c", "cat secret /tmp/note 2>&1")
	if strings.Contains(got.stdout, "s3cret") || strings.Contains(got.stdout, "old") || !strings.Contains(got.stderr, "a new sandbox was made") {
		t.Errorf("got %+v", got)
	}
	fmt.Fprintln(in, "go on")
	if rest, _ := lines.ReadString('\n'); rest != "old\n" {
		t.Errorf("the command in the old one saw %q", rest)
	}
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	b.until("the old one ends", func() bool { return len(b.boxes()) == 1 })
}

// A directory that was replaced on the host has the same name, and the sandbox
// would still show the old one.
func TestReplacedDirectoryIsANewSandbox(t *testing.T) {
	b := keepBench(t)
	b.write("file", "old\n", 0o644)
	b.run("-k", "dev", "cat", "file").want(t, 0, "old\n", "")
	if err := os.Rename(b.dir, b.dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("file", "new\n", 0o644)
	if got := b.run("-q", "-k", "dev", "cat", "file"); got.stdout != "new\n" {
		t.Errorf("got %+v", got)
	}
}

func TestDetachedCommandGoesOn(t *testing.T) {
	b := keepBench(t)
	if err := unix.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.run("-k", "dev", "--detach", "-c", "echo began; read x < pipe; echo heard $x").want(t, 0, "", "")
	b.until("it runs", func() bool { return len(b.boxes()["dev"].Commands) == 1 })
	follow := b.command("box", "logs", "--follow", "dev")
	var out bytes.Buffer
	follow.Stdout = &out
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	b.run("-k", "dev", "-c", "echo you > pipe").want(t, 0, "", "")
	b.until("it ends", func() bool { return len(b.boxes()["dev"].Commands) == 0 })
	b.until("its output arrives", func() bool { return strings.Contains(b.run("box", "logs", "dev").stdout, "heard you\n") })
	b.run("box", "stop", "dev").want(t, 0, "", "")
	if err := follow.Wait(); err != nil || out.String() != "began\nheard you\n" {
		t.Errorf("followed %q, %v", out.String(), err)
	}
}

func TestKeptCommandEndsWithItsClient(t *testing.T) {
	b := keepBench(t)
	cmd := b.command("-k", "dev", "-c", "trap '' TERM HUP INT; echo here; while :; do sleep 0.01; done")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	b.until("the command is gone", func() bool { box := b.boxes()["dev"]; return box.Processes == 0 && len(box.Commands) == 0 })
}

func TestSignalsReachAKeptCommand(t *testing.T) {
	b := keepBench(t)
	cmd := b.command("-k", "dev", "-c", "trap 'echo usr1; exit 6' USR1; echo ready; while :; do sleep 0.01; done")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	_, _ = lines.ReadString('\n')
	waitForHandlers(t, cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if line, _ := lines.ReadString('\n'); line != "usr1\n" {
		t.Errorf("got %q", line)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 6 {
		t.Errorf("status %d", got)
	}
}

// keeperPid is the keeper of a bench: the parent of process 1.
func (b *bench) keeperPid(name string) int {
	b.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.boxes()[name].Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func TestEverythingEndsWithTheKeeper(t *testing.T) {
	b := keepBench(t)
	cmd := b.command("-k", "dev", "-c", "echo here; exec sleep 1000")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(out).ReadString('\n')
	first := b.boxes()["dev"].Pid
	if err := syscall.Kill(b.keeperPid("dev"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitOwn || !strings.Contains(errs.String(), "keeper") {
		t.Errorf("status %d, stderr %q", got, errs.String())
	}
	b.until("process 1 is gone", func() bool { return syscall.Kill(first, 0) == syscall.ESRCH })
	// The socket that it left behind is in nobody's way.
	b.run("-k", "dev", "echo", "again").want(t, 0, "again\n", "")
}

func TestIdleSandboxEndsByItself(t *testing.T) {
	b := keepBench(t)
	b.run("-k", "dev", "--idle-timeout", "50ms", "true").want(t, 0, "", "")
	b.until("it ends", func() bool { return len(b.boxes()) == 0 })
	b.run("-k", "dev", "--idle-timeout", "soon", "true").wantError(t, "--idle-timeout soon: is no time; for example: 90s")
	b.run("--idle-timeout", "1s", "true").wantError(t, "--idle-timeout goes with --keep")
	b.run("--detach", "true").wantError(t, "--detach goes with --keep")
	b.run("-k", "../x", "true").wantError(t, "letters and digits")
	b.run("-k", "dev", "-m", "true").wantError(t, "--monitor does not go with --keep")
}

// Many clients start at once where there is no keeper yet, and one ends in
// between.
func TestClientsAgreeOnOneKeeper(t *testing.T) {
	b := keepBench(t)
	for range 3 {
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				if got := b.run("-k", "dev"+strconv.Itoa(i%3), "--idle-timeout", "30ms", "echo", "hi"); got.stdout != "hi\n" || got.status != 0 {
					t.Errorf("got %+v", got)
				}
			})
		}
		group.Wait()
	}
}

func TestKeeperTurnsSandboxesAway(t *testing.T) {
	b := keepBench(t)
	b.run("-k", "dev", "true").want(t, 0, "", "")
	var runtime string
	for _, v := range b.env {
		if value, ok := strings.CutPrefix(v, "XDG_RUNTIME_DIR="); ok {
			runtime = value
		}
	}
	socket := filepath.Join(runtime, "bailey", "keeper.sock")
	const line = `import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])
data = b''
while True:
    more = s.recv(100)
    if not more: break
    data += more
    if b'0.1' in data or len(data) > 50: break
print(data)`
	const greeting = "0.1"
	control := exec.Command("python3", "-c", line, socket)
	if out, err := control.CombinedOutput(); err != nil || !strings.Contains(string(out), greeting) {
		t.Fatalf("outside: %v: %s", err, out)
	}
	for _, test := range []struct {
		name, policy, refusal string
		needs                 testenv.Requirement
	}{
		{
			"by itself", fmt.Sprintf(`{"filesystem": {"allowRead": [%[1]q], "allowWrite": [%[1]q]}, "network": {"allowAllUnixSockets": true}}`, runtime),
			"user namespace", testenv.UserNamespaces,
		},
		{
			"by the broker", fmt.Sprintf(`{"filesystem": {"allowRead": [%q]}, "network": {"allowUnixSockets": ["/**"]}}`, runtime),
			"PermissionError", testenv.UserNamespaces,
		},
		{"without namespaces", `{"runtime": "landlock", "network": {"allowAllUnixSockets": true}}`, "confined", testenv.Landlock(6)},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.Requires(t, test.needs)
			got := b.run("--policy", test.policy, "--", "python3", "-c", line, socket)
			if strings.Contains(got.stdout, greeting) || !strings.Contains(got.stdout+got.stderr, test.refusal) {
				t.Errorf("%+v", got)
			}
		})
	}
	b.run("--", "bailey", "box", "ps")
}

func TestKeptCommandsHaveTerminals(t *testing.T) {
	testenv.Requires(t, testenv.Program("bash"))
	b := keepBench(t)
	s := startShell(t, b)
	s.write("bailey -k dev -c 'stty size; echo ready; read x; echo got:$x; exec cat'\r")
	s.expect("ready\r\n")
	s.write("one\r")
	s.expect("got:one\r\n")
	s.write("\x1a") // Ctrl-Z
	s.expect("Stopped")
	s.expect("outer> ")
	s.write("bailey box exec dev tty\r")
	s.expect("/dev/pts/1\r\n")
	s.expect("outer> ")
	s.write("fg\r")
	s.expect("exec cat'\r\n")
	s.until("raw mode after fg", s.raw)
	s.write("again\r")
	s.expect("again\r\nagain\r\n")
	s.write("\x03")
	s.expect("outer> ")
	s.write("exit\r")
	s.wait()
}

func TestKeptSandboxWritesToAWorkspace(t *testing.T) {
	b := keepBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	b.write("a", "one\n", 0o644)
	run := func(script, stdout string) {
		t.Helper()
		b.run("-q", "-k", "dev", "--overlay", "-c", script).want(t, 0, stdout, "")
	}
	run("echo two >>a; echo private >/tmp/x", "")
	run("cat a /tmp/x; echo new >b", "one\ntwo\nprivate\n")
	if got, err := os.ReadFile(filepath.Join(b.dir, "a")); err != nil || string(got) != "one\n" {
		t.Errorf("the project has %q, %v", got, err)
	}
	b.run("ws", "apply", "dev").wantError(t, "in use")
	b.run("-q", "--overlay=keep:dev", "--", "true").wantError(t, "in use")
	b.run("-k", "dev", "--overlay", "--disk", "8M", "--", "true").wantError(t, "resources.disk 8M: in a sandbox that stays")
	// Another policy is another sandbox, on the same workspace.
	b.run("-q", "-k", "dev", "--overlay", "--env", "X=1", "--allow-network", "-c", "cat a; ls /tmp/x").want(t, 2, "one\ntwo\n", "ls: cannot access '/tmp/x': No such file or directory\n")
	b.run("box", "stop", "dev").want(t, 0, "", "")
	if got := b.run("ws", "diff", "--stat", "dev").stdout; got != "M a\nA b\n" {
		t.Errorf("diff: got %q", got)
	}
	if r := b.run("ws", "apply", "dev"); r.status != 0 {
		t.Errorf("apply: got %+v", r)
	}
	if got, err := os.ReadFile(filepath.Join(b.dir, "a")); err != nil || string(got) != "one\ntwo\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
}

func TestPathPermissionsHoldOverAnOverlay(t *testing.T) {
	b := keepBench(t)
	testenv.Requires(t, testenv.FUSE)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	if err := os.Mkdir(filepath.Join(b.dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".env", "d/.env", "d/a.ro", "d/v.md", "d/f"} {
		b.write(name, "host\n", 0o644)
	}
	policy := b.write("../rules.jsonc", `{"extends": "default", "workspace": {"rules": [
		{"pattern": "**/.env", "permission": "none"}, {"pattern": "d/*.ro", "permission": "read"}, {"pattern": "**/*.md", "permission": "view"}]}}`, 0o644)
	const script = `
		ls -A . d; cat .env d/.env d/v.md 2>/dev/null; cat d/a.ro
		for f in .env d/.env d/a.ro d/b.ro d/v.md new/.env; do mkdir -p new; echo x 2>/dev/null >$f && echo wrote $f; done
		mv d/f d/.env 2>/dev/null && echo moved; ln d/f d/c.ro 2>/dev/null && echo linked; rm -f d/a.ro 2>/dev/null; cat d/a.ro
		echo inside >>d/f; cat d/f; mv d/f d/g; echo new >new/n`
	want := ".:\nd\n\nd:\na.ro\nf\nv.md\nhost\nhost\nhost\ninside\n"
	for name, flags := range map[string][]string{
		"own":       {"--overlay=keep:own"},
		"in-memory": {"--overlay=keep:in-memory", "--disk", "8M"},
		"kept":      {"-k", "kept", "--overlay"},
	} {
		got := b.run(slices.Concat([]string{"-q", "-s", policy}, flags, []string{"-c", script + " 2>/dev/null; true"})...)
		if got.status != 0 || got.stdout != want {
			t.Errorf("%s: got %+v, want %q", name, got, want)
		}
		b.run("box", "stop", "--all")
		if got := b.run("ws", "diff", "--stat", name).stdout; got != "D d/f\nA d/g\nA new/\nA new/n\n" {
			t.Errorf("%s: diff: got %q", name, got)
		}
	}
	if got, err := os.ReadFile(filepath.Join(b.dir, "d/f")); err != nil || string(got) != "host\n" {
		t.Errorf("the project has %q, %v", got, err)
	}
}

func TestSnapshotOfOneOfSeveralKeptSandboxes(t *testing.T) {
	b := keepBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	for _, name := range []string{"one", "two"} {
		b.run("-q", "-k", name, "--overlay", "-c", "echo "+name+" >made").want(t, 0, "", "")
	}
	b.run("ws", "snapshot", "one").want(t, 0, "s1\n", "")
	b.run("ws", "fork", "two", "three").want(t, 0, "", "")
	b.run("-q", "-k", "one", "--overlay", "-c", "cat made; echo later >made").want(t, 0, "one\n", "")
	b.run("box", "stop", "--all")
	b.run("ws", "rollback", "one", "s1").want(t, 0, "", "")
	for name, want := range map[string]string{"one": "one\n", "three": "two\n"} {
		if got := b.run("-q", "--overlay=keep:"+name, "-c", "cat made"); got.stdout != want {
			t.Errorf("%s: got %+v, want %q", name, got, want)
		}
	}
}

func TestKilledKeeperLeavesAnInterruptedWorkspace(t *testing.T) {
	b := keepBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	b.run("-q", "-k", "dev", "--overlay=keep:work", "-c", "echo x >made").want(t, 0, "", "")
	keeper := b.keeperPid("dev")
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until("the keeper is gone", func() bool { return syscall.Kill(keeper, 0) != nil })
	if out := b.run("ws", "list").stdout; !strings.Contains(out, "work  interrupted  +1 ~0 -0") {
		t.Errorf("list: got %q", out)
	}
	b.run("-q", "-k", "dev", "--overlay=keep:work", "-c", "cat made").want(t, 0, "x\n", "")
}
