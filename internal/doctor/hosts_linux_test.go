package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.RefuseAndExec()
	os.Exit(m.Run())
}

// diagnosed is what doctor said on a host.
type diagnosed struct {
	Report
	status int
	text   string
}

// failed are the names of the checks that did not pass. Those that were not tried
// because of another are not among them.
func (d *diagnosed) failed() (names []string) {
	for _, c := range d.Checks {
		if !c.OK && !strings.HasPrefix(c.Found, "not tried") {
			names = append(names, c.Name)
		}
	}
	return names
}

func (d *diagnosed) check(t *testing.T, name string) Check {
	t.Helper()
	for _, c := range d.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no check %q in %s", name, d.text)
	return Check{}
}

// examine runs a command that ends in "bailey doctor --json".
func examine(t *testing.T, cmd *exec.Cmd) *diagnosed {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its status is looked at below
	d := &diagnosed{status: cmd.ProcessState.ExitCode(), text: stdout.String() + stderr.String()}
	if err := json.Unmarshal(stdout.Bytes(), &d.Report); err != nil {
		t.Fatalf("status %d, %v: %s", d.status, err, d.text)
	}
	return d
}

func doctorArgv(t *testing.T) []string {
	t.Helper()
	return []string{testenv.Binary(t, "bailey"), "doctor", "--json"}
}

// changed is doctor in a user namespace in which a line of shell changed something.
func changed(line string, flags ...string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
		return exec.Command("unshare", append(append(flags, "sh", "-c", line+` && exec "$@"`, "sh"), doctorArgv(t)...)...)
	}
}

// asRoot is for a setting that belongs to root outside of every namespace.
func asRoot(host func(*testing.T) *exec.Cmd) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		testenv.Requires(t, testenv.Root)
		return host(t)
	}
}

// filtered is doctor under a filter.
func filtered(value string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd { return testenv.Refused(t, value, doctorArgv(t)...) }
}

// groupChecks fail for users and in containers alike, so most hosts say nothing of
// them.
var groupChecks = []string{"memory of a sandbox", "processors of a sandbox"}

func TestPreparedHostsAreDiagnosed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6))
	for _, c := range []struct {
		name       string
		host       func(*testing.T) *exec.Cmd
		full       bool
		failed     []string
		cause, fix string // of the first
		runtimes   string
	}{
		{
			name: "nothing is missing", host: changed("true", "-Ur"),
			full: true, runtimes: "native landlock",
		}, {
			name: "user namespaces are switched off", host: changed("echo 0 >/proc/sys/user/max_user_namespaces", "-Ur"),
			failed: []string{"user namespace"}, cause: "user.max_user_namespaces is 0", fix: "sysctl -w user.max_user_namespaces=15000", runtimes: "landlock",
		}, {
			name: "network namespaces are switched off", host: changed("echo 0 >/proc/sys/user/max_net_namespaces", "-Ur"),
			failed: []string{"network namespace"}, cause: "user.max_net_namespaces is 0", fix: "sysctl -w user.max_net_namespaces=15000", runtimes: "landlock",
		}, {
			name: "/proc is masked", host: changed("mount -t tmpfs none /proc/sys/fs", "-Urm"),
			failed: []string{"fresh /proc"}, cause: "parts of /proc are covered (/proc/sys/fs)", fix: "systempaths=unconfined", runtimes: "landlock",
		}, {
			name: "programs in memory are forbidden", host: asRoot(changed("echo 2 >/proc/sys/vm/memfd_noexec", "-Urpf", "--mount-proc")),
			failed: []string{"programs in memory"}, cause: "vm.memfd_noexec is 2", fix: "sysctl -w vm.memfd_noexec=1", runtimes: "landlock",
		}, {
			name: "open files are few", host: changed("ulimit -n 200", "-Ur"),
			failed: []string{"open files"}, cause: "hard limit", fix: "ulimit -Hn", runtimes: "native landlock",
		}, {
			name: "a filter forbids namespaces", host: filtered(testenv.NoNamespaces),
			failed: []string{"user namespace", "descriptors of its processes"}, cause: "user namespaces are forbidden here", fix: "allow it to make user namespaces", runtimes: "landlock",
		}, {
			name: "there is no Landlock", host: filtered(testenv.Refusal(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS)),
			failed: []string{"Landlock", "Landlock with scopes"}, cause: "this kernel has no Landlock", fix: "CONFIG_SECURITY_LANDLOCK",
		}, {
			name: "Landlock is off", host: filtered(testenv.Refusal(unix.SYS_LANDLOCK_CREATE_RULESET, unix.EOPNOTSUPP)),
			failed: []string{"Landlock", "Landlock with scopes"}, cause: "was not switched on when it booted", fix: "lsm=landlock,",
		}, {
			name: "there are no filters", host: filtered(testenv.Refusal(unix.SYS_SECCOMP, unix.EINVAL)),
			failed: []string{"system call filter", "calls that ask"}, cause: "no system call filters", fix: "CONFIG_SECCOMP_FILTER",
		}, {
			name: "mount calls are old", host: filtered(testenv.Refusal(unix.SYS_MOUNT_SETATTR, unix.ENOSYS)),
			failed: []string{"mount calls of Linux 5.12"}, cause: "lacks the mount calls", fix: "use a newer kernel", runtimes: "landlock",
		}, {
			name: "control groups are read-only", host: changed(readOnlyGroups, "-Urm"),
			full: true, failed: groupChecks, runtimes: "native landlock",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := examine(t, c.host(t))
			if d.Full != c.full || (d.status == 0) != c.full {
				t.Errorf("full is %v with status %d, want %v", d.Full, d.status, c.full)
			}
			failed := d.failed()
			if !slices.Contains(c.failed, groupChecks[0]) {
				failed = slices.DeleteFunc(failed, func(name string) bool { return slices.Contains(groupChecks, name) })
			}
			if !slices.Equal(failed, c.failed) {
				t.Errorf("failed: %q, want %q", failed, c.failed)
			}
			if got := d.runtimes(); got != c.runtimes {
				t.Errorf("runtimes that hold: %q, want %q", got, c.runtimes)
			}
			if c.cause != "" && len(failed) > 0 {
				if first := d.check(t, failed[0]); !strings.Contains(first.Cause, c.cause) || !strings.Contains(first.Fix, c.fix) {
					t.Errorf("got %+v, want cause %q and fix %q", first, c.cause, c.fix)
				}
			}
			if t.Failed() {
				t.Log(d.text)
			}
		})
	}
}

