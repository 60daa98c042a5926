package native

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Which process a test of killed launchers is made of: the test starts a
// reaper, the reaper starts launchers and kills them, and everything that
// loses its parent becomes the reaper's child. When wait reports that there is
// no child, nothing is left: there is nothing to poll for.

func TestKilledLauncherLeavesNothing(t *testing.T) {
	requireSandbox(t)
	reap(t, "moments", strconv.Itoa(testenv.Count(200, 5000)))
}

func TestLauncherKilledAtEachStepLeavesNothing(t *testing.T) {
	requireSandbox(t)
	reap(t, "steps", strconv.Itoa(testenv.Count(11, 1)))
}

func TestLauncherKilledBeforeTheFirstStepLeavesNothing(t *testing.T) {
	requireSandbox(t)
	reap(t, "first", "20")
}

// reap runs the reaper and looks at what it left on the machine.
func reap(t *testing.T, mode, count string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	project, temporary := t.TempDir(), t.TempDir()
	cmd := exec.Command(self)
	cmd.Args = []string{"reaper", mode, count, project}
	cmd.Env = append(os.Environ(), noRaceSleep, "TMPDIR="+temporary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, dir := range []string{project, temporary} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in a directory: %v, %v", left, err)
		}
	}
}

func reaper(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	mounts, err := testenv.HostMounts()
	if err != nil {
		return err
	}
	switch args[0] {
	case "moments":
		err = killAtMoments(count, args[2])
	case "steps":
		err = killAtSteps(count, args[2])
	case "first":
		for range count {
			if err = killAtStep(args[2], "first"); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if after, err := testenv.HostMounts(); err != nil || after != mounts {
		return fmt.Errorf("mounts: %w\n%s", err, after)
	}
	return nil
}

func killAtMoments(count int, dir string) error {
	for i := range count {
		ready, w, err := os.Pipe()
		if err != nil {
			return err
		}
		launcher, err := startLauncher(w, [...]string{"loop", "stay"}[i%2], dir)
		w.Close()
		if err != nil {
			return err
		}
		_, err = ready.Read(make([]byte, 1))
		ready.Close()
		if err != nil {
			return err
		}
		moment := time.Duration(rand.Int64N(int64(8 * time.Millisecond)))
		time.Sleep(moment)
		if err := launcher.Kill(); err != nil {
			return err
		}
		if _, err := waitForAll(); err != nil {
			return fmt.Errorf("killed at moment %d, %v after its start: %w", i, moment, err)
		}
	}
	return nil
}

// killAtSteps kills at each stride-th call of the plan, until there is none.
func killAtSteps(stride int, dir string) error {
	for step := rand.IntN(stride); ; step += stride {
		err := killAtStep(dir, "step", strconv.Itoa(step))
		if errors.Is(err, errNoSuchStep) && step > 100 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("killed at step %d: %w", step, err)
		}
	}
}

var errNoSuchStep = errors.New("no such step")

// killAtStep starts a launcher that kills itself.
func killAtStep(dir string, mode ...string) error {
	launcher, err := startLauncher(os.Stderr, append([]string{mode[0], dir}, mode[1:]...)...)
	if err != nil {
		return err
	}
	ends, err := waitForAll()
	if err != nil {
		return err
	}
	switch ws := ends[launcher.Pid]; {
	case ws.Signaled() && ws.Signal() == unix.SIGTERM:
		return errNoSuchStep
	case !ws.Signaled() || ws.Signal() != unix.SIGKILL:
		return fmt.Errorf("the launcher ended with %#x", uint32(ws))
	}
	return nil
}

func startLauncher(out *os.File, args ...string) (*os.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(self, append([]string{"launcher"}, args...), &os.ProcAttr{Files: []*os.File{null, out, os.Stderr}})
}

// waitForAll waits until this process has no child, and tells how each ended.
// What does not end is listed, and ended.
func waitForAll() (map[int]unix.WaitStatus, error) {
	late := time.AfterFunc(time.Minute, func() {
		children, _ := exec.Command("ps", "-o", "pid,ppid,stat,wchan:20,args", "--ppid", strconv.Itoa(os.Getpid())).CombinedOutput()
		fmt.Fprintf(os.Stderr, "still there after a minute:\n%s", children)
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
		for _, line := range strings.Split(string(children), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 0 {
				pid, _ := strconv.Atoi(f[0])
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		os.Exit(1)
	})
	defer late.Stop()
	ends := map[int]unix.WaitStatus{}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch err {
		case nil:
			ends[pid] = ws
		case unix.EINTR:
		case unix.ECHILD:
			return ends, nil
		default:
			return nil, err
		}
	}
}

// launch is the other side: a program that starts sandboxes.
func launch(args []string) error {
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(args[1])
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	o := Options{Streams: [3]*os.File{null, null, os.Stderr}}
	// Children that do all they can to survive.
	const survivors = "trap '' HUP TERM INT; setsid sh -c 'setsid sleep 1000 & sleep 1000' & (sleep 1000 &); sleep 1000 &"
	daemons := specFor(self, dir, "/bin/sh", "-c", survivors+" wait")
	switch args[0] {
	case "once":
		o.Streams[1] = os.Stdout
		return runOnce(specFor(self, dir, "/bin/echo", "inside"), o)
	case "without":
		return launchWithout(args[2], specFor(self, dir, "/bin/true"), o)
	case "stay":
		os.Stdout.WriteString("r")
		return runOnce(daemons, o)
	case "loop":
		os.Stdout.WriteString("r")
		for {
			e, err := Begin(o)
			if err != nil {
				return err
			}
			p, err := e.Start(specFor(self, dir, "/bin/sh", "-c", survivors))
			if err != nil {
				return err
			}
			p.Wait()
		}
	case "first":
		return dieBeforeFirstStep(daemons, o)
	case "step":
		step, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return dieAtStep(daemons, o, step)
	}
	return errors.New("no such mode: " + args[0])
}

func runOnce(s *spec.Spec, o Options) error {
	p, err := Start(s, o)
	if err != nil {
		return err
	}
	if st := p.Wait(); st.Wait != 0 {
		return fmt.Errorf("ended with %+v", st)
	}
	return nil
}

// launchWithout takes one kind of namespace away first.
func launchWithout(kind string, s *spec.Spec, o Options) error {
	if err := os.WriteFile("/proc/sys/user/max_"+kind+"_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	err := runOnce(s, o)
	var refused *LaunchError
	if errors.As(err, &refused) {
		return fmt.Errorf("%s: %w", refused.Wall, err)
	}
	return err
}

// dieAtStep kills this process when the child is at a call of its plan: the
// child says so, and goes on only when this process is gone. Steps are counted
// through all parts of the plan, but for those that arrange the descriptors.
func dieAtStep(s *spec.Spec, o Options, step int) error {
	p, err := openPipes(o)
	if err != nil {
		return err
	}
	e := newEmbryo(o, s.Identity, s.Network, p)
	// The last comes after the child's wait. Before the first the child has the
	// launcher's descriptors and nothing that ends it, and would wait for itself:
	// see TestLauncherKilledBeforeTheFirstStepLeavesNothing.
	if births := len(e.birth.ops) - 2; step < births {
		pauseAt(e.birth.plan, step+1, p.in.status, p.in.proceed)
		return dieWithChildIn(e, nil)
	} else {
		step -= births
	}
	next := e.planPrelude()
	arranged := 1 + slices.IndexFunc(e.prelude.ops, func(o op) bool { return o.nr == unix.SYS_CLOSE_RANGE })
	if step += arranged; step < len(e.prelude.ops)-1 {
		pauseAt(e.prelude.plan, step, fdStatus, fdGo)
		return dieWithChildIn(e, next)
	}
	step -= len(e.prelude.ops) - 1
	p.close()
	if e, err = begin(o, s.Identity, s.Network); err != nil {
		return err
	}
	l, err := e.compile(s)
	if err != nil {
		return err
	}
	if step >= len(l.ops) {
		e.Abandon()
		return suicide(unix.SIGTERM)
	}
	pauseAt(l.plan, step, fdStatus, fdGo)
	if err := e.run(l); err != nil {
		return err
	}
	return suicide(unix.SIGKILL)
}

func pauseAt(p *plan, step, status, proceed int) {
	pause := plan{steps: p.steps}
	pause.call(unix.SYS_WRITE, num(status), pause.ptr(pause.alloc(messageSize)), num(messageSize))
	// Once the descriptor is closed the child cannot wait, and just goes on.
	pause.call(unix.SYS_READ, num(proceed), pause.ptr(pause.alloc(1)), num(1)).tolerate = uintptr(unix.EBADF)
	insert(p, step, pause)
}

func insert(p *plan, step int, more plan) {
	p.keep = append(p.keep, more.keep)
	p.ops = slices.Insert(p.ops, step, more.ops...)
	p.of = slices.Insert(p.of, step, more.of...)
}

// dieWithChildIn kills this process when the child has said something. Next is
// for when this is in its prelude.
func dieWithChildIn(e *Embryo, next *[2]uintptr) error {
	if err := e.clone(); err != nil {
		return err
	}
	if next != nil {
		if err := e.grow(next); err != nil {
			return err
		}
	}
	if _, ok := e.proc.read(); !ok {
		return errors.New("the child ended")
	}
	return suicide(unix.SIGKILL)
}

// dieBeforeFirstStep kills this process before the child has done anything.
func dieBeforeFirstStep(s *spec.Spec, o Options) error {
	p, err := openPipes(o)
	if err != nil {
		return err
	}
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	e := newEmbryo(o, s.Identity, s.Network, p)
	pause := plan{steps: e.birth.steps}
	pause.call(unix.SYS_WRITE, num(p.in.status), pause.ptr(pause.alloc(messageSize)), num(messageSize))
	poll := &unix.PollFd{Fd: int32(self), Events: unix.POLLIN}
	pause.call(unix.SYS_PPOLL, pause.ptr(unsafe.Pointer(poll)), num(1), num(0), num(0), num(0))
	insert(e.birth.plan, 0, pause)
	return dieWithChildIn(e, nil)
}

func suicide(sig unix.Signal) error {
	if err := unix.Kill(os.Getpid(), sig); err != nil {
		return err
	}
	return unix.Pause() // until it arrives
}
