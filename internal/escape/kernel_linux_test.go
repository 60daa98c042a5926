package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// probes are system calls with arguments no kernel can carry out. If the filter
// stands the answer is its own; otherwise the kernel looks at the arguments and
// complains about them, or about a missing privilege.
var probes = []struct {
	name string
	nr   uintptr
	args [5]uintptr
	// privileged calls are refused to ordinary users by the kernel as well.
	privileged bool
}{
	{"unshare", unix.SYS_UNSHARE, [5]uintptr{1}, false},
	{"setns", unix.SYS_SETNS, [5]uintptr{bad, 0}, false},
	{"clone a user namespace", unix.SYS_CLONE, [5]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, false},
	{"clone3", unix.SYS_CLONE3, [5]uintptr{0, 1}, false},
	{"mount", unix.SYS_MOUNT, [5]uintptr{bad, bad, bad}, false},
	{"umount2", unix.SYS_UMOUNT2, [5]uintptr{bad, bad}, false},
	{"pivot_root", unix.SYS_PIVOT_ROOT, [5]uintptr{bad, bad}, true},
	{"chroot", unix.SYS_CHROOT, [5]uintptr{bad}, false},
	{"fsopen", unix.SYS_FSOPEN, [5]uintptr{bad, 0}, true},
	{"fsconfig", unix.SYS_FSCONFIG, [5]uintptr{bad, 99}, false},
	{"fsmount", unix.SYS_FSMOUNT, [5]uintptr{bad}, true},
	{"fspick", unix.SYS_FSPICK, [5]uintptr{bad, bad}, true},
	{"open_tree", unix.SYS_OPEN_TREE, [5]uintptr{bad, bad}, false},
	{"move_mount", unix.SYS_MOVE_MOUNT, [5]uintptr{bad, bad, bad, bad}, true},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR, [5]uintptr{bad, bad, bad}, false},
	{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{bad, bad}, true},
	{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [5]uintptr{bad, bad}, false},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, [5]uintptr{1, bad}, false},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER, [5]uintptr{bad}, false},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER, [5]uintptr{bad}, false},
	{"add_key", unix.SYS_ADD_KEY, [5]uintptr{bad, bad}, false},
	{"request_key", unix.SYS_REQUEST_KEY, [5]uintptr{bad, bad}, false},
	{"keyctl", unix.SYS_KEYCTL, [5]uintptr{9999}, false},
	{"bpf", unix.SYS_BPF, [5]uintptr{9999, 0, 0}, true},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [5]uintptr{bad, 0, 0, bad, 0}, false},
	{"userfaultfd", unix.SYS_USERFAULTFD, [5]uintptr{0x7fff0001}, true},
	{"fanotify_init", unix.SYS_FANOTIFY_INIT, [5]uintptr{bad, 0}, true},
	{"init_module", unix.SYS_INIT_MODULE, [5]uintptr{bad, 0, bad}, true},
	{"finit_module", unix.SYS_FINIT_MODULE, [5]uintptr{bad, bad, bad}, true},
	{"delete_module", unix.SYS_DELETE_MODULE, [5]uintptr{bad, 0}, true},
	{"kexec_load", unix.SYS_KEXEC_LOAD, [5]uintptr{0, 1 << 20, 0, 1 << 20}, true},
	{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, [5]uintptr{bad, bad, 0, 0, 1 << 20}, true},
	{"reboot", unix.SYS_REBOOT, [5]uintptr{1, 1, 1}, true},
	{"swapon", unix.SYS_SWAPON, [5]uintptr{bad, bad}, true},
	{"swapoff", unix.SYS_SWAPOFF, [5]uintptr{bad}, true},
	{"acct", unix.SYS_ACCT, [5]uintptr{bad}, true},
	{"settimeofday", unix.SYS_SETTIMEOFDAY, [5]uintptr{bad, bad}, false},
	{"clock_settime", unix.SYS_CLOCK_SETTIME, [5]uintptr{99, bad}, false},
	{"clock_adjtime", unix.SYS_CLOCK_ADJTIME, [5]uintptr{99, bad}, false},
	{"sethostname", unix.SYS_SETHOSTNAME, [5]uintptr{bad, 1 << 20}, true},
	{"syslog", unix.SYS_SYSLOG, [5]uintptr{99}, true},
	{"quotactl", unix.SYS_QUOTACTL, [5]uintptr{bad}, false},
	// Their numbers come from the kernel's table: this list must not follow the
	// filter's own.
	{"open_tree_attr", 467, [5]uintptr{bad, bad}, false},
	{"a call of a later kernel", 600, [5]uintptr{}, true},
}

