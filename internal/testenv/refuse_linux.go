package testenv

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseVariable makes a test binary a launcher; see RefuseAndExec.
const refuseVariable = "BAILEY_TEST_REFUSE"

// NoNamespaces is the value for a filter like those of containers: whoever asks for
// a namespace is refused, and so are mounts and descriptors of others.
const NoNamespaces = "namespaces"

// Refusal is the value for a filter by which one system call fails.
func Refusal(nr int, errno unix.Errno) string {
	return strconv.Itoa(nr) + ":" + strconv.Itoa(int(errno))
}

// Refused is a program under the filter of a value. The test binary must call
// RefuseAndExec in its TestMain.
func Refused(t testing.TB, value string, argv ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, argv...)
	cmd.Env = append(os.Environ(), refuseVariable+"="+value)
	return cmd
}

// RefuseVariable is the variable that a command of Refused has, for those who give
// it another environment.
func RefuseVariable(value string) string { return refuseVariable + "=" + value }

// RefuseAndExec installs the filter and executes the arguments, if this process was
// made by Refused. Otherwise it does nothing.
func RefuseAndExec() {
	value := os.Getenv(refuseVariable)
	if value == "" {
		return
	}
	program := refusal(value)
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		panic(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, refuseVariable+"=") })
	panic(unix.Exec(os.Args[1], os.Args[1:], env))
}

// refusal is the filter for a value.
func refusal(value string) []unix.SockFilter {
	const (
		allow     = 0x7fff0000 // SECCOMP_RET_ALLOW
		fail      = 0x00050000 // SECCOMP_RET_ERRNO
		load, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
		jumpEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jumpSet   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		namespace = 0x7e020000 // the flags of clone
	)
	if value != NoNamespaces {
		number, errno, _ := strings.Cut(value, ":")
		nr, _ := strconv.Atoi(number)
		no, _ := strconv.Atoi(errno)
		return []unix.SockFilter{{Code: load}, {Code: jumpEqual, Jf: 1, K: uint32(nr)}, {Code: ret, K: fail | uint32(no)}, {Code: ret, K: allow}}
	}
	program := []unix.SockFilter{{Code: load}}
	for _, nr := range []uint32{unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_VM_READV} {
		program = append(program, unix.SockFilter{Code: jumpEqual, Jf: 1, K: nr}, unix.SockFilter{Code: ret, K: fail | uint32(unix.EPERM)})
	}
	return append(program,
		unix.SockFilter{Code: jumpEqual, Jf: 1, K: unix.SYS_CLONE3}, unix.SockFilter{Code: ret, K: fail | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: jumpEqual, Jf: 3, K: unix.SYS_CLONE},
		unix.SockFilter{Code: load, K: 16}, // the low half of the first argument
		unix.SockFilter{Code: jumpSet, Jf: 1, K: namespace}, unix.SockFilter{Code: ret, K: fail | uint32(unix.EPERM)},
		unix.SockFilter{Code: ret, K: allow})
}
