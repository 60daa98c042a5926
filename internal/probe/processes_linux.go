package probe

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// What a child of the prober does.
const (
	childNothing  = "nothing"
	childWait     = "wait"
	childInt80    = "int80"
	childType     = "type"
	childFork     = "fork"
	childLinger   = "linger"
	childFailed   = 250 // exit status; no errno is that large
	lingeringByte = 'l'
)

func child(what string) int {
	switch what {
	case childNothing:
		return 0
	case childWait:
		_, _ = unix.Read(0, make([]byte, 1))
		return 0
	case childInt80:
		if int80() > 0 {
			return 0
		}
		return 1
	case childType:
		return typeLetter()
	case childFork:
		_, err := start(childLinger, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
		return number(err)
	case childLinger:
		_ = writeAll(1, []byte{lingeringByte})
		_ = unix.Close(1)
		for {
			_ = unix.Pause()
		}
	}
	return childFailed
}

// start starts the prober's program again.
func start(what string, attr *syscall.ProcAttr) (int, error) {
	if attr.Files == nil {
		attr.Files = []uintptr{0, 2, 2}
	}
	attr.Env = os.Environ()
	self, err := os.Executable()
	if err != nil {
		return -1, err
	}
	return syscall.ForkExec(self, append(Argv(), what), attr)
}

func wait(pid int) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws, err
		}
	}
}

// inChild has a child do something that may end it.
func inChild(what string) outcome {
	pid, err := start(what, &syscall.ProcAttr{})
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	ws, err := wait(pid)
	switch {
	case err != nil:
		return outcome{Errno: number(err), Control: number(err)}
	case ws.Signaled():
		return outcome{Errno: int(unix.ECHILD), Values: []string{unix.SignalName(ws.Signal())}}
	case ws.ExitStatus() != 0:
		return outcome{Errno: int(unix.ENOSYS)}
	}
	return outcome{}
}

// withChild runs a function on a child that waits.
func withChild(f func(pid int) error) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer func() { _ = unix.Close(pipe[0]) }()
	pid, err := start(childWait, &syscall.ProcAttr{Files: []uintptr{uintptr(pipe[0]), 2, 2}})
	if err == nil {
		err = f(pid)
	}
	_ = unix.Close(pipe[1])
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = wait(pid)
	}
	return err
}

// killChild shows that signals work.
func killChild() error {
	return withChild(func(pid int) error {
		if err := unix.Kill(pid, 0); err != nil {
			return err
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			return err
		}
		ws, err := wait(pid)
		if err == nil && !ws.Signaled() {
			err = unix.ECHILD
		}
		return err
	})
}

// trace tries to trace a process, on a thread that ends right after and lets it
// go.
func trace(pid int) outcome {
	seize := func(pid int) (err error) {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			err = unix.PtraceSeize(pid)
			close(done)
		}()
		<-done
		return err
	}
	return outcome{Errno: number(seize(pid)), Control: number(withChild(seize))}
}

// peek reads a byte of a process's memory.
func peek(pid int) error {
	var to [1]byte
	local := unix.Iovec{Base: &to[0]}
	local.SetLen(1)
	// Whether it may is decided before the address is looked at, so that one of
	// the prober's own does for every process.
	var here [1]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&here)), Len: 1}}, 0)
	if errors.Is(err, unix.EFAULT) {
		return nil // it was let in, and there is nothing at that address
	}
	return err
}

func pidfd(pid int) outcome {
	own := func(pid int) error { return closing(unix.PidfdOpen(pid, 0)) }
	return outcome{Errno: number(own(pid)), Control: number(own(os.Getpid()))}
}

// strangers lists the processes that are neither process 1 nor the prober.
func strangers() outcome {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	out := outcome{Control: int(unix.ESRCH)}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		switch {
		case err != nil || pid == 1:
		case pid == os.Getpid():
			out.Control = 0
		default:
			out.Values = append(out.Values, e.Name())
		}
	}
	return out
}

// linger leaves a process behind that is no descendant of the prober's any more
// and in a session of its own. It keeps the prober's stderr open.
func linger() error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer func() { _ = unix.Close(pipe[0]) }()
	pid, err := start(childFork, &syscall.ProcAttr{Files: []uintptr{0, uintptr(pipe[1]), 2}})
	_ = unix.Close(pipe[1])
	if err != nil {
		return err
	}
	if _, err := wait(pid); err != nil {
		return err
	}
	said, err := readAll(pipe[0])
	if err == nil && string(said) != string(rune(lingeringByte)) {
		err = unix.ECHILD
	}
	return err
}

// inheritedDescriptors lists what came with the exec: those have no close-on-exec
// flag, and everything this program opens itself has.
func inheritedDescriptors() outcome {
	own, err := unix.Dup(0) // without the flag
	out := outcome{Control: int(unix.EBADF)}
	if err != nil {
		return out
	}
	defer func() { _ = unix.Close(own) }()
	for fd := 3; fd < 1024; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case err != nil || flags&unix.FD_CLOEXEC != 0:
		case fd == own:
			out.Control = 0
		default:
			to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			out.Values = append(out.Values, strconv.Itoa(fd)+" "+to)
		}
	}
	return out
}

// statusKeys are lines of /proc/self/status that say what privileges are left.
var statusKeys = [...]string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}

// status returns the values of statusKeys, in their order.
func status() outcome {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	var out outcome
	for _, key := range statusKeys {
		_, rest, _ := strings.Cut(string(data), "\n"+key+":")
		value, _, _ := strings.Cut(rest, "\n")
		out.Values = append(out.Values, strings.TrimSpace(value))
	}
	return out
}

var namespaceKinds = [...]string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

// namespaces identifies the caller's, in the order of namespaceKinds; an empty
// one is not known.
func namespaces() []string {
	var ids []string
	for _, kind := range namespaceKinds {
		id, _ := os.Readlink("/proc/self/ns/" + kind)
		ids = append(ids, id)
	}
	return ids
}

// variables lists the environment: names, and for a value that is formed like a
// secret its kind after a blank. Values stay where they are.
func variables() outcome {
	var out outcome
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if kind := spec.SecretShape(value); kind != "" {
			name += " " + kind
		}
		out.Values = append(out.Values, name)
	}
	if !slices.Contains(out.Values, "BAILEY") {
		out.Control = int(unix.ENOENT)
	}
	return out
}
