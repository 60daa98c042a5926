package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Holder returns what stops the sandbox that uses a workspace: everything in the
// process namespace below who holds the workspace's lock.
func (s *Store) Holder(name string) (Freezer, error) {
	if err := delta.ValidName(name); err != nil {
		return nil, err
	}
	lock, err := filepath.EvalSymlinks(s.Dir() + "/workspaces/" + name + "/lock")
	if err != nil {
		return nil, err
	}
	holder, err := whoHasOpen(lock)
	if err != nil {
		return nil, err
	}
	d, err := s.Peek(name)
	if err != nil {
		return nil, err
	}
	inside, err := below(holder, d.First())
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	return Sandbox(inside), nil
}

// whoHasOpen finds the process that has a file open.
func whoHasOpen(file string) (pid int, err error) {
	for _, p := range processes() {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p))
		if err != nil {
			continue // it belongs to somebody else, or is gone
		}
		for _, fd := range fds {
			if target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p, fd.Name())); target == file && p != os.Getpid() {
				return p, nil
			}
		}
	}
	return 0, fmt.Errorf("nobody uses %s", file)
}

// below finds the process namespace of the sandbox that a process has started. One
// that has several must have said which it means: by its first process, or 0.
func below(holder, first int) (namespace string, err error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", holder))
	if err != nil {
		return "", err
	}
	for _, p := range processes() {
		if parent(p) != holder || first != 0 && p != first {
			continue
		}
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p))
		if err != nil || ns == own || ns == namespace {
			continue
		}
		if namespace != "" {
			return "", fmt.Errorf("process %d has several sandboxes", holder)
		}
		namespace = ns
	}
	if namespace == "" {
		return "", fmt.Errorf("process %d has no sandbox", holder)
	}
	return namespace, nil
}

func processes() []int {
	entries, _ := os.ReadDir("/proc")
	var list []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// parent reads from /proc/PID/stat, where the name, which is any bytes, stands in
// brackets before the state and the parent.
func parent(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// Sandbox is a process namespace, as /proc/PID/ns/pid names it.
type Sandbox string

// Freeze stops every thread of the namespace between two system calls, or within
// one that waits. Unlike a signal to stop, nobody sees it: no shell takes it for
// the end of a job. If the caller dies, everything goes on. Nobody in the caller's
// process may wait for a process of the namespace meanwhile: it would be told of
// the stops.
func (n Sandbox) Freeze() (thaw func(), err error) {
	return (&freezing{namespace: string(n)}).start()
}

// Process is a process that does everything that is done in a sandbox, as the kernel of
// gVisor is.
type Process int

// Freeze is that of Sandbox, for all threads of the process alone.
func (p Process) Freeze() (thaw func(), err error) { return (&freezing{only: int(p)}).start() }

func (f *freezing) start() (thaw func(), err error) {
	f.held = make(map[int]unix.Signal)
	frozen := make(chan error)
	end := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Who traces is a thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer f.thaw()
		frozen <- f.freeze()
		<-end
	}()
	thaw = func() {
		close(end)
		<-ended
	}
	if err := <-frozen; err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}

type freezing struct {
	namespace string
	only      int                 // process, or 0
	held      map[int]unix.Signal // threads, with the signal that each is about to get
}

// stopEvent is what a stop is called that we have asked for: PTRACE_EVENT_STOP.
const stopEvent = 128

// freeze goes over all threads until it finds no new one: those that were not held
// yet may have made others.
func (f *freezing) freeze() error {
	for {
		before := len(f.held)
		for _, pid := range f.inside() {
			if err := f.freezeProcess(pid); err != nil {
				return err
			}
		}
		if len(f.held) == before {
			break
		}
	}
	if len(f.held) == 0 {
		return errors.New("the sandbox has ended")
	}
	return nil
}

// inside are the processes of the namespace, and of those within it.
func (f *freezing) inside() []int {
	var list []int
	for _, pid := range processes() {
		if f.isInside(pid) {
			list = append(list, pid)
		}
	}
	return list
}

func (f *freezing) isInside(pid int) bool {
	if f.only != 0 {
		return pid == f.only
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && ns == f.namespace
}

func (f *freezing) freezeProcess(pid int) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil // it has ended
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if _, held := f.held[tid]; held {
			continue
		}
		if err := f.hold(tid); err != nil {
			return fmt.Errorf("process %d cannot be stopped: %w", pid, err)
		}
	}
	return nil
}

// hold stops a thread and waits until it stands still.
func (f *freezing) hold(tid int) error {
	if err := unix.PtraceSeize(tid); err != nil {
		if err == unix.ESRCH || isDead(tid) {
			return nil
		}
		return os.NewSyscallError("ptrace", err)
	}
	f.held[tid] = 0
	if err := unix.PtraceInterrupt(tid); err != nil && err != unix.ESRCH {
		return os.NewSyscallError("ptrace", err)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(tid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECHILD || status.Exited() || status.Signaled() {
			return nil // it ended meanwhile, or waits for its parent
		}
		if err != nil {
			return os.NewSyscallError("wait", err)
		}
		if status.Stopped() {
			if int(status)>>16 != stopEvent {
				f.held[tid] = status.StopSignal() // arrived just now
			}
			return nil
		}
	}
}

// isDead says whether a thread is a zombie, which cannot be stopped and writes
// nothing.
func isDead(tid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	return len(fields) > 0 && (fields[0] == "Z" || fields[0] == "X")
}

// thaw lets everything go on, with the signals that were held up. What was killed
// meanwhile is taken note of, or it would never be gone.
func (f *freezing) thaw() {
	for tid, signal := range f.held {
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(signal), 0, 0)
		if errno != 0 {
			_, _ = unix.Wait4(tid, nil, unix.WALL|unix.WNOHANG, nil)
		}
	}
}
