package probe

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call that no command needs.
type call struct {
	name string
	// attack uses it for real; nil if the call with bad arguments is all that
	// can be done without harm.
	attack func() error
	// bad makes it with arguments that no kernel accepts. The filter does not
	// look at them, so that its answer differs from the kernel's.
	nr  uintptr
	bad [5]uintptr
}

const bad = ^uintptr(0)

func calls() []call {
	return []call{
		{"mount", mountTmpfs, unix.SYS_MOUNT, [5]uintptr{bad, bad, bad}},
		{"fsopen", func() error { return closing(unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)) }, unix.SYS_FSOPEN, [5]uintptr{bad}},
		{"unshare", newUserNamespace, unix.SYS_UNSHARE, [5]uintptr{1}},
		{"setns", setns, unix.SYS_SETNS, [5]uintptr{bad}},
		{"keyctl", joinKeyring, unix.SYS_KEYCTL, [5]uintptr{9999}},
		{"bpf", createMap, unix.SYS_BPF, [5]uintptr{9999}},
		{"perf_event_open", perfEvent, unix.SYS_PERF_EVENT_OPEN, [5]uintptr{bad, 0, 0, bad}},
		{"io_uring_setup", ioUring, unix.SYS_IO_URING_SETUP, [5]uintptr{1, bad}},
		{"userfaultfd", userfault, unix.SYS_USERFAULTFD, [5]uintptr{0x7fff0001}},
		{"open_by_handle_at", openByHandle, unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{bad, bad}},
		{"init_module", nil, unix.SYS_INIT_MODULE, [5]uintptr{bad, 0, bad}},
		{"kexec_load", nil, unix.SYS_KEXEC_LOAD, [5]uintptr{0, 1 << 20, 0, 1 << 20}},
	}
}

func callByName(name string) outcome {
	for _, c := range calls() {
		if c.name == name {
			return c.perform()
		}
	}
	return outcome{Errno: int(unix.ENOTSUP), Control: int(unix.ENOTSUP)}
}

func (c *call) perform() outcome {
	out := outcome{Second: int(c.makeBadly())}
	if c.attack != nil {
		out.Errno = number(c.attack())
		return out
	}
	out.Errno = out.Second
	if !isRefusal(out.Errno) {
		out.Errno = 0 // it came as far as its arguments
	}
	return out
}

func (c *call) makeBadly() unix.Errno {
	_, _, errno := unix.RawSyscall6(c.nr, c.bad[0], c.bad[1], c.bad[2], c.bad[3], c.bad[4], 0)
	return errno
}

// isRefusal says whether an errno is what the filter answers, or a kernel that
// misses a capability.
func isRefusal(errno int) bool { return errno == int(unix.EPERM) || errno == int(unix.ENOSYS) }

func closing(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func mountTmpfs() error {
	err := unix.Mount("bailey-audit", "/tmp", "tmpfs", 0, "")
	if err == nil {
		_ = unix.Unmount("/tmp", unix.MNT_DETACH)
	}
	return err
}

// newUserNamespace starts a child in one: a program with threads cannot enter it
// itself.
func newUserNamespace() error {
	pid, err := start(childNothing, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
	if err == nil {
		_, err = wait(pid)
	}
	return err
}

// setns enters the namespace it is in.
func setns() error {
	fd, err := unix.Open("/proc/self/ns/ipc", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Setns(fd, unix.CLONE_NEWIPC)
}

func joinKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	return err
}

// createMap creates a BPF array with one element.
func createMap() error {
	attr := [32]uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), 72)
	return closingRaw(fd, errno)
}

func closingRaw(fd uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return closing(int(fd), nil)
}

// perfEvent counts the program's own time, which most hosts allow everybody.
func perfEvent() error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Size: unix.PERF_ATTR_SIZE_VER1,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	return closing(unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC))
}

func ioUring() error {
	var params [30]uint32
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	return closingRaw(fd, errno)
}

func userfault() error {
	const userModeOnly = 1
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	return closingRaw(fd, errno)
}

func openByHandle() error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/proc/self/exe", unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return err
	}
	return closing(unix.OpenByHandleAt(unix.AT_FDCWD, handle, unix.O_RDONLY|unix.O_CLOEXEC))
}

// socketKind is a kind of socket that reaches around the network's rules.
type socketKind struct {
	name               string
	family, kind, prot int
}

func socketKinds() []socketKind {
	return []socketKind{
		{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0x300}, // ETH_P_ALL, in network order
		{"AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"raw IPv4", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	}
}

// socketByName makes a socket. Second is the answer to a kind that no family
// has: the kernel looks at that before it looks for the family.
func socketByName(name string) outcome {
	for _, k := range socketKinds() {
		if k.name == name {
			return outcome{
				Errno:   number(closing(unix.Socket(k.family, k.kind|unix.SOCK_CLOEXEC, k.prot))),
				Second:  number(closing(unix.Socket(k.family, 0x100, 0))),
				Control: number(closing(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))),
			}
		}
	}
	return outcome{Errno: int(unix.ENOTSUP), Control: int(unix.ENOTSUP)}
}

// typeIntoTerminal has a child with a terminal of its own push a letter into it,
// as if somebody had typed it.
func typeIntoTerminal() (out outcome) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, bad, unix.TIOCSTI, 0)
	out.Second = int(errno)
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	defer func() { _ = unix.Close(master) }()
	err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil || errno != 0 {
		return outcome{Errno: int(unix.ENOTTY), Control: int(unix.ENOTTY)}
	}
	defer func() { _ = unix.Close(int(peer)) }()
	pid, err := start(childType, &syscall.ProcAttr{
		Files: []uintptr{peer, peer, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		return outcome{Errno: number(err), Control: number(err)}
	}
	ws, err := wait(pid)
	if err != nil || !ws.Exited() || ws.ExitStatus() == childFailed {
		return outcome{Errno: int(unix.ECHILD), Control: int(unix.ECHILD)}
	}
	out.Errno = ws.ExitStatus()
	return out
}

// typeLetter is the child of typeIntoTerminal; it returns the errno.
func typeLetter() int {
	if _, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err != nil {
		return childFailed
	}
	letter := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, os.Stdin.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter)))
	return int(errno)
}
