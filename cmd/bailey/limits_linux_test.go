package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMemoryLimitStopsWhatWantsMore(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.UserNamespaces)
	b := newBench(t)
	// A line without an end, which has to be kept until it ends.
	got := b.run("--memory", "64M", "--", "tail", "-n", "1", "/dev/zero")
	got.want(t, 137, "", "bailey: memory: the limit of 64M was reached: the kernel killed 1 process; for more: --memory\n")
	got = b.run("--memory", "64M", "--stats", "--json", "-c", "tail -n 1 /dev/zero; echo went on")
	s := got.stats(t)
	if got.stdout != "went on\n" || s.PeakMemory == nil || *s.PeakMemory > 65<<20 || strings.Join(s.Limits, " ") != "memory" {
		t.Errorf("got %+v, %+v", got, s)
	}
	b.run("--memory", "64M", "--", "echo", "small").want(t, 0, "small\n", "")
	if events := b.logged("--kind", "limit"); len(events) != 2 || events[0].Limit != "memory" {
		t.Errorf("the audit log has %+v", events)
	}
}

// stats reads what --stats --json has said, in the last line.
func (r result) stats(t *testing.T) (s account.Stats) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		t.Fatalf("%v in %+v", err, r)
	}
	return s
}

func TestOneProcessMoreThanTheLimitIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("dash"))
	b := newBench(t)
	// The shell is the first of them.
	const line = "i=1; while [ $i -lt 30 ]; do sleep 60 & i=$((i+1)); echo $i; done"
	got := b.run("--pids", "16", "--", "dash", "-c", line)
	started := strings.Fields(got.stdout)
	if len(started) != 15 || got.status != 2 {
		t.Errorf("got %d processes besides the shell, and status %d, %q; want 15, and the next one refused", len(started), got.status, got.stderr)
	}
	if os.Geteuid() == 0 && !strings.Contains(got.stderr, "bailey: pids: the limit of 16 was reached: 1 process was not started; for more: --pids\n") {
		t.Errorf("got %q", got.stderr)
	}
	b.run("--pids", "1", "--", "echo", "alone").want(t, 0, "alone\n", "")
}

func TestForkBombIsContained(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("dash"))
	b := newBench(t)
	const bomb = "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 60"
	got := b.run("--pids", "40", "--timeout", "2s", "--stats", "--json", "--", "dash", "-c", bomb)
	s := got.stats(t)
	if got.status != exitTimeout || s.Processes != nil && *s.Processes > 40 {
		t.Errorf("got %+v, %+v", got, s)
	}
}

func TestProcessorLimitMakesACommandWait(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.UserNamespaces)
	b := newBench(t)
	const busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
	got := b.run("--cpu", "10%", "--stats", "--json", "--", "dash", "-c", busy)
	if s := got.stats(t); got.status != 0 || s.Throttled == 0 || s.User+s.System > s.Wall/2 {
		t.Errorf("got %+v", s)
	}
}

func TestDiskLimitHoldsInMemory(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	policy := b.write("../private.jsonc", `{"extends": "default", "filesystem": {"allowWrite": ["!."], "privateWrite": ["."]}}`, 0o644)
	full := "bailey: disk: the limit of 8M was reached: no space was left for files at the end; for more: --disk\n"
	for _, dir := range []string{".", "/tmp", "/dev/shm", b.home + "/.cache"} {
		got := b.run("--disk", "8M", "-s", policy, "-c", "mkdir -p "+dir+"; head -c 20M /dev/zero >"+dir+"/x")
		if got.status == 0 || !strings.HasSuffix(got.stderr, full) || !strings.Contains(got.stderr, "No space left on device") {
			t.Errorf("%s: got %+v", dir, got)
		}
	}
	got := b.run("--disk", "8M", "-s", policy, "-c", "i=0; while : >/tmp/$i; do i=$((i+1)); done; echo $i")
	if n, err := strconv.Atoi(strings.TrimSpace(got.stdout)); err != nil || n > 4096 || n < 1024 {
		t.Errorf("empty files: got %+v; want a few thousand", got)
	}
	b.run("--disk", "8M", "-s", policy, "-c", "head -c 6M /dev/zero >x; ls").want(t, 0, "x\n", "")
	if names, err := os.ReadDir(b.dir); err != nil || len(names) != 0 {
		t.Errorf("the host has %v, %v", names, err)
	}
	b.run("--disk", "8M", "true").wantError(t, "resources.disk 8M: "+b.dir+" is written on the host's disk", "filesystem.privateWrite")
}

