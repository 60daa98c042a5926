package host

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiagnosisNamesTheSwitch(t *testing.T) {
	const apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	for _, c := range []struct {
		name       string
		failure    Failure
		machine    map[string]string
		cause, fix string
	}{
		{
			"user namespaces off",
			Failure{"user namespace", "clone", unix.ENOSPC},
			map[string]string{"/proc/sys/user/max_user_namespaces": "0"},
			"user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000",
		}, {
			"network namespaces off",
			Failure{"network namespace", "enter a new network namespace", unix.ENOSPC},
			map[string]string{"/proc/sys/user/max_user_namespaces": "100", "/proc/sys/user/max_net_namespaces": "0"},
			"user.max_net_namespaces is 0", "sysctl -w user.max_net_namespaces=15000",
		}, {
			"limit used up",
			Failure{"mount namespace", "enter a new mount namespace", unix.ENOSPC},
			nil,
			"used up", "sysctl user",
		}, {
			"Debian's switch",
			Failure{"user namespace", "clone", unix.EPERM},
			map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"},
			"kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1",
		}, {
			"Ubuntu's AppArmor, at the maps",
			Failure{"user namespace", "write /proc/self/uid_map", unix.EACCES},
			map[string]string{apparmor: "1"},
			"AppArmor", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
		}, {
			"Ubuntu's AppArmor, at a mount",
			Failure{"mount namespace", "make mounts private /", unix.EPERM},
			map[string]string{apparmor: "1"},
			"AppArmor", "userns,",
		}, {
			"a container",
			Failure{"user namespace", "clone", unix.EPERM},
			map[string]string{"/proc/self/mountinfo": "1 2 0:30 / / rw - overlay overlay rw\n"},
			"container", "--security-opt seccomp=unconfined",
		}, {
			"a sandbox",
			Failure{"user namespace", "clone", unix.EPERM},
			map[string]string{"/proc/1/comm": "bailey-init"},
			"already inside a Bailey sandbox", "run the command itself",
		}, {
			"masked /proc",
			Failure{"fresh /proc", "mount proc on /proc", unix.EPERM},
			map[string]string{"/proc/self/mountinfo": "1 2 0:5 / /proc rw - proc proc rw\n3 1 0:6 / /proc/kcore rw - tmpfs tmpfs rw\n"},
			"/proc/kcore", "systempaths=unconfined",
		}, {
			"no Landlock",
			Failure{"landlock", "landlock interface 1 is needed, this kernel has 0", unix.ENOSYS},
			nil,
			"no Landlock", "CONFIG_SECURITY_LANDLOCK",
		}, {
			"Landlock off at boot",
			Failure{"landlock", "landlock interface 1 is needed, this kernel has 0", unix.EOPNOTSUPP},
			map[string]string{"/sys/kernel/security/lsm": "capability,yama"},
			"not switched on", "lsm=landlock,capability,yama",
		}, {
			"old Landlock",
			Failure{"landlock", "landlock interface 4 is needed, this kernel has 2", unix.ENOSYS},
			nil,
			"too old", "use Linux 6.7 or newer",
		}, {
			"no seccomp",
			Failure{"seccomp", "install the system call filter", unix.EINVAL},
			nil,
			"no system call filters", "CONFIG_SECCOMP_FILTER",
		}, {
			"no overlay",
			Failure{"private writes (overlayfs)", "overlay", unix.ENODEV},
			nil,
			"no overlay", "modprobe overlay",
		}, {
			"overlay for root only",
			Failure{"private writes (overlayfs)", "overlay", unix.EPERM},
			nil,
			"Linux 5.11", `"privateWrite": ["!PATH"]`,
		}, {
			"workspace on a file system that cannot hold one",
			Failure{"workspace (overlayfs)", "overlay", unix.EINVAL},
			nil,
			"cannot hold the changes", "BAILEY_DATA",
		}, {
			"no overlay for a workspace",
			Failure{"workspace (overlayfs)", "overlay", unix.ENODEV},
			nil,
			"no overlay", "without --overlay",
		}, {
			"programs in memory",
			Failure{"process 1", "execute process 1", unix.EACCES},
			map[string]string{"/proc/sys/vm/memfd_noexec": "2"},
			"vm.memfd_noexec is 2", "sysctl -w vm.memfd_noexec=1",
		}, {
			"old mount calls",
			Failure{"mount namespace", "bind /usr on /usr", unix.ENOSYS},
			map[string]string{"/proc/sys/kernel/osrelease": "5.4.0"},
			"5.4.0", "newer kernel",
		}, {
			"working directory",
			Failure{"working directory", "change to /x", unix.ENOENT},
			nil,
			"not visible", "--allow-read",
		}, {
			"terminals used up",
			Failure{"terminal", "open a terminal", unix.ENOSPC},
			map[string]string{"/proc/sys/kernel/pty/max": "4"},
			"kernel.pty.max is 4", "sysctl -w kernel.pty.max=8192",
		},
	} {
		got := diagnose(c.failure, func(file string) string { return c.machine[file] })
		if !strings.Contains(got.Cause, c.cause) || !strings.Contains(got.Fix, c.fix) {
			t.Errorf("%s: got %+v, want cause %q, fix %q", c.name, got, c.cause, c.fix)
		}
	}
}

func TestSwitchesThatAreOffAreFoundWithoutAFailure(t *testing.T) {
	for _, c := range []struct {
		file, value string
		root        bool
		cause       string
	}{
		{"/proc/sys/user/max_net_namespaces", "0", true, "user.max_net_namespaces is 0"},
		{"/proc/sys/user/max_user_namespaces", "0", false, "user.max_user_namespaces is 0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", false, "kernel.unprivileged_userns_clone is 0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", true, ""},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", false, "kernel.apparmor_restrict_unprivileged_userns is 1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0", false, ""},
		{"/proc/sys/user/max_user_namespaces", "1000", false, ""},
	} {
		d := machine(func(file string) string { return map[string]string{c.file: c.value}[file] }).off(c.root)
		if !strings.HasPrefix(d.Cause, c.cause) || (d.Cause == "") != (c.cause == "") || (d.Fix == "") != (c.cause == "") {
			t.Errorf("%s is %s: got %+v", c.file, c.value, d)
		}
	}
}

func TestThisIsNoSandbox(t *testing.T) {
	if InSandbox() {
		t.Error("the tests run in a sandbox of Bailey's, or InSandbox is wrong")
	}
}