const bad = ^uintptr(0)

func init() {
	attacks["probe"] = func([]string) {
		for _, p := range probes {
			_, _, errno := unix.RawSyscall6(p.nr, p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], 0)
			keep(p.name, []byte(errnoName(errno)))
		}
	}
}

func errnoName(errno unix.Errno) string {
	if errno == 0 {
		return "done"
	}
	return unix.ErrnoName(errno)
}

func TestKernelInterfacesAreClosed(t *testing.T) {
	b := newBox(t)
	b.attack("probe")
	inside := b.looted()
	b.free("probe")
	free := b.looted()
	for _, p := range probes {
		if got := inside[p.name]; got != "EPERM" && got != "ENOSYS" {
			t.Errorf("%s: inside got %q, want EPERM or ENOSYS", p.name, got)
		}
		// Without a sandbox the kernel itself may not have the call.
		if got := free[p.name]; got == "EPERM" && !p.privileged || got == "" {
			t.Errorf("control: %s: without a sandbox got %q too", p.name, got)
		}
	}
	distinct := 0
	for name, got := range free {
		if got != inside[name] {
			distinct++
		}
	}
	if distinct < len(probes)/2 {
		t.Errorf("control: only %d of %d calls are answered differently without a sandbox", distinct, len(probes))
	}
}

func init() {
	attacks["namespace"] = func([]string) {
		for name := range namespaceWays {
			c := exec.Command("/proc/self/exe", "attack", "namespace-way", name)
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			_ = c.Run()
		}
	}
	attacks["namespace-way"] = func(args []string) {
		runtime.LockOSThread()
		err := namespaceWays[args[0]]()
		report(args[0], err)
		if err == nil {
			keep(args[0], nil)
		}
	}
}

// namespaceWays get a fresh set of privileges, from which the rest of the
// kernel can be reached.
var namespaceWays = map[string]func() error{
	"unshare": func() error { return viaClone(func(c *exec.Cmd) { c.SysProcAttr.Unshareflags = unix.CLONE_NEWUSER }) },
	"clone":   func() error { return viaClone(func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER }) },
	"clone3": func() error {
		args := [11]uint64{unix.CLONE_NEWUSER, 0, 0, 0, uint64(unix.SIGCHLD)}
		pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
		if pid == 0 && errno == 0 {
			unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
		}
		return asError(errno)
	},
	"mount namespace": func() error {
		return viaClone(func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS })
	},
}

func viaClone(set func(*exec.Cmd)) error {
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{}
	set(c)
	return c.Run()
}

func TestNoNewNamespaces(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBox(t)
	b.attack("namespace")
	b.expectNoLoot()
	b.free("namespace")
	b.expectLoot("unshare", "clone", "clone3", "mount namespace")
}

func init() {
	attacks["mounts"] = func(args []string) {
		victim, dir := args[0], args[1]
		for _, w := range mountWays {
			err := w.way(victim, dir)
			report(w.name, err)
			if err == nil {
				keep(w.name, nil)
			}
			report("write", os.WriteFile(victim, []byte("evil "+w.name), 0o644))
		}
	}
}