// readOnlyGroups makes every hierarchy read-only, as engines do in containers.
const readOnlyGroups = `for m in $(awk '$(NF-2) ~ /^cgroup/ || $5 == "/sys/fs/cgroup" {print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro "$m" || exit; done`

// runtimes are those that hold the default policy, of those that need nothing but
// the kernel.
func (d *diagnosed) runtimes() string {
	var names []string
	for _, r := range d.Runtimes {
		if r.Holds && (r.Name == spec.RuntimeNative || r.Name == spec.RuntimeLandlock) {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestEveryRuntimeIsListedWithAReasonIfItDoesNotRun(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("bwrap"))
	with := examine(t, exec.Command(doctorArgv(t)[0], doctorArgv(t)[1:]...))
	without := exec.Command(doctorArgv(t)[0], doctorArgv(t)[1:]...)
	without.Env = append(os.Environ(), "PATH="+t.TempDir())
	for name, d := range map[string]*diagnosed{"programs": with, "no programs": examine(t, without)} {
		var names []string
		for _, r := range d.Runtimes {
			names = append(names, r.Name)
			if r.Holds == (r.Says != "") || r.Holds && !r.Runs {
				t.Errorf("%s: %+v", name, r)
			}
			if r.Name == spec.RuntimeBwrap && (r.Holds != (d == with) || d != with && !strings.Contains(r.Says, "install")) {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if !slices.Equal(names, spec.Runtimes()) {
			t.Errorf("%s: got %q, want %q", name, names, spec.Runtimes())
		}
	}
}

func TestTextSaysWhatToDo(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"), testenv.Landlock(6))
	argv := append([]string{"-Ur", "sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"`, "sh"}, testenv.Binary(t, "bailey"), "doctor")
	out, err := exec.Command("unshare", argv...).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want status 1", err)
	}
	for _, want := range []string{
		"MISSING user namespace", "\n        cause: user.max_user_namespaces is 0", "\n        fix:   as root: sysctl -w user.max_user_namespaces=15000",
		"The native runtime ran nothing:\n", "The landlock runtime ran a command under the default policy.", "enforced by the landlock runtime",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

func TestUnknownArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--fixx"}, {"now"}, {"--json", "--fix"}} {
		var out, errs bytes.Buffer
		if got := Main(args, nil, &out, &errs); got != exitOwn || errs.Len() == 0 || out.Len() != 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, got, out.String(), errs.String())
		}
	}
}

func TestPlaceIsRecognised(t *testing.T) {
	for release, want := range map[string]string{
		"4.4.0-19041-Microsoft": "WSL 1", "5.15.153.1-microsoft-standard-WSL2": "WSL 2",
	} {
		got := place(func(name string) string {
			if filepath.Base(name) == "osrelease" {
				return release
			}
			return ""
		})
		if got != want {
			t.Errorf("%s: got %q, want %q", release, got, want)
		}
	}
	on := interop(func(string) string { return "enabled\ninterpreter /init\n" })
	off := interop(func(string) string { return "" })
	if on.OK || !off.OK || !strings.Contains(on.Fix, "wsl --shutdown") {
		t.Errorf("got %+v and %+v", on, off)
	}
}
