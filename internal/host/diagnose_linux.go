package host

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Diagnose finds out why this machine refused a step, from the switches that
// are known to cause such a refusal.
func Diagnose(f Failure) Diagnosis {
	return diagnose(f, readSmall)
}

// InSandbox says whether this process runs in a sandbox of Bailey's. Process 1
// of a sandbox has a name that nothing inside can change.
func InSandbox() bool { return readSmall("/proc/1/comm") == processOneName }

const processOneName = "bailey-init"

// readSmall returns a file of /proc or /sys without the line's end, or "".
func readSmall(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(data), "\n")
}

// machine answers what diagnose asks: the content of a file, or "".
type machine func(file string) string

func diagnose(f Failure, m machine) Diagnosis {
	if kind, ok := strings.CutSuffix(f.Wall, " namespace"); ok {
		return m.namespace(kind, f)
	}
	switch f.Wall {
	case "fresh /proc":
		return m.freshProc()
	case "landlock":
		return m.landlock(f)
	case "seccomp":
		return Diagnosis{
			"this kernel has no system call filters, or another filter forbids to add one",
			"use a kernel with CONFIG_SECCOMP_FILTER; in a container: --security-opt seccomp=unconfined",
		}
	case "private writes (overlayfs)":
		return overlay(f)
	case "workspace (overlayfs)":
		return workspace(f)
	case "process 1":
		return m.processOne(f)
	case "terminal":
		return m.terminal(f)
	case "resource limits":
		return Diagnosis{
			"the limit is above the one this process has itself",
			"lower resources.openFiles or resources.pids in the policy, or raise the limit (ulimit -Hn, ulimit -Hu)",
		}
	case "working directory":
		return Diagnosis{
			"the working directory is not visible in the sandbox",
			`bailey --allow-read "$PWD" …, or start it in a directory that is granted`,
		}
	}
	return Diagnosis{}
}

// limits are the switches of the kinds of namespaces. The kernel does not say
// which of several was too small.
var limits = [...]string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

func (m machine) namespace(kind string, f Failure) Diagnosis {
	switch {
	case m("/proc/1/comm") == processOneName:
		return Diagnosis{
			"already inside a Bailey sandbox, where no namespaces can be made",
			"run the command itself: it is confined already; or set BAILEY=1, by which bailey knows to do without them",
		}
	case kind == "mount" && f.Errno != unix.EPERM && f.Errno != unix.EACCES && !strings.HasPrefix(f.Step, "enter "):
		return m.mount(f)
	case f.Errno == unix.ENOSPC:
		return m.namespaceLimit()
	case f.Errno == unix.EUSERS:
		return Diagnosis{"namespaces are nested too deep", "start bailey outside some of the containers around it"}
	case f.Errno == unix.EAGAIN:
		return Diagnosis{"this user has too many processes", "end some, or raise the limit: ulimit -u"}
	case f.Errno == unix.EINVAL || f.Errno == unix.ENOSYS:
		return Diagnosis{
			"this kernel was built without a kind of namespace, or a container's filter hides them",
			"use a kernel with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS and CONFIG_CGROUPS; in a container: --security-opt seccomp=unconfined",
		}
	case kind == "user" && m("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return Diagnosis{"kernel.unprivileged_userns_clone is 0: only root may make user namespaces", "as root: sysctl -w kernel.unprivileged_userns_clone=1"}
	case kind == "user":
		return m.refusedInside("user namespaces are forbidden here, by a container, a security module or a chroot")
	}
	return m.refusedInside("the kernel made a user namespace and then refused what it allows")
}

// NamespacesOff says by which switch this user can make no namespaces; it is empty if
// none is known to be off. It is for programs that are not Bailey's, of which it is not
// known what the kernel refused them.
func NamespacesOff() Diagnosis { return machine(readSmall).off(os.Geteuid() == 0) }

func (m machine) off(root bool) Diagnosis {
	for _, kind := range limits {
		if m("/proc/sys/user/max_"+kind+"_namespaces") == "0" {
			return m.namespaceLimit()
		}
	}
	if root {
		return Diagnosis{}
	}
	for _, closed := range []struct{ file, value string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0"}, {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"},
	} {
		if m(closed.file) == closed.value {
			return m.namespace("user", Failure{Errno: unix.EPERM})
		}
	}
	return Diagnosis{}
}

func (m machine) namespaceLimit() Diagnosis {
	for _, kind := range limits {
		if name := "max_" + kind + "_namespaces"; m("/proc/sys/user/"+name) == "0" {
			return Diagnosis{"user." + name + " is 0: this kind of namespace is switched off", "as root: sysctl -w user." + name + "=15000"}
		}
	}
	return Diagnosis{
		"a limit on namespaces is used up, here or in a namespace around this one",
		"end some sandboxes or containers, or raise the limit that is too small; this shows them: sysctl user",
	}
}

// refusedInside is for what a user namespace allows unless someone took that
// back.
func (m machine) refusedInside(otherwise string) Diagnosis {
	switch {
	case m("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return Diagnosis{
			"kernel.apparmor_restrict_unprivileged_userns is 1: AppArmor takes every right in a user namespace away from programs without a profile",
			"as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or install an AppArmor profile for bailey with the rule \"userns,\"",
		}
	case m.inContainer():
		return Diagnosis{
			"the container this runs in forbids namespaces",
			"docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
		}
	case m("/sys/fs/selinux/enforce") == "1":
		return Diagnosis{otherwise, "look for what SELinux refused: ausearch -m avc -ts recent"}
	}
	return Diagnosis{otherwise, "start bailey outside of the container or chroot, or allow it to make user namespaces there"}
}

