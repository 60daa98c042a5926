package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.RefuseAndExec()
	os.Exit(m.Run())
}

// withRefused runs bailey where one system call fails.
func (b *bench) withRefused(nr int, errno unix.Errno, args ...string) result {
	b.t.Helper()
	return b.collect(b.filtered(testenv.Refusal(nr, errno), args...))
}

// filtered is bailey under the filter of a value; see package testenv.
func (b *bench) filtered(value string, args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := testenv.Refused(b.t, value, append([]string{testenv.Binary(b.t, "bailey")}, args...)...)
	cmd.Dir, cmd.Env = b.dir, append(b.env, testenv.RefuseVariable(value))
	return cmd
}

// withSetting runs bailey in a user namespace of its own after a line of shell
// changed something there.
func (b *bench) withSetting(line string, flags []string, args ...string) result {
	b.t.Helper()
	argv := append(append(flags, "sh", "-c", line+` && exec "$@"`, "sh", testenv.Binary(b.t, "bailey")), args...)
	cmd := exec.Command("unshare", argv...)
	cmd.Env = b.env
	return b.collect(cmd)
}

func (b *bench) collect(cmd *exec.Cmd) result {
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, &stdout, &stderr
	_ = cmd.Run()
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestMissingWallIsNamedWithCauseAndFix(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	for _, c := range []struct {
		name  string
		got   func(args ...string) result
		wants []string
	}{
		{
			"no user namespaces",
			func(args ...string) result {
				return b.withSetting("echo 0 >/proc/sys/user/max_user_namespaces", []string{"-Ur"}, args...)
			},
			[]string{"no space left on device", "wall that is missing: user namespace", "cause: user.max_user_namespaces is 0", "fix: as root: sysctl -w user.max_user_namespaces="},
		}, {
			"no network namespaces",
			func(args ...string) result {
				return b.withSetting("echo 0 >/proc/sys/user/max_net_namespaces", []string{"-Ur"}, args...)
			},
			[]string{"cause: user.max_net_namespaces is 0", "fix: as root: sysctl -w user.max_net_namespaces="},
		}, {
			"no mount namespaces",
			func(args ...string) result {
				return b.withSetting("echo 0 >/proc/sys/user/max_mnt_namespaces", []string{"-Ur"}, args...)
			},
			[]string{"cause: user.max_mnt_namespaces is 0"},
		}, {
			"masked /proc",
			func(args ...string) result {
				return b.withSetting("mount -t tmpfs none /proc/sys", []string{"-Urm"}, args...)
			},
			[]string{"wall that is missing: fresh /proc", "cause: parts of /proc are covered (/proc/sys)", "systempaths=unconfined"},
		}, {
			"no Landlock",
			func(args ...string) result {
				return b.withRefused(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS, args...)
			},
			[]string{"wall that is missing: landlock", "has no Landlock", "fix: use Linux 5.13"},
		}, {
			"Landlock off at boot",
			func(args ...string) result {
				return b.withRefused(unix.SYS_LANDLOCK_CREATE_RULESET, unix.EOPNOTSUPP, args...)
			},
			[]string{"wall that is missing: landlock", "lsm=landlock,"},
		}, {
			"no seccomp",
			func(args ...string) result { return b.withRefused(unix.SYS_SECCOMP, unix.EINVAL, args...) },
			[]string{"launch: install the system call filter: invalid argument", "wall that is missing: seccomp", "CONFIG_SECCOMP_FILTER"},
		}, {
			"an old kernel",
			func(args ...string) result { return b.withRefused(unix.SYS_MOUNT_SETATTR, unix.ENOSYS, args...) },
			[]string{"wall that is missing: mount namespace", "Linux 5.12"},
		},
	} {
		got := c.got("--runtime", "native", "-c", "echo escaped >out; echo ran")
		if _, err := os.Stat(b.dir + "/out"); err == nil {
			t.Errorf("%s: the command ran", c.name)
		}
		got.wantError(t, c.wants...)
		if t.Failed() {
			t.Fatalf("%s: %+v", c.name, got)
		}
	}
}

// Programs that are not Bailey's make the namespaces here.
func TestMissingNamespacesAreNamedWithEveryRuntime(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	for _, runtime := range []string{"bwrap", "crun"} {
		testenv.Requires(t, testenv.Program(runtime))
		got := b.withSetting("echo 0 >/proc/sys/user/max_user_namespaces", []string{"-Ur"}, "-q", "--runtime", runtime, "-c", "echo escaped >out; echo ran")
		if _, err := os.Stat(b.dir + "/out"); err == nil {
			t.Errorf("%s: the command ran", runtime)
		}
		got.wantError(t, "cause: user.max_user_namespaces is 0", "fix: as root: sysctl -w user.max_user_namespaces=15000")
		if runtime == "bwrap" {
			got.wantError(t, "wall that is missing: user namespace")
		}
	}
}

func TestTheLaunchersOfTheseTestsRefuseNothingElse(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	b.withRefused(unix.SYS_KEXEC_LOAD, unix.ENOSYS, "--", "echo", "ran").want(t, 0, "ran\n", "")
	b.withSetting("true", []string{"-Ur"}, "--", "echo", "ran").want(t, 0, "ran\n", "")
}
