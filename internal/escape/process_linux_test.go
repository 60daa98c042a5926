package escape

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	// parent starts an attack as its child and waits for it.
	attacks["parent"] = func(args []string) {
		c := exec.Command("/proc/self/exe", append([]string{"attack"}, args...)...)
		c.Env = []string{}
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		report("child", c.Run())
	}

	// idle says that it runs and stays until its input ends.
	attacks["idle"] = func([]string) {
		fmt.Println("idle")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}

	attacks["inspect"] = func(args []string) {
		runtime.LockOSThread()
		for _, arg := range args {
			pid, err := strconv.Atoi(arg)
			if err != nil {
				pid = startIdle()
			}
			ways := maps.Clone(inspections)
			if pid != 1 {
				maps.Copy(ways, managements)
			}
			for name, way := range ways {
				err := way(pid)
				report(fmt.Sprintf("%s of %s", name, arg), err)
				if err == nil {
					keep(name+"-"+arg, nil)
				}
			}
		}
	}
}

func startIdle() int {
	c := exec.Command("/proc/self/exe", "attack", "idle")
	_, _ = c.StdinPipe()
	out, _ := c.StdoutPipe()
	report("start", c.Start())
	_, _ = bufio.NewReader(out).ReadString('\n')
	return c.Process.Pid
}

// inspections look into another process, or take something from it.
var inspections = map[string]func(pid int) error{
	"ptrace-attach": func(pid int) error {
		if err := unix.PtraceAttach(pid); err != nil {
			return err
		}
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return unix.PtraceDetach(pid)
	},
	"ptrace-seize": func(pid int) error {
		if err := unix.PtraceSeize(pid); err != nil {
			return err
		}
		_ = unix.PtraceInterrupt(pid)
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return unix.PtraceDetach(pid)
	},
	"process_vm_readv":  func(pid int) error { return moveMemory(pid, unix.SYS_PROCESS_VM_READV) },
	"process_vm_writev": func(pid int) error { return moveMemory(pid, unix.SYS_PROCESS_VM_WRITEV) },
	"pidfd_getfd": func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for n := range 5 {
			var got int
			if got, err = unix.PidfdGetfd(fd, n, 0); err == nil {
				return unix.Close(got)
			}
		}
		return err
	},
	"mem":     func(pid int) error { return openProc(pid, "mem") },
	"environ": func(pid int) error { return openProc(pid, "environ") },
	"maps":    func(pid int) error { return openProc(pid, "maps") },
	"auxv":    func(pid int) error { return openProc(pid, "auxv") },
	"exe":     func(pid int) error { return openProc(pid, "exe") },
	"fd":      func(pid int) error { return openProc(pid, "fd/0") },
	"cwd":     func(pid int) error { return openProc(pid, "cwd") },
	"root":    func(pid int) error { return openProc(pid, "root") },
	"ns":      func(pid int) error { return openProc(pid, "ns/mnt") },
	"kcmp": func(pid int) error {
		_, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1, 0, 0, 0)
		return asError(errno)
	},
}

// managements change how another process is run. Those of process 1 inside only
// harm the sandbox itself.
var managements = map[string]func(pid int) error{
	"prlimit":  func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil) },
	"affinity": func(pid int) error { return setAffinity(pid) },
	"priority": func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 1) },
	"priority at the disk": func(pid int) error {
		const process, low = 1, 2<<13 | 7
		_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, process, uintptr(pid), low)
		return asError(errno)
	},
	"scheduler": func(pid int) error {
		return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: 1}, 0)
	},
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// moveMemory copies a byte at an address that every process of this program
// has; in a foreign process the permission is asked before the address.
func moveMemory(pid int, call uintptr) error {
	var buf [1]byte
	local := unix.Iovec{Base: &buf[0], Len: 1}
	remote := unix.RemoteIovec{Base: uintptr(0x400000), Len: 1}
	_, _, errno := unix.Syscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno == unix.EFAULT {
		return nil // permitted, only the address was wrong
	}
	return asError(errno)
}

func openProc(pid int, name string) error {
	path := fmt.Sprintf("/proc/%d/%s", pid, name)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if name == "environ" || name == "maps" || name == "auxv" {
		n, err := f.Read(make([]byte, 64))
		if n > 0 {
			return nil
		}
		return fmt.Errorf("empty: %w", err)
	}
	return nil
}

func setAffinity(pid int) error {
	var set unix.CPUSet
	set.Set(0)
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(pid, &set)
}

func TestProcessesOutsideCannotBeInspected(t *testing.T) {
	b := newBox(t)
	victim := b.freeCommand("idle")
	victim.Env = append(os.Environ(), "TOKEN=x")
	in, err := victim.StdinPipe()
	must(t, err)
	must(t, victim.Start())
	defer func() {
		in.Close()
		_ = victim.Wait()
	}()
	// Process 1 of the sandbox is Bailey's own; the others are the host's.
	b.attack("inspect", "1", strconv.Itoa(victim.Process.Pid), strconv.Itoa(os.Getpid()))
	b.expectNoLoot()

	var names []string
	for _, ways := range []map[string]func(int) error{inspections, managements} {
		for name := range ways {
			names = append(names, name+"-child")
		}
	}
	b.free("inspect", "child")
	b.expectLoot(names...)
}

