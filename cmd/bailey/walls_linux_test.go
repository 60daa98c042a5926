package main

import (
	"bytes"
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

// filterVariable makes the test binary a launcher: it refuses one system call
// and then executes its arguments. The value is "NUMBER:ERRNO".
const filterVariable = "BAILEY_TEST_REFUSE"

func TestMain(m *testing.M) {
	if v := os.Getenv(filterVariable); v != "" {
		refuseAndExec(v)
	}
	os.Exit(m.Run())
}

func refuseAndExec(value string) {
	os.Unsetenv(filterVariable)
	number, errno, _ := strings.Cut(value, ":")
	nr, _ := strconv.Atoi(number)
	no, _ := strconv.Atoi(errno)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(nr)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(no)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},              // SECCOMP_RET_ALLOW
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		panic(err)
	}
	panic(unix.Exec(os.Args[1], os.Args[1:], os.Environ()))
}

// withRefused runs bailey where one system call fails.
func (b *bench) withRefused(nr int, errno unix.Errno, args ...string) result {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{testenv.Binary(b.t, "bailey")}, args...)...)
	cmd.Env = append(b.env, filterVariable+"="+strconv.Itoa(nr)+":"+strconv.Itoa(int(errno)))
	return b.collect(cmd)
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
		got := c.got("-c", "echo escaped >out; echo ran")
		if _, err := os.Stat(b.dir + "/out"); err == nil {
			t.Errorf("%s: the command ran", c.name)
		}
		got.wantError(t, c.wants...)
		if t.Failed() {
			t.Fatalf("%s: %+v", c.name, got)
		}
	}
}

func TestTheLaunchersOfTheseTestsRefuseNothingElse(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := newBench(t)
	b.withRefused(unix.SYS_KEXEC_LOAD, unix.ENOSYS, "--", "echo", "ran").want(t, 0, "ran\n", "")
	b.withSetting("true", []string{"-Ur"}, "--", "echo", "ran").want(t, 0, "ran\n", "")
}