func TestDiskLimitHoldsForAnOverlay(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	got := b.run("-q", "--dry-run", "--disk", "8M", "--stats", "--json", "-c", "head -c 20M /dev/zero >big")
	if !strings.Contains(got.stderr, `"diskBytes":8388608,`) || !strings.Contains(got.stderr, `"limitsMet":["disk"]`) {
		t.Errorf("got %+v", got)
	}
	got = b.run("-q", "--overlay=keep:one", "--disk", "8M", "-c",
		"rm a.txt; mkdir shut; echo x >shut/x; chmod 0 shut/x; chmod 100 shut; rm -r sub; mkdir sub; echo n >sub/n; ln sub/n sub/m; head -c 20M /dev/zero >big")
	if got.status == 0 || !strings.Contains(got.stderr, "No space left on device") {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(got.stderr, "bailey: disk: the limit of 8M was reached: no space was left for files at the end; for more: --disk\n") {
		t.Errorf("stderr does not tell which limit: %s", got.stderr)
	}
	b.wantSame(before)
	if out := b.run("ws", "list", "--json").stdout; !strings.Contains(out, `"state":"kept"`) || !strings.Contains(out, `"bytes":`) {
		t.Errorf("list: got %s", out)
	}
	b.run("--overlay=keep:one", "-q", "-c", `ls sub; stat -c '%a %n' shut; chmod 700 shut; stat -c '%a %h %n' shut/x sub/n; test -e a.txt || echo gone; rm big`).
		want(t, 0, "m\nn\n100 shut\n0 1 shut/x\n644 2 sub/n\ngone\n", "bailey: kept as one\n")
}

func TestDiskLimitCountsWhatAWorkspaceHas(t *testing.T) {
	b := newOverlayBench(t)
	run := func(script, stdout string) {
		t.Helper()
		got := b.run("-q", "--overlay=keep:one", "--disk", "8M", "-c", script)
		got.want(t, 0, stdout, "bailey: kept as one\n")
	}
	run("head -c 5M /dev/zero >first; echo 1 >sub/b.txt; rm sub/deep/c.txt", "")
	run("cat sub/b.txt; echo 2 >sub/b.txt; ls sub/deep; rm first", "1\n")
	run("head -c 6M /dev/zero >second; cat sub/b.txt; rm sub/b.txt", "2\n")
	run("ls; ls sub; head -c 2M /dev/zero 2>/dev/null >third || rm third", "a.txt\nhard\nkeep\nlink\nrun.sh\nsecond\nsecret.pem\nsub\ndeep\n")
	b.run("-q", "--overlay=keep:one", "-c", "head -c 2M /dev/zero >third").want(t, 0, "", "bailey: kept as one\n")
	b.run("-q", "--overlay=keep:one", "--disk", "8M", "--", "true").
		wantError(t, "resources.disk 8M: the workspace one takes 8", "apply or discard it, or give more")
}

func TestDiskLimitOfAnOverlayLeavesNothingOfADryRun(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	got := b.run("--dry-run", "--disk", "8M", "-c", "echo x >made; rm a.txt")
	if got.status != 0 || !strings.Contains(got.stderr, "made") || !strings.Contains(got.stderr, "a.txt") {
		t.Errorf("got %+v", got)
	}
	b.wantSame(before)
	if names := b.workspaces(); len(names) != 0 {
		t.Errorf("workspaces: %q", names)
	}
}

func TestSnapshotWaitsForChangesInMemory(t *testing.T) {
	b := newOverlayBench(t)
	s := b.speaker("-q", "--overlay=keep:one", "--disk", "8M")
	s.say("echo x >made; echo ready")
	b.run("ws", "snapshot", "one").wantError(t, "its changes are in memory until it ends")
	if err := s.in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	b.run("ws", "snapshot", "one").want(t, 0, "s1\n", "")
}

func TestTimeoutAndOpenFilesAsFlags(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("--timeout", "100ms", "--", "sleep", "60").want(t, 124, "", "bailey: timed out after 100ms\n")
	b.run("--open-files", "50", "-c", "ulimit -n; ulimit -Hn").want(t, 0, "50\n50\n", "")
}

func TestLimitFlagsAreChecked(t *testing.T) {
	b := newBench(t)
	for _, c := range [][3]string{
		{"--memory", "lots", "--memory lots: is no size"},
		{"--memory", "0", "is no size"},
		{"--cpu", "0", "--cpu 0: is no number of processors"},
		{"--cpu", "NaN", "is no number of processors"},
		{"--cpu", "fast", "is no number of processors"},
		{"--pids", "-1", "is no number above 0"},
		{"--pids", "99999999999", "is no number above 0"},
		{"--open-files", "0", "is no number above 0"},
		{"--timeout", "never", "is no time"},
		{"--disk", "", "is no size"},
	} {
		b.run(c[0], c[1], "true").wantError(t, c[2])
	}
	b.run("--stats", "--keep", "x", "true").wantError(t, "--stats is about a sandbox of its own")
	b.run("-q", "--open-files", "8", "true").want(t, 0, "", "") // the least that is accepted
	b.run("--memory", "100K", "true").wantError(t, "resources.memory 100K: no program can be loaded in so little")
}

func TestWhatCannotBeHeldForAUserIsRefusedByName(t *testing.T) {
	testenv.Requires(t, testenv.Unprivileged, testenv.UserNamespaces)
	b := newBench(t)
	for flag, value := range map[string]string{"memory": "64M", "cpu": "0.5"} {
		got := b.run("--"+flag, value, "--", "echo", "ran")
		explained := b.run("explain", "--"+flag, value)
		if got.status == 0 && got.stdout == "ran\n" && explained.status == 0 {
			continue // this user has a group
		}
		if explained.status != exitOwn || explained.stderr != got.stderr {
			t.Errorf("explain says %q, and the run %q", explained.stderr, got.stderr)
		}
		if got.status != exitOwn || got.stdout != "" || !strings.HasPrefix(got.stderr, "bailey: command line: resources."+flag+" "+value+": ") {
			t.Errorf("--%s: got %+v, want it refused by name", flag, got)
		}
	}
}

func TestStatsTellWhatWasUsed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	got := b.run("--stats", "--json", "-c", "exit 3")
	s := got.stats(t)
	if got.status != 3 || s.Status != 3 || s.Wall <= 0 || s.User+s.System <= 0 || s.PeakMemory == nil || *s.PeakMemory == 0 || s.Connections == nil || *s.Connections != 0 {
		t.Errorf("got %+v", s)
	}
	if os.Geteuid() == 0 && s.PeakOf != "sandbox" {
		t.Errorf("the peak is of a %s, although root can have all counted", s.PeakOf)
	}
	if got := b.run("--stats", "--", "true"); !strings.HasPrefix(got.stderr, "bailey: time 0.") || !strings.Contains(got.stderr, "; processor ") {
		t.Errorf("got %q", got.stderr)
	}
	if s := b.run("--stats", "--json", "--allow-network", "--", "true").stats(t); s.Connections != nil {
		t.Errorf("in the host's network got %d connections, which nobody has counted", *s.Connections)
	}
}

