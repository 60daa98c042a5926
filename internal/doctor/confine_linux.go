package doctor

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// tryConfine is the probe of the walls that need no namespaces. The main thread
// gets them all, and ends with them.
func tryConfine(t teller) {
	runtime.LockOSThread()
	t.say("program in memory", tryMemory())
	t.say("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	t.say("landlock", tryLandlock())
	t.say("filter", install(0))
	t.say("listener", install(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV))
}

// tryMemory executes a program that is in no file, as process 1 of a sandbox is.
func tryMemory() error {
	fd, err := unix.MemfdCreate("doctor", unix.MFD_CLOEXEC|mfdExec)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate("doctor", unix.MFD_CLOEXEC) // before Linux 6.3
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte("#!/nonexistent\n")); err != nil {
		return err
	}
	// Whether it may be executed is what the kernel is asked, not to do it.
	return unix.Faccessat(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), unix.X_OK, 0)
}

const mfdExec = 0x10

// tryLandlock confines the thread to the right to read everything.
func tryLandlock() error {
	abi, errno := native.LandlockABI()
	if errno != 0 {
		return errno
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: native.HandledRights(abi)}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0)
	if errno != 0 {
		return errno
	}
	defer func() { _ = unix.Close(int(set)) }()
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return errno
	}
	// It must be seen to hold: nothing is granted.
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		return unix.ENOTRECOVERABLE
	}
	return nil
}

// install adds a filter that allows everything.
func install(flags uintptr) error {
	all := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}}
	prog := unix.SockFprog{Len: 1, Filter: &all[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// tryLookInside tries what a broker does with a process that asks it: read its
// memory, find its root directory, take a descriptor of it.
func (d *doctor) tryLookInside() attempt {
	a := attempt{}
	read, write, err := os.Pipe()
	if err != nil {
		return a
	}
	defer write.Close()
	out, theirs, err := os.Pipe()
	if err != nil {
		_ = read.Close()
		return a
	}
	defer out.Close()
	child, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], ProbeWord, "wait"}, &os.ProcAttr{Files: []*os.File{read, theirs, theirs}})
	_, _ = read.Close(), theirs.Close()
	a["start"] = startErrno(err)
	if err != nil {
		return a
	}
	defer func() { _, _ = child.Wait() }()
	defer write.Close() // which ends it
	var ready [16]byte
	if n, err := out.Read(ready[:]); err != nil || n == 0 {
		return a
	}
	a["memory"] = readMemory(child.Pid)
	root, err := unix.Open("/proc/"+itoa(child.Pid)+"/root", unix.O_PATH|unix.O_CLOEXEC, 0)
	a["root"] = errnoOf(err)
	_ = unix.Close(root)
	a["descriptor"] = takeDescriptor(child.Pid)
	return a
}

// readMemory reads of a process whether that is allowed. There is nothing at the
// place, so the answer of a kernel that allows it is that.
func readMemory(pid int) unix.Errno {
	var into [8]byte
	local := unix.Iovec{Base: &into[0]}
	local.SetLen(len(into))
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: 8, Len: len(into)}}, 0)
	if err == unix.EPERM || err == unix.ENOSYS {
		var fd int
		if fd, err = unix.Open("/proc/"+itoa(pid)+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			_, err = unix.Pread(fd, into[:], 8)
			_ = unix.Close(fd)
		}
	}
	if err == unix.EFAULT || err == unix.EIO {
		return 0
	}
	return errnoOf(err)
}

func takeDescriptor(pid int) unix.Errno {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errnoOf(err)
}