// mountWays change which files are seen, or what may be done with them. The
// victim is on a read-only mount, dir is an empty directory of the attacker.
var mountWays = []struct {
	name string
	way  func(victim, dir string) error
}{
	{"mount tmpfs", func(_, dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") }},
	{"bind", func(v, dir string) error { return unix.Mount(filepath.Dir(v), dir, "", unix.MS_BIND, "") }},
	{"remount writable", func(v, _ string) error { return unix.Mount("", v, "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
	{"open_tree and move_mount", func(v, dir string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, filepath.Dir(v), unix.OPEN_TREE_CLONE)
		if err != nil {
			return err
		}
		return unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}},
	{"fsopen", func(_, dir string) error {
		fs, err := unix.Fsopen("tmpfs", 0)
		if err != nil {
			return err
		}
		if err := unix.FsconfigCreate(fs); err != nil {
			return err
		}
		fd, err := unix.Fsmount(fs, 0, 0)
		if err != nil {
			return err
		}
		return unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}},
	{"mount_setattr", func(v, _ string) error {
		return unix.MountSetattr(unix.AT_FDCWD, v, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID})
	}},
	{"mount_setattr of all", func(string, string) error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV})
	}},
	{"umount", func(v, _ string) error { return unix.Unmount(v, unix.MNT_DETACH) }},
	{"chroot", func(_, dir string) error { return unix.Chroot(dir) }},
}

func TestMountsAreNotChanged(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBox(t)
	victim := b.project + "/.git/config" // a read-only mount of its own
	must(t, os.Mkdir(b.project+"/empty", 0o755))
	table := func() string {
		text, err := testenv.HostMounts()
		must(t, err)
		return text
	}
	before := table()
	unchanged(t, func() { b.attack("mounts", victim, b.project+"/empty") }, victim)
	b.expectNoLoot()
	if after := table(); before != after {
		t.Errorf("the host's mounts changed: got\n%swant\n%s", after, before)
	}

	// What a process can do that has a user namespace and nothing else.
	c := namespaced(b.freeCommand("mounts", b.home+"/.gitconfig", b.project+"/empty"))
	b.write(b.home+"/.gitconfig", "")
	b.runFree(c)
	b.expectLoot("mount tmpfs", "bind", "open_tree and move_mount", "fsopen", "chroot")
}

func init() {
	attacks["device"] = func(args []string) {
		for _, dir := range args {
			for i, d := range []struct {
				kind uint32
				dev  uint64
			}{{unix.S_IFCHR, unix.Mkdev(1, 3)}, {unix.S_IFCHR, unix.Mkdev(1, 1)}, {unix.S_IFBLK, unix.Mkdev(7, 0)}, {unix.S_IFBLK, unix.Mkdev(254, 0)}, {unix.S_IFCHR, 0}} {
				path := filepath.Join(dir, fmt.Sprintf("device-%d", i))
				report("mknod "+path, unix.Mknod(path, d.kind|0o666, int(d.dev)))
				fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
				report("open "+path, err)
				if err == nil {
					keep(fmt.Sprintf("opened-%d", i), nil)
					unix.Close(fd)
				}
			}
		}
	}
}

func TestDeviceNodesAreNeitherMadeNorOpened(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	b := newBox(t)
	b.attack("device", b.project, "/tmp", "/dev/shm", "/dev")
	b.expectNoLoot()
	made, _ := filepath.Glob(b.project + "/device-*")
	if len(made) > 0 {
		t.Errorf("device nodes appeared on the host: %q", made)
	}
	// One that the host left in the project cannot be opened either.
	must(t, unix.Mknod(b.project+"/device-0", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	b.attack("device", b.project)
	b.expectNoLoot()
	must(t, os.Remove(b.project+"/device-0"))
	b.free("device", b.project)
	b.expectLoot("opened-0")
}

func init() {
	attacks["handle"] = func([]string) {
		handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, ".", 0)
		report("name_to_handle_at", err)
		if err != nil {
			// Guess it: the root directory of most file systems is inode 2.
			handle = unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
		}
		here, err := unix.Open(".", unix.O_RDONLY, 0)
		report("open", err)
		for _, h := range []unix.FileHandle{handle, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})} {
			fd, err := unix.OpenByHandleAt(here, h, unix.O_RDONLY)
			report("open_by_handle_at", err)
			if err == nil {
				keep("handle", nil)
				unix.Close(fd)
			}
		}
	}
}

func TestFilesAreNotOpenedByHandle(t *testing.T) {
	b := newBox(t)
	b.attack("handle")
	b.expectNoLoot()
	t.Run("control", func(t *testing.T) {
		testenv.Requires(t, testenv.Root)
		b.t = t
		b.free("handle")
		b.expectLoot("handle")
	})
}

