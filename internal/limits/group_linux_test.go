package limits

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// requiresGroups skips a test where this user cannot have control groups.
func requiresGroups(t *testing.T) {
	t.Helper()
	if os.Getenv(groupsVariable) == "" {
		testenv.Requires(t, testenv.Root)
	}
}

func TestMemoryIsHeld(t *testing.T) {
	requiresGroups(t)
	const limit, slack = 64 << 20, 1 << 20 // the kernel lets a page or two pass
	w, g := confined(t, "allocate", &spec.Limits{Memory: limit})
	err := w.Wait()
	if ws := w.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("600 MB in 64: got %v, want it killed", w.ProcessState)
	}
	u := g.Usage()
	if u.Killed != 1 || u.PeakMemory > limit+slack || u.PeakMemory >= 0 && u.PeakMemory < limit/2 {
		t.Errorf("got %+v; want 1 killed and a peak below the limit", u)
	}
}

func TestProcessorTimeIsHeld(t *testing.T) {
	requiresGroups(t)
	w, g := confined(t, "spin", &spec.Limits{CPU: 100})
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	u := g.Usage()
	periods := stat(g, "cpu.stat", "nr_periods")
	share := float64((u.User + u.System).Microseconds()) / float64(periods*period)
	if share < 0.08 || share > 0.12 || u.Throttled == 0 {
		t.Errorf("%v over %d periods is %.1f %% of a processor, throttled %v; want 10", u.User+u.System, periods, share*100, u.Throttled)
	}
}

func TestProcessesAreHeld(t *testing.T) {
	requiresGroups(t)
	const limit = 60
	w, g := confined(t, "fork", &spec.Limits{Pids: limit})
	if got := w.line(t); got != "full" {
		t.Errorf("got %q", got)
	}
	u := g.Usage()
	if u.Refused == 0 || u.Processes > limit || u.Peak > limit {
		t.Errorf("got %+v; want some refused, and never more than %d", u, limit)
	}
	_ = w.in.Close() // everything ends
	_ = w.Wait()
}

func TestAGroupIsGoneAfterItsSandbox(t *testing.T) {
	requiresGroups(t)
	w := newLoad(t, "wait")
	g, err := Open(&spec.Limits{Memory: 64 << 20, CPU: 500, Pids: 50}, true, w.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	list := dirs(g)
	for _, dir := range list {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	_ = w.in.Close()
	_ = w.Wait()
	g.Close()
	for _, dir := range list {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left, with %q", dir, processes(dir))
		}
	}
}

func TestRemainsOfAKilledOwnerAreSweptOnce(t *testing.T) {
	requiresGroups(t)
	w := newLoad(t, "own")
	w.begin(t)
	dir := w.line(t)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	sweep(path.Dir(dir), "")
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("a group in use was swept away")
	}
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.Wait()
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("nothing was left, so this test shows nothing: ", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { sweep(path.Dir(dir), "") })
	}
	all.Wait()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestWhatAKilledOwnerHadFrozenIsEnded(t *testing.T) {
	requiresGroups(t)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := Freeze(nil, func() []int { return []int{cmd.Process.Pid} })
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(f.part.lock) // all that its owner's end changes
	swept := make(chan struct{})
	go func() { // it waits until the process is gone, which is a child of this one
		sweep(path.Dir(f.part.dir), "")
		close(swept)
	}()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", err)
	}
	<-swept
	if _, err := os.Stat(f.part.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", f.part.dir, err)
	}
}

func TestSweepingKeepsWhatIsBeingMade(t *testing.T) {
	requiresGroups(t)
	g, err := Open(&spec.Limits{Memory: 64 << 20}, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	below := path.Dir(g.parts[0].dir)
	g.Close()
	stop := make(chan struct{})
	var sweepers, makers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					sweep(below, "")
				}
			}
		})
	}
	for range 2 {
		makers.Go(func() {
			for range 20 {
				g, err := Open(&spec.Limits{Memory: 64 << 20}, false, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if got := strings.TrimSpace(g.parts[0].read("memory.max") + g.parts[0].read("memory.limit_in_bytes")); got != "67108864" {
					t.Errorf("the group has lost its limit: %q", got)
				}
				g.Close()
			}
		})
	}
	makers.Wait()
	close(stop)
	sweepers.Wait()
}

func TestTheLockOfARemovedGroupIsNone(t *testing.T) {
	requiresGroups(t)
	g, err := Open(&spec.Limits{Memory: 64 << 20}, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(g.parts[0].dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := takeLock(fd); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the owner has it: got %v", err)
	}
	g.Close()
	if err := takeLock(fd); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the group is gone: got %v", err)
	}
}

func TestALimitThatCannotBeHeldIsNamed(t *testing.T) {
	m := &machine{}
	g := &Group{}
	err := g.open(m, &spec.Limits{Memory: 64 << 20, CPU: 500, Disk: 1 << 20}, false, 0)
	var refused *spec.Refused
	if !errors.As(err, &refused) || len(refused.Reasons) != 2 {
		t.Fatalf("without control groups: got %v, want memory and cpu refused", err)
	}
	for i, key := range []string{"resources.memory", "resources.cpu"} {
		if r := refused.Reasons[i]; r.Key != key || r.Reason != "no control groups are mounted" || r.Fix == "" {
			t.Errorf("got %v", r)
		}
	}
}

func TestRefusalsSayWhatHelps(t *testing.T) {
	one, two := &hierarchy{}, &hierarchy{unified: true}
	for _, c := range []struct {
		name        string
		m           machine
		h           *hierarchy
		err         error
		reason, fix string
	}{
		{"a user with version 1", machine{}, one, unix.EACCES, "version 1 are for root alone", "systemd.unified_cgroup_hierarchy=1"},
		{"a container", machine{root: true}, two, unix.EROFS, "only be read", "--privileged"},
		{"a container, version 1", machine{root: true}, one, unix.EROFS, "only be read", "--privileged"},
		{"a user without cpu", machine{}, two, &placeError{&missingError{"cpu"}, errors.New("no D-Bus")}, "controller cpu is not available", "Delegate=cpu"},
		{"a user without systemd", machine{}, two, &placeError{unix.EACCES, errors.New("no D-Bus")}, "no control group belongs to this user, and systemd gives none: no D-Bus", "enable-linger"},
		{"root among others", machine{root: true}, two, unix.EBUSY, "cannot be divided", "systemd-run"},
		{"root without a controller", machine{root: true}, two, &missingError{"cpu"}, "controller cpu", "boot a kernel"},
	} {
		reason, fix := c.m.explain(c.h, c.err)
		if !strings.Contains(reason, c.reason) || !strings.Contains(fix, c.fix) {
			t.Errorf("%s: got %q; %q", c.name, reason, fix)
		}
	}
}

func TestSettingsOfBothVersions(t *testing.T) {
	text := func(unified bool) string {
		var lines []string
		for _, s := range settings(&spec.Limits{Memory: 1 << 20, CPU: 250, Pids: 7}, unified) {
			lines = append(lines, s.file+"="+s.value)
		}
		return strings.Join(lines, "; ")
	}
	if got, want := text(false), "memory.limit_in_bytes=1048576; memory.memsw.limit_in_bytes=1048576; cpu.cfs_period_us=100000; cpu.cfs_quota_us=25000; pids.max=8"; got != want {
		t.Errorf("version 1: got %s, want %s", got, want)
	}
	if got, want := text(true), "memory.max=1048576; memory.swap.max=0; cpu.max=25000 100000; pids.max=8"; got != want {
		t.Errorf("version 2: got %s, want %s", got, want)
	}
}