// InContainer says whether this process runs in a container, as far as that can be
// seen.
func InContainer() bool { return machine(readSmall).inContainer() }

func (m machine) inContainer() bool {
	for _, file := range []string{"/proc/1/environ", "/proc/self/environ"} {
		if strings.Contains("\x00"+m(file), "\x00container=") {
			return true
		}
	}
	// Engines unpack images below an overlay, and mount files about the network.
	for line := range strings.Lines(m("/proc/self/mountinfo")) {
		f := strings.Fields(line)
		switch {
		case len(f) < 5:
		case f[4] == "/" && strings.Contains(line, " - overlay "), f[4] == "/etc/hostname":
			return true
		}
	}
	return false
}

// mount explains a refusal that has nothing to do with rights.
func (m machine) mount(f Failure) Diagnosis {
	switch f.Errno {
	case unix.ENOSYS:
		return Diagnosis{
			"this kernel lacks the mount calls of Linux 5.12 (" + m("/proc/sys/kernel/osrelease") + " is running), or a container's filter hides them",
			"use a newer kernel; in a container: --security-opt seccomp=unconfined",
		}
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return Diagnosis{"the file system changed while the sandbox was built: a path that was there is gone or has become a link", "run the command again"}
	case unix.ENOSPC:
		return Diagnosis{"there are too many mounts", "as root: sysctl -w fs.mount-max=100000"}
	}
	return Diagnosis{}
}

func (m machine) freshProc() Diagnosis {
	for line := range strings.Lines(m("/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/") {
			return Diagnosis{
				"parts of /proc are covered (" + f[4] + "), as container engines do, and the kernel then lets nobody mount a fresh one",
				"docker run --security-opt systempaths=unconfined …, or podman run --security-opt unmask=ALL …",
			}
		}
	}
	return m.refusedInside("the kernel lets nobody mount a fresh /proc here")
}

// landlockKernels says which Linux brought an interface.
var landlockKernels = [...]string{"", "5.13", "5.19", "6.2", "6.7", "6.10", "6.12", "6.15"}

func (m machine) landlock(f Failure) Diagnosis {
	switch {
	case f.Errno == unix.EOPNOTSUPP:
		modules := m("/sys/kernel/security/lsm")
		if modules == "" {
			modules = "…"
		}
		return Diagnosis{"Landlock is built into this kernel but was not switched on when it booted", "add it to the kernel's command line and boot again: lsm=landlock," + modules}
	case strings.HasPrefix(f.Step, "landlock interface ") && !strings.HasSuffix(f.Step, " 0"):
		fix := "use a newer kernel"
		word := strings.Fields(f.Step)[2]
		if i := strings.Index("01234567", word); i > 0 && len(word) == 1 {
			fix = "use Linux " + landlockKernels[i] + " or newer"
		}
		return Diagnosis{"this kernel's Landlock (" + m("/proc/sys/kernel/osrelease") + ") is too old for what the policy promises", fix}
	case f.Errno == unix.ENOSYS:
		return Diagnosis{"this kernel has no Landlock, or a container's filter hides it", "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK; in a container: --security-opt seccomp=unconfined"}
	case f.Errno == unix.E2BIG:
		return Diagnosis{"Landlock rulesets are nested too deep", "start bailey outside some of the sandboxes around it"}
	}
	return Diagnosis{}
}

func overlay(f Failure) Diagnosis {
	fix := "leave it out of the policy: \"filesystem\": {\"privateWrite\": [\"!PATH\"]}; to read it all the same, name it in allowRead"
	switch f.Errno {
	case unix.ENODEV:
		return Diagnosis{"this kernel has no overlay file system", "as root: modprobe overlay; or " + fix}
	case unix.EPERM, unix.EACCES:
		return Diagnosis{"this kernel does not let users mount overlays, which needs Linux 5.11", fix}
	}
	return Diagnosis{"the file system this directory is on cannot be the base of an overlay", fix}
}

func workspace(f Failure) Diagnosis {
	switch f.Errno {
	case unix.ENODEV:
		return Diagnosis{"this kernel has no overlay file system", "as root: modprobe overlay; or run it without --overlay"}
	case unix.EPERM, unix.EACCES:
		return Diagnosis{"this kernel does not let users mount overlays, which needs Linux 5.11", "run it without --overlay"}
	}
	return Diagnosis{
		"the file system that workspaces are on cannot hold the changes of an overlay, or that of the project cannot be below one",
		"set BAILEY_DATA to a directory on another file system (ext4, xfs, btrfs, tmpfs); or run it without --overlay",
	}
}

func (m machine) processOne(f Failure) Diagnosis {
	if f.Errno == unix.EACCES && m("/proc/sys/vm/memfd_noexec") == "2" {
		return Diagnosis{"vm.memfd_noexec is 2: programs in memory cannot be executed", "as root: sysctl -w vm.memfd_noexec=1"}
	}
	switch f.Errno {
	case unix.EMFILE, unix.ENFILE:
		return Diagnosis{"there are too many open files", "raise the limit: ulimit -n"}
	case unix.E2BIG:
		return Diagnosis{"the command's arguments and environment are too long for the kernel", "pass less; arguments can be read from a file or a pipe"}
	}
	return Diagnosis{}
}

func (m machine) terminal(f Failure) Diagnosis {
	if f.Errno == unix.ENOSPC {
		return Diagnosis{"every pseudo-terminal is in use (kernel.pty.max is " + m("/proc/sys/kernel/pty/max") + ")", "as root: sysctl -w kernel.pty.max=8192"}
	}
	return Diagnosis{"the kernel opened no pseudo-terminal in the sandbox", "run it without a terminal: bailey … </dev/null 2>&1 | cat"}
}