// knobs are files through which the whole machine is changed. They are opened
// for writing and never written.
var knobs = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/sysrq",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward",
	"/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj",
	"/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/loginuid", "/proc/self/mem", "/proc/self/clear_refs",
	"/proc/self/attr/current", "/proc/self/timerslack_ns", "/proc/irq/default_smp_affinity", "/proc/kcore", "/proc/kmsg",
	"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/kernel/parameters/panic",
	"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/release_agent",
	"/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/devices/system/cpu/cpu0/online",
	"/sys/devices/system/cpu/cpu1/online", "/sys/devices/system/memory/probe", "/sys/kernel/debug", "/sys/fs/bpf",
	"/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vda", "/dev/sda", "/dev/loop-control", "/dev/console", "/dev/tty0",
}

func init() {
	attacks["knobs"] = func([]string) {
		for _, path := range knobs {
			for _, flag := range []int{unix.O_WRONLY, unix.O_RDWR} {
				fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
				if err == nil {
					unix.Close(fd)
					keep(strings.ReplaceAll(path, "/", "-"), nil)
				}
			}
		}
		// Below its start the score would make the kernel spare this process.
		report("oom_score_adj", os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0))
	}
}

func TestMachineIsNotConfigured(t *testing.T) {
	b := newBox(t)
	for _, policy := range []string{"", `{"filesystem": {"defaultDenyRead": false}}`} {
		b.policy = policy
		b.attack("knobs")
		b.expectNoLoot()
	}
	b.free("knobs")
	want := []string{"-proc-self-oom_score_adj", "-proc-self-mem"}
	if os.Geteuid() == 0 {
		want = append(want, "-proc-sys-kernel-core_pattern", "-proc-irq-default_smp_affinity")
	}
	b.expectLoot(want...)
}

func init() {
	// identity leaves a file behind, whose owner on the host is whoever made it,
	// and says which capabilities it has.
	attacks["identity"] = func(args []string) {
		status, _ := os.ReadFile("/proc/self/status")
		report("identity", os.WriteFile(args[0], status, 0o666))
	}
}

// statusLine returns a line of a process's status.
func statusLine(status, key string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func TestSetuidProgramGainsNothing(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	b := newBox(t)
	const nobody = 65534
	must(t, os.Chmod(b.root, 0o777))
	must(t, os.Chmod(filepath.Dir(b.root), 0o777))
	must(t, os.Chmod(b.project+"/"+loot, 0o777))
	must(t, os.Chown(b.program, nobody, nobody))
	must(t, unix.Chmod(b.program, 0o6755))
	file := b.project + "/" + loot + "/identity"
	owner := func() uint32 {
		var st unix.Stat_t
		must(t, unix.Stat(file, &st))
		must(t, os.Remove(file))
		return st.Uid
	}
	b.attack("identity", file)
	if got := owner(); got != 0 {
		t.Errorf("the program ran as user %d, want 0", got)
	}
	b.free("identity", file)
	if got := owner(); got != nobody {
		t.Errorf("control: without a sandbox it ran as user %d, want %d", got, nobody)
	}
}

// An ordinary user has no setuid program to make, but the system has some. The
// host sees whom one runs as.
func TestSetuidProgramOfTheSystemGainsNothing(t *testing.T) {
	testenv.Requires(t, testenv.Unprivileged, testenv.Program("su"))
	b := newBox(t)
	effective := func(ppid int, name string) string {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			files, _ := filepath.Glob("/proc/[0-9]*/status")
			for _, f := range files {
				data, _ := os.ReadFile(f)
				status := string(data)
				if statusLine(status, "Name") == name && statusLine(status, "PPid") == fmt.Sprint(ppid) {
					return strings.Fields(statusLine(status, "Uid"))[1]
				}
			}
		}
		return "gone"
	}
	c := b.command("su")
	in, err := c.StdinPipe()
	must(t, err)
	must(t, c.Start())
	if got := effective(c.Pid(), "su"); got == "0" {
		t.Errorf("su runs as root in the sandbox")
	}
	in.Close()
	_ = c.Wait()

	free := exec.Command("su")
	stdin, err := free.StdinPipe()
	must(t, err)
	must(t, free.Start())
	if got := effective(os.Getpid(), "su"); got != "0" {
		t.Errorf("control: without a sandbox su runs as %q, want 0", got)
	}
	stdin.Close()
	_ = free.Wait()
}

