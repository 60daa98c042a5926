package limits

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// guestVariable is set in a virtual machine that runs this test program and
// nothing else. It holds control groups of version 2, and users that have some.
const guestVariable = "LIMITS_TEST_GUEST"

// groupsVariable says what a test may expect of the user it runs as.
const groupsVariable = "LIMITS_TEST_GROUPS"

// held are the tests of enforcement.
const held = "^(TestMemoryIsHeld|TestProcessorTimeIsHeld|TestProcessesAreHeld|TestAGroupIsGoneAfterItsSandbox|" +
	"TestRemainsOfAKilledOwnerAreSweptOnce|TestSweepingKeepsWhatIsBeingMade|TestAKilledGroupIsRemoved|TestTheLockOfARemovedGroupIsNone)$"

func TestVersionTwoInAVirtualMachine(t *testing.T) {
	kernel, err := filepath.Abs(cmp.Or(os.Getenv("BAILEY_TEST_KERNEL"), "../../.cache/kernel/vmlinuz"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Requires(t, testenv.Root, testenv.NoRace, testenv.Program("qemu-system-x86_64"), testenv.File(kernel), testenv.Program("go"))
	dir := t.TempDir()
	program := filepath.Join(dir, "init")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "initramfs")
	if err := os.WriteFile(image, archive(code), 0o600); err != nil {
		t.Fatal(err)
	}
	qemu := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-smp", "2", "-nodefaults", "-no-reboot",
		"-display", "none", "-serial", "stdio", "-kernel", kernel, "-initrd", image,
		"-append", "console=ttyS0 quiet panic=-1 "+guestVariable+"=1")
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := qemu.CombinedOutput()
	if err != nil || strings.Count(string(out), "guest: ok ") != len(guestRuns) {
		t.Errorf("%v\n%s", err, out)
	}
}

// archive is an initramfs, a cpio archive in the form "newc", with one program
// and the directories that it mounts something on.
func archive(program []byte) []byte {
	var b bytes.Buffer
	ino, major, minor := 0, 0, 0
	add := func(name string, mode uint32, data []byte) {
		ino++
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			ino, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
		b.WriteString(name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.Write(data)
		b.Write(make([]byte, -b.Len()&3))
	}
	for _, dir := range []string{"proc", "sys", "dev", "tmp"} {
		add(dir, unix.S_IFDIR|0o1777, nil)
	}
	add("init", unix.S_IFREG|0o755, program)
	major, minor = 5, 1
	add("dev/console", unix.S_IFCHR|0o600, nil)
	add("TRAILER!!!", 0, nil)
	return b.Bytes()
}

// guestRuns are the users that the tests run as, each in a group.
var guestRuns = []struct {
	name, group string
	uid         uint32
	delegated   string // what belongs to the user
	tests       string
}{
	{"root in the root group", "", 0, "", held},
	{"root in a group with processes", "service/main", 0, "", held},
	{"a user to whom a group is delegated", "user/session", 1000, "user", held},
	{"a user to whom none is", "other/session", 1000, "", "^TestAUserWithoutAGroupIsRefused$"},
}

const groupRoot = "/sys/fs/cgroup"

// guestMain is process 1 of the virtual machine. It does not return.
func guestMain() {
	fmt.Println()
	for _, m := range [][3]string{
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"devtmpfs", "/dev", "devtmpfs"},
		{"tmpfs", "/tmp", "tmpfs"},
		{"cgroup2", groupRoot, "cgroup2"},
	} {
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil {
			fmt.Println("guest: mount", m[1], err)
		}
	}
	_ = os.Chmod("/tmp", 0o1777)
	for _, r := range guestRuns {
		out, err := runInGuest(r.group, r.uid, r.delegated, r.tests)
		if err == nil && bytes.Contains(out, []byte("--- PASS")) && !bytes.Contains(out, []byte("--- SKIP")) {
			fmt.Println("guest: ok", r.name)
			continue
		}
		fmt.Printf("guest: %s: %v\n%s\n", r.name, err, out)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// runInGuest runs tests as a user in a group.
func runInGuest(group string, uid uint32, delegated, tests string) ([]byte, error) {
	dir := filepath.Join(groupRoot, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if delegated != "" {
		// As systemd does it.
		enable := os.WriteFile(groupRoot+"/cgroup.subtree_control", []byte("+cpu +memory +pids +io"), 0)
		for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			enable = errors.Join(enable, os.Chown(filepath.Join(groupRoot, delegated, name), int(uid), int(uid)))
		}
		if enable != nil {
			return nil, enable
		}
	}
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", tests)
	cmd.Env = []string{groupsVariable + "=1", "TMPDIR=/tmp", "PATH=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(at.Fd()),
		Credential: &syscall.Credential{Uid: uid, Gid: uid},
	}
	return cmd.CombinedOutput()
}

func TestAUserWithoutAGroupIsRefused(t *testing.T) {
	if os.Getenv(groupsVariable) == "" {
		testenv.Requires(t, testenv.Unprivileged)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	err := Check(&spec.Limits{Memory: 64 << 20})
	var refused *spec.Refused
	if err == nil {
		t.Skip("this user has a group")
	}
	if !errors.As(err, &refused) || refused.Reasons[0].Key != "resources.memory" || refused.Reasons[0].Fix == "" {
		t.Errorf("got %v, want memory refused by name", err)
	}
	if err := Check(&spec.Limits{Disk: 1 << 20}); err != nil {
		t.Errorf("files need no group: %v", err)
	}
}

func TestAKilledGroupIsRemoved(t *testing.T) {
	requiresGroups(t)
	w := newLoad(t, "wait")
	g, err := Open(&spec.Limits{Memory: 64 << 20}, false, w.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if !g.parts[0].unified {
		return // nothing ends the processes of version 1 but their own
	}
	dir := g.parts[0].dir
	g.Close()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left, with %q", dir, processes(dir))
	}
	if _, err := io.ReadAll(w.out); err != nil {
		t.Error(err)
	}
}