func TestWithoutALimitNoGroupIsTouched(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("strace"))
	b := newBench(t)
	trace := filepath.Join(b.dir, "..", "trace")
	b.runProgram("strace", "-f", "-o", trace, testenv.Binary(t, "bailey"), "--pids", "100", "--", "true")
	touched := func() (lines []string) {
		text, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "bailey-group-") || strings.Contains(line, "cgroup.procs") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	if os.Geteuid() == 0 && len(touched()) == 0 {
		t.Error("with a limit no group was seen, so this test shows nothing")
	}
	b.runProgram("strace", "-f", "-o", trace, testenv.Binary(t, "bailey"), "--", "true")
	if lines := touched(); len(lines) > 0 {
		t.Errorf("got %q", lines)
	}
}

// groups are the control groups of a process.
func groups(t *testing.T, pid int) (dirs []string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if at := filepath.Join("/sys/fs/cgroup", f[1], f[2]); strings.Contains(f[2], "bailey-group-") {
			dirs = append(dirs, at)
		}
	}
	return dirs
}

func TestAKilledBaileyLeavesAGroupOnlyUntilTheNext(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.UserNamespaces)
	b := newBench(t)
	cmd := b.command("--memory", "64M", "-c", "echo up; sleep 60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	first := onlyChild(t, cmd.Process.Pid)
	list := groups(t, first)
	pidfd, err := unix.PidfdOpen(first, 0)
	if err != nil || len(list) == 0 {
		t.Fatalf("process %d is in %v (%v)", first, list, err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1); err != nil {
		t.Fatal(err)
	}
	b.run("--memory", "64M", "true").want(t, 0, "", "")
	for _, dir := range list {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

// onlyChild is the process that another has started.
func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // of a thread that may have ended
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return child
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

func TestAKeptSandboxHasItsLimits(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	b := keepBench(t)
	got := b.run("--memory", "64M", "--pids", "50", "-k", "small", "--", "tail", "-n", "1", "/dev/zero")
	got.want(t, 137, "", "bailey: memory: the limit of 64M was reached: the kernel killed 1 process; for more: --memory\n")
	b.run("--memory", "64M", "--pids", "50", "-k", "small", "--", "echo", "next").want(t, 0, "next\n", "")
	box := b.boxes()["small"]
	if box.Limits.Memory != 64<<20 || box.Limits.Pids != 50 || box.CPUSeconds == 0 {
		t.Errorf("got %+v; want the limits, and the time of commands that have ended", box)
	}
	list := groups(t, box.Pid)
	if len(list) == 0 {
		t.Fatal("process 1 is in no group")
	}
	b.run("box", "stop", "small").want(t, 0, "", "")
	for _, dir := range list {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}
