package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

func TestManySandboxesStartAtOnce(t *testing.T) {
	requireSandbox(t)
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 200 {
		s := newSpec(t, dir, "/bin/sh", "-c", "exit "+strconv.Itoa(i))
		streams := nulls(t)
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p, err := Start(s, Options{Streams: streams})
			if err != nil {
				t.Errorf("sandbox %d: %v", i, err)
				return
			}
			if st := p.Wait(); st.Killed || st.Wait.ExitStatus() != i {
				t.Errorf("sandbox %d: %+v", i, st)
			}
		})
	}
	all.Wait()
}

// Descriptors come and go while sandboxes start: none may slip in, and the
// numbers a launch relies on must not depend on the launcher's.
func TestDescriptorsMayChangeMeanwhile(t *testing.T) {
	requireSandbox(t)
	stop := make(chan struct{})
	var churn sync.WaitGroup
	for range 2 {
		churn.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var open []int
				for range 8 {
					if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
						open = append(open, fd)
					}
				}
				for _, fd := range open {
					unix.Close(fd)
				}
			}
		})
	}
	defer churn.Wait()
	defer close(stop)
	for range testenv.Count(100, 5000) {
		if got := run(t, probeSpec(t, "fds")).exit(t, 0).out; got != "0\n1\n2\n" {
			t.Fatalf("descriptors inside: %q", got)
		}
	}
}

func TestAbandonedEmbryoLeavesNothing(t *testing.T) {
	requireSandbox(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	streams := nulls(t)
	before := openDescriptors(t)
	for range 50 {
		e, err := Begin(Options{Streams: streams})
		if err != nil {
			t.Fatal(err)
		}
		pid := e.proc.Pid
		e.Abandon()
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			t.Fatalf("process %d after it was abandoned: %v", pid, err)
		}
	}
	if after := openDescriptors(t); !slices.Equal(before, after) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
}

func TestEmbryoBecomesTheSandboxOfItsSpec(t *testing.T) {
	requireSandbox(t)
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []spec.Network{spec.NetworkNone, spec.NetworkHost} {
		runtime.LockOSThread()
		streams, collect := outputTo(t)
		e, err := Begin(Options{Streams: streams})
		if err != nil {
			t.Fatal(err)
		}
		s := shell(t, "readlink /proc/self/ns/net")
		s.Network = network
		p, err := e.Start(s)
		if err != nil {
			t.Fatal(err)
		}
		st := p.Wait()
		runtime.UnlockOSThread()
		got := strings.TrimSpace((result{st, collect()}).exit(t, 0).out)
		if same := got == outside; same != (network == spec.NetworkHost) {
			t.Errorf("network %s: inside %s, outside %s", network, got, outside)
		}
	}
}

func TestNothingOfALaunchStaysOpen(t *testing.T) {
	requireSandbox(t)
	s, missing := shell(t, "exit 0"), shell(t, "exit 0")
	missing.Exec = []string{"/no/such/program"}
	streams := nulls(t)
	tty := func() *Terminal { return &Terminal{Streams: [3]bool{true, true, true}} }
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := openDescriptors(t)
	for _, o := range []Options{{Streams: streams}, {Streams: streams, Terminal: tty()}} {
		p, err := Start(s, o)
		if err != nil {
			t.Fatal(err)
		}
		p.Wait()
		if p.Terminal != nil {
			p.Terminal.Close()
		}
		var no *ExecError
		if _, err := Start(missing, o); !errors.As(err, &no) {
			t.Errorf("missing program: %v", err)
		}
	}
	if after := openDescriptors(t); !slices.Equal(before, after) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
}

func TestModeMaskIsKept(t *testing.T) {
	requireSandbox(t)
	s := shell(t, "umask; : >file; stat -c %a file")
	defer unix.Umask(unix.Umask(0o137))
	if got := run(t, s).exit(t, 0).out; got != "0137\n640\n" {
		t.Errorf("got %q", got)
	}
}