func init() {
	attacks["signal"] = func(args []string) {
		pid, _ := strconv.Atoi(args[0])
		const sig = unix.SIGWINCH // harmless to whoever else gets it
		report("kill", unix.Kill(pid, sig))
		report("kill group", unix.Kill(-pid, sig))
		report("tgkill", unix.Tgkill(pid, pid, sig))
		if fd, err := unix.PidfdOpen(pid, 0); err != nil {
			report("pidfd_open", err)
		} else {
			report("pidfd_send_signal", unix.PidfdSendSignal(fd, sig, nil, 0))
		}
		var info [128]byte
		*(*int32)(unsafe.Pointer(&info[8])) = -1 // si_code: SI_QUEUE
		_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(sig), uintptr(unsafe.Pointer(&info)))
		report("rt_sigqueueinfo", asError(errno))
		report("descriptor owner", signalOwner(pid))
		if len(args) > 1 {
			signal.Ignore(syscall.SIGWINCH)
			report("kill all", unix.Kill(-1, sig))
			report("kill own group", unix.Kill(0, sig))
			report("kill parent", unix.Kill(os.Getppid(), sig))
		}
	}
}

// signalOwner lets the kernel send the signal, when a pipe becomes readable.
func signalOwner(pid int) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, pid); err != nil {
		return err
	}
	const setSig = 10
	if _, err := unix.FcntlInt(uintptr(fds[0]), setSig, int(unix.SIGWINCH)); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
		return err
	}
	_, err = unix.Write(fds[1], []byte("x"))
	return err
}

func TestSignalsDoNotReachTheHost(t *testing.T) {
	for _, policy := range []string{"", `{"network": {"allowedDomains": ["*"]}}`} {
		b := newBox(t)
		b.policy = policy
		hits := make(chan os.Signal, 64)
		signal.Notify(hits, syscall.SIGWINCH)
		defer signal.Stop(hits)
		b.attack("signal", strconv.Itoa(os.Getpid()), "all")
		// Signals are delivered before a later one is: this is the fence.
		must(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
		<-hits
		select {
		case <-hits:
			t.Errorf("a signal from the sandbox arrived")
		case <-time.After(50 * time.Millisecond):
		}

		b.free("signal", strconv.Itoa(os.Getpid()))
		select {
		case <-hits:
		case <-time.After(10 * time.Second):
			t.Errorf("control: no signal arrived")
		}
		signal.Stop(hits)
	}
}

func init() {
	// daemon leaves a process behind that has let go of everything: another
	// session, another parent, all signals ignored, no descriptors.
	attacks["daemon"] = func(args []string) {
		if len(args) == 2 {
			c := exec.Command("/proc/self/exe", "attack", "daemon", args[0])
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			report("second fork", c.Start())
			return
		}
		for sig := syscall.Signal(1); sig < 32; sig++ {
			signal.Ignore(sig)
		}
		_ = unix.Setpgid(0, 0)
		for fd := range 3 {
			_ = unix.Close(fd)
		}
		_ = os.WriteFile(filepath.Join(loot, "daemon"), nil, 0o644)
		time.Sleep(time.Minute)
	}

	attacks["daemonise"] = func(args []string) {
		report("first fork", exec.Command("/proc/self/exe", "attack", "daemon", args[0], "first").Run())
		for { // until the daemon stands
			if _, err := os.Stat(filepath.Join(loot, "daemon")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if len(args) > 1 {
			time.Sleep(time.Minute)
		}
	}
}

// processes finds the pids of processes with an argument.
func processes(arg string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if line, _ := os.ReadFile(f); bytes.Contains(line, []byte("\x00"+arg+"\x00")) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestDaemonDoesNotOutliveTheSandbox(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprintf("daemon-of-%d", os.Getpid())
	b.attack("daemonise", mark)
	b.expectLoot("daemon") // it did run
	if pids := processes(mark); len(pids) > 0 {
		t.Errorf("left after the command's end: %v", pids)
	}

	c := b.command(b.program, "attack", "daemonise", mark, "wait")
	must(t, c.Start())
	b.await("daemon")
	if len(processes(mark)) == 0 {
		t.Errorf("control: the daemon is not seen while the sandbox runs")
	}
	must(t, c.Kill())
	_ = c.Wait()
	if pids := processes(mark); len(pids) > 0 {
		t.Errorf("left after the sandbox was killed: %v", pids)
	}
	b.looted()

	b.free("daemonise", mark)
	pids := processes(mark)
	if len(pids) != 1 {
		t.Errorf("control: without a sandbox the daemon is %v", pids)
	}
	for _, pid := range pids {
		must(t, unix.Kill(pid, unix.SIGKILL))
	}
}

// await waits until the attack has put something into the loot.
func (b *box) await(name string) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(b.project, loot, name)); err == nil {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s never came", name)
		}
	}
}

func TestDaemonDiesWithItsLauncher(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprintf("orphan-of-%d", os.Getpid())
	launch := b.freeCommand("launch", b.project, "", b.program, "attack", "daemonise", mark, "wait")
	must(t, launch.Start())
	b.await("daemon")
	if len(processes(mark)) == 0 {
		t.Errorf("control: the daemon is not seen while the launcher lives")
	}
	must(t, launch.Process.Kill())
	_ = launch.Wait()
	for end := time.Now().Add(10 * time.Second); len(processes(mark)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left after the launcher was killed: %v", processes(mark))
		}
	}
}
