package escape

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func init() {
	// without-namespaces is root of a user namespace in which no more of one
	// kind can be made, as on hosts that forbid them. It starts a launcher there.
	attacks["without-namespaces"] = func(args []string) {
		report("limit", os.WriteFile("/proc/sys/user/max_"+args[0]+"_namespaces", []byte("0"), 0))
		again(args[1:])
	}

	// without-proc has a /proc with something mounted on it, as in containers.
	attacks["without-proc"] = func(args []string) {
		report("mask", unix.Mount("tmpfs", "/proc/sys", "tmpfs", unix.MS_RDONLY, ""))
		again(args)
	}

	// without-call is a launcher whose kernel refuses one system call.
	attacks["without-call"] = func(args []string) {
		runtime.LockOSThread()
		nr, _ := strconv.Atoi(args[0])
		errno, _ := strconv.Atoi(args[1])
		report("filter", refuseCall(nr, errno, args[2]))
		again(args[3:])
	}
}

// again runs another attack as a child, and shows what it says.
func again(args []string) {
	c := exec.Command("/proc/self/exe", append([]string{"attack"}, args...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	report("child", c.Run())
}

// refuseCall makes a call fail with errno for this process and its children. If
// flag is not empty, only calls whose first argument has that bit.
func refuseCall(nr, errno int, flag string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const load, jumpEqual, jumpSet, ret = 0x20, 0x15, 0x45, 0x06
	const allow, fail = 0x7fff0000, 0x00050000
	prog := []unix.SockFilter{
		{Code: load, K: 0},
		{Code: jumpEqual, Jt: 0, Jf: 3, K: uint32(nr)},
		{Code: load, K: 16},
		{Code: jumpSet, Jt: 0, Jf: 1, K: ^uint32(0)},
		{Code: ret, K: uint32(fail | errno)},
		{Code: ret, K: allow},
	}
	if flag == "" {
		prog[2], prog[3] = prog[4], prog[4]
	} else {
		bit, err := strconv.ParseUint(flag, 0, 32)
		if err != nil {
			return err
		}
		prog[3].K = uint32(bit)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const setFilter, allThreads = 1, 1
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads, uintptr(unsafe.Pointer(&fprog)))
	return asError(e)
}

// launchArgs start a sandbox whose command leaves a mark.
func (b *box) launchArgs() []string {
	return []string{"launch", b.project, "", "sh", "-c", "echo ran > " + b.project + "/loot/ran"}
}

// expectNothingRan wants that the launcher tried, failed, and named the wall.
func (b *box) expectNothingRan(out, wall string) {
	b.t.Helper()
	b.expectNoLoot()
	if !strings.Contains(out, "run: bailey: ") {
		b.t.Errorf("the launcher did not get as far as launching")
	}
	if !strings.Contains(out, wall) {
		b.t.Errorf("the message does not name %q", wall)
	}
}

func TestMissingNamespaceStopsEverything(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for kind, wall := range map[string]string{
		"user": "user", "mnt": "mount namespace", "pid": "pid", "net": "network namespace", "ipc": "ipc namespace",
		"uts": "uts namespace", "cgroup": "cgroup namespace",
	} {
		t.Run(kind, func(t *testing.T) {
			b := newBox(t)
			out := b.runFree(namespaced(b.freeCommand("without-namespaces", append([]string{kind}, b.launchArgs()...)...)))
			b.expectNothingRan(out, wall)
		})
	}
	t.Run("control", func(t *testing.T) {
		b := newBox(t)
		b.runFree(namespaced(b.freeCommand("launch", b.launchArgs()[1:]...)))
		b.expectLoot("ran")
	})
}

func TestMaskedProcStopsEverything(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBox(t)
	out := b.runFree(namespaced(b.freeCommand("without-proc", b.launchArgs()...)))
	b.expectNothingRan(out, "proc")
}

// Every call that puts up a wall, refused in turn.
func TestRefusedCallStopsEverything(t *testing.T) {
	for _, c := range []struct {
		name string
		nr   int
		flag int // of the first argument
		wall string
	}{
		{"landlock_create_ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, 0, "landlock"},
		{"landlock_add_rule", unix.SYS_LANDLOCK_ADD_RULE, 0, "landlock"},
		{"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, 0, "landlock"},
		{"seccomp", unix.SYS_SECCOMP, 0, "filter"},
		{"unshare", unix.SYS_UNSHARE, 0, "namespace"},
		{"unshare of mounts", unix.SYS_UNSHARE, unix.CLONE_NEWNS, "mount"},
		{"unshare of the network", unix.SYS_UNSHARE, unix.CLONE_NEWNET, "network"},
		{"unshare of ipc", unix.SYS_UNSHARE, unix.CLONE_NEWIPC, "ipc"},
		{"clone into a user namespace", unix.SYS_CLONE, unix.CLONE_NEWUSER, "user"},
		{"mount", unix.SYS_MOUNT, 0, "mount"},
		{"pivot_root", unix.SYS_PIVOT_ROOT, 0, "pivot_root"},
		{"umount2", unix.SYS_UMOUNT2, 0, "old root"},
		{"open_tree", unix.SYS_OPEN_TREE, 0, ""},
		{"move_mount", unix.SYS_MOVE_MOUNT, 0, ""},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, 0, ""},
		{"openat2", unix.SYS_OPENAT2, 0, ""},
		{"close_range", unix.SYS_CLOSE_RANGE, 0, ""},
		{"capset", unix.SYS_CAPSET, 0, "capabilities"},
		{"execveat", unix.SYS_EXECVEAT, 0, "process 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			flag := ""
			if c.flag != 0 {
				flag = fmt.Sprint(c.flag)
			}
			for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
				args := append([]string{strconv.Itoa(c.nr), strconv.Itoa(int(errno)), flag}, b.launchArgs()...)
				b.expectNothingRan(b.free("without-call", args...), c.wall)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		b := newBox(t)
		// A call the launch does not need.
		b.free("without-call", append([]string{strconv.Itoa(unix.SYS_SWAPON), strconv.Itoa(int(unix.EPERM)), ""}, b.launchArgs()...)...)
		b.expectLoot("ran")
	})
}