func TestProcessOneIsSmallAndClosed(t *testing.T) {
	requireSandbox(t)
	// What the launcher holds must not matter.
	ballast := bytes.Repeat([]byte("secret of the launcher"), 4<<20)
	p := start(t, shell(t, "exec sleep 1000"), Options{Streams: nulls(t)})
	proc := fmt.Sprintf("/proc/%d/", p.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	if peak := field(string(status), "VmPeak:"); peak <= 0 || peak > 1024 {
		t.Errorf("process 1 has %d KB of address space", peak)
	}
	for name, want := range map[string]string{
		"Name:": "bailey-init", "NoNewPrivs:": "1", "Seccomp:": "2", "Seccomp_filters:": "1", "Threads:": "1",
		"CapInh:": "0000000000000000", "CapPrm:": "0000000000000000", "CapEff:": "0000000000000000",
		"CapBnd:": "0000000000000000", "CapAmb:": "0000000000000000",
	} {
		if got := text(string(status), name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	if testenv.LandlockABI() > 0 && os.Geteuid() == 0 {
		rollup, err := os.ReadFile(proc + "smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		pss := field(string(rollup), "Pss:")
		t.Logf("PSS of process 1: %d KB", pss)
		if pss <= 0 || pss >= 1024 {
			t.Errorf("PSS of process 1 is %d KB", pss)
		}
	}
	// What is in /proc of a process that cannot be dumped belongs to root.
	var st unix.Stat_t
	if err := unix.Stat(proc+"environ", &st); err != nil || st.Uid != 0 {
		t.Errorf("the environment of process 1 belongs to user %d, %v", st.Uid, err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if st := p.Wait(); !st.Killed {
		t.Errorf("got %+v, want killed", st)
	}
	runtime.KeepAlive(ballast)
}

func TestProcessOneCannotBeReadFromInside(t *testing.T) {
	requireSandbox(t)
	// Its pipe to the launcher is among them: who could write to it would invent
	// the command's end.
	got := run(t, shell(t, `for f in environ maps mem auxv exe fd/3 root/ cwd/ ns/net; do
	test "$(head -c 1 /proc/1/$f 2>&1 | wc -c)" -gt 1 || echo read $f
	(: >>/proc/1/$f) 2>/dev/null && echo written $f
	readlink /proc/1/$f
done
head -c 1 /proc/$$/environ >/dev/null && echo own`))
	if out := got.exit(t, 0).out; out != "own\n" {
		t.Errorf("got %s", out)
	}
}

// field returns the number after a name in a file of /proc.
func field(content, name string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(text(content, name), " kB"))
	if err != nil {
		return -1
	}
	return n
}

func text(content, name string) string {
	for line := range strings.Lines(content) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func TestOneProcessorIsEnough(t *testing.T) {
	requireSandbox(t)
	cmd := launcherCommand(t, "once", t.TempDir())
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "inside\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestMissingWallIsNamed(t *testing.T) {
	requireSandbox(t)
	for name, want := range map[string]Wall{
		"user": WallUser, "net": WallNetwork, "mnt": WallMount, "ipc": WallIPC, "uts": WallUTS, "cgroup": WallCgroup,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := launcherCommand(t, "without", t.TempDir(), name)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.HasPrefix(string(out), string(want)+": launch: ") {
				t.Errorf("%v: %s, want the %s named", err, out, want)
			}
		})
	}
}

func TestTraceHasThePartsOfALaunch(t *testing.T) {
	requireSandbox(t)
	log := trace.Open(filepath.Join(t.TempDir(), "trace"), 0)
	p := start(t, shell(t, "exit 0"), Options{Streams: nulls(t), Trace: log})
	(result{State: p.Wait()}).exit(t, 0)
	marks := log.Marks()
	if len(marks) < 10 || marks[len(marks)-1].Name != "teardown" {
		t.Fatalf("marks: %v", marks)
	}
	for _, want := range []string{"clone", "namespaces", "mounts", "landlock", "seccomp", "exec", "command"} {
		if !slices.ContainsFunc(marks, func(m trace.Mark) bool { return m.Name == want && m.Nano > 0 }) {
			t.Errorf("no mark %q in %v", want, marks)
		}
	}
}

// launcherCommand runs a mode of launch in a process of its own.
func launcherCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &exec.Cmd{Path: self, Args: append([]string{"launcher"}, args...), Env: append(os.Environ(), noRaceSleep)}
}