func TestFileCapabilitiesGainNothing(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	b := newBox(t)
	// Version 2, effective, cap_net_raw permitted.
	attr := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	must(t, unix.Setxattr(b.program, "security.capability", attr, 0))
	file := b.project + "/" + loot + "/identity"
	b.attack("identity", file)
	status := b.looted()["identity"]
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if got := statusLine(status, set); got != "0000000000000000" {
			t.Errorf("%s: got %s, want none", set, got)
		}
	}
	if got := statusLine(status, "NoNewPrivs"); got != "1" {
		t.Errorf("NoNewPrivs: got %s, want 1", got)
	}
	for dir := b.root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chmod(b.project+"/"+loot, 0o777))
	free := b.freeCommand("identity", file)
	free.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	b.runFree(free)
	if got := statusLine(b.looted()["identity"], "CapEff"); got != "0000000000002000" {
		t.Errorf("control: without a sandbox CapEff is %q, want cap_net_raw", got)
	}
}

func init() {
	attacks["setuid-bit"] = func([]string) {
		const evil = "evil-program"
		report("create", os.WriteFile(evil, []byte("#!/bin/sh\n"), 0o755))
		report("chmod", unix.Chmod(evil, 0o4755))
		report("fchmodat", unix.Fchmodat(unix.AT_FDCWD, evil, 0o6755, 0))
		report("fchmod", onDescriptor(evil, func(fd int) error { return unix.Fchmod(fd, 0o6755) }))
		_, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, uintptr(bad-99), uintptr(unsafe.Pointer(&[]byte(evil + "\x00")[0])), 0o6755, 0, 0, 0)
		report("fchmodat2", asError(errno))
		fd, err := unix.Open("evil-open", unix.O_CREAT|unix.O_WRONLY, 0o6755)
		report("open", err)
		_ = unix.Close(fd)
		fd, err = unix.Openat2(unix.AT_FDCWD, "evil-openat2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o6755})
		report("openat2", err)
		_ = unix.Close(fd)
		report("mknod", unix.Mknod("evil-mknod", unix.S_IFREG|0o6755, 0))
	}
}

// A program that the sandbox leaves behind with the setuid bit runs as whoever
// ran the sandbox, in the hands of any user of the host.
func TestNoSetuidProgramIsLeftBehind(t *testing.T) {
	b := newBox(t)
	find := func() (found []string) {
		paths, _ := filepath.Glob(b.project + "/evil-*")
		for _, p := range paths {
			if info, err := os.Stat(p); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				found = append(found, filepath.Base(p)+" "+info.Mode().String())
			}
			must(t, os.Remove(p))
		}
		return found
	}
	b.attack("setuid-bit")
	if found := find(); len(found) > 0 {
		t.Errorf("left on the host: %q", found)
	}
	b.free("setuid-bit")
	if found := find(); len(found) != 4 {
		t.Errorf("control: without a sandbox: %q, want 4 files", found)
	}
}

func init() {
	attacks["x32"] = func(args []string) {
		path := []byte("x32-" + args[0] + "\x00")
		nr := uintptr(unix.SYS_MKDIRAT)
		if args[0] == "number" {
			nr |= 0x40000000
		}
		_, _, errno := unix.Syscall(nr, ^uintptr(99), uintptr(unsafe.Pointer(&path[0])), 0o755)
		report("mkdirat", asError(errno))
	}
}

func TestX32CallsDoNotExist(t *testing.T) {
	b := newBox(t)
	b.attack("x32", "number")
	b.attack("x32", "control")
	made, _ := filepath.Glob(b.project + "/x32-*")
	if want := []string{b.project + "/x32-control"}; !slices.Equal(made, want) {
		t.Errorf("got %q, want %q", made, want)
	}
}
