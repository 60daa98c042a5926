package doctor

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// doctor examines one machine.
type doctor struct {
	bailey string // the command, or ""
	report Report
}

// Examine tries everything. The command bailey is the one that stands beside this
// program.
func Examine() *Report {
	d := &doctor{bailey: host.Beside("bailey")}
	d.report.Version, d.report.User = version.Version, os.Geteuid()
	d.report.Kernel = read("/proc/sys/kernel/osrelease")
	d.report.Place = place(read)
	d.checkNamespaces()
	d.checkConfinement()
	d.checkBroker()
	d.checkMachine()
	d.tryRuntimes()
	d.report.settle()
	return &d.report
}

// read returns a file of /proc or /sys without the line's end, or "".
func read(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(data), "\n")
}

// place says what kind of machine this is, where that explains something.
func place(read func(string) string) string {
	release := read("/proc/sys/kernel/osrelease")
	switch {
	case strings.Contains(release, "WSL2") || strings.Contains(release, "microsoft-standard"):
		return "WSL 2"
	case strings.Contains(release, "Microsoft"):
		return "WSL 1"
	case read("/proc/1/comm") == "bailey-init":
		return "inside a sandbox of Bailey's"
	case host.InContainer():
		return "in a container"
	}
	return "no container"
}

// add reports a check that the kernel answered with an error number.
func (d *doctor) add(c Check, errno unix.Errno, wall native.Wall, step string) {
	c.OK = errno == 0
	switch {
	case c.OK:
	case errno == errNotReached:
		c.Found = "not tried, since what it needs is missing"
	default:
		c.Found = errno.Error()
		found := host.Diagnose(host.Failure{Wall: string(wall), Step: step, Errno: errno})
		c.Cause, c.Fix = found.Cause, found.Fix
	}
	if !c.OK && d.report.Place == "WSL 1" {
		c.Cause, c.Fix = "WSL 1 translates calls of Linux and has no kernel of it", "in Windows: wsl --set-version <distribution> 2"
	}
	d.report.Checks = append(d.report.Checks, c)
}

// namespace is a kind of namespace.
type namespace struct {
	name  string
	flag  uintptr
	wall  native.Wall
	needs string
}

var namespaces = []namespace{
	{"user namespace", 0, native.WallUser, "to build a sandbox without being root"},
	{"mount namespace", unix.CLONE_NEWNS, native.WallMount, "a file tree of exactly what is granted"},
	{"pid namespace", unix.CLONE_NEWPID, native.WallUser, "no process outside can be seen or reached, and none is left behind"},
	{"network namespace", unix.CLONE_NEWNET, native.WallNetwork, "a network that is closed, or led through the gate"},
	{"ipc namespace", unix.CLONE_NEWIPC, native.WallIPC, "no shared memory, semaphores and queues of others"},
	{"uts namespace", unix.CLONE_NEWUTS, native.WallUTS, "a host name of its own"},
	{"cgroup namespace", unix.CLONE_NEWCGROUP, native.WallCgroup, "nothing to be seen of the control groups outside"},
}

// checkNamespaces tries each kind, and what is done in all of them together.
func (d *doctor) checkNamespaces() {
	every := uintptr(unix.CLONE_NEWUSER)
	first := d.try("nothing", every).errno("start")
	for i, n := range namespaces {
		every |= n.flag
		errno := first
		switch {
		case i == 0: // without the first there is none of the others
		case first != 0:
			errno = errNotReached
		default:
			errno = d.try("nothing", n.flag).errno("start")
		}
		d.add(Check{Name: n.name, Required: true, For: n.needs}, errno, n.wall, "enter a new "+n.name)
	}
	built := d.try("build", every)
	for _, c := range []struct {
		step string
		wall native.Wall
		Check
	}{
		{"private mounts", native.WallMount, Check{Name: "rights in namespaces", Required: true, For: "to mount anything; some systems let namespaces be made and nothing be done in them"}},
		{"file system in memory", native.WallMount, Check{Name: "file system in memory", Required: true, For: "private /tmp and home"}},
		{"mount calls", native.WallMount, Check{Name: "mount calls of Linux 5.12", Required: true, For: "to show directories read-only"}},
		{"fresh proc", native.WallProc, Check{Name: "fresh /proc", Required: true, For: "to show the sandbox's own processes and no others"}},
		{"terminals", native.WallTerminal, Check{Name: "terminals of its own", Required: true, For: "commands that are used at a terminal"}},
		{"loopback", native.WallNetwork, Check{Name: "loopback of its own", Required: true, For: "programs that talk to themselves"}},
		{"overlay", native.WallPrivate, Check{Name: "overlay file system", For: "filesystem.privateWrite: caches that are read, with changes that are not kept"}},
	} {
		d.add(c.Check, built.errno(c.step), c.wall, c.step)
	}
}

// checkConfinement tries the walls that need no namespaces.
func (d *doctor) checkConfinement() {
	confined := d.try("confine", 0)
	abi, _ := native.LandlockABI()
	landlock := Check{Name: "Landlock", Required: true, For: "the second wall around files"}
	d.add(landlock, confined.errno("landlock"), native.WallLandlock, "landlock interface 1 is needed, this kernel has "+itoa(abi))
	if last := &d.report.Checks[len(d.report.Checks)-1]; last.OK {
		last.Found = "interface " + itoa(abi)
	}
	newer := Check{Name: "Landlock with scopes", For: "an open network (--allow-network), and the landlock runtime"}
	errno := unix.Errno(0)
	if abi < 6 {
		errno = unix.ENOSYS
	}
	d.add(newer, errno, native.WallLandlock, "landlock interface 6 is needed, this kernel has "+itoa(abi))
	d.add(Check{Name: "system call filter", Required: true, For: "to refuse calls that no sandbox needs"},
		confined.errno("filter"), native.WallSeccomp, "install the system call filter")
	d.add(Check{Name: "calls that ask", Required: true, For: "names that must not be made, patterns, rules about commands and sockets"},
		confined.errno("listener"), native.WallSeccomp, "install the system call filter")
	d.add(Check{Name: "programs in memory", Required: true, For: "process 1 of a sandbox"},
		confined.errno("program in memory"), native.WallInit, "execute process 1")
}

// checkBroker tries what is done to answer calls.
func (d *doctor) checkBroker() {
	const fix = "in a container: docker run --cap-add SYS_PTRACE …; otherwise, as root: sysctl -w kernel.yama.ptrace_scope=1"
	inside := d.tryLookInside()
	for _, c := range []struct {
		step string
		Check
	}{
		{"memory", Check{Name: "memory of its own processes", Required: true, For: "to know what a call that asks is about"}},
		{"root", Check{Name: "root directory of its processes", Required: true, For: "to know where a path of theirs leads"}},
		{"descriptor", Check{Name: "descriptors of its processes", Required: true, For: "to connect unix sockets for them"}},
	} {
		d.add(c.Check, inside.errno(c.step), "", "")
		if last := &d.report.Checks[len(d.report.Checks)-1]; !last.OK {
			last.Cause, last.Fix = "a filter or Yama keeps processes from being looked into", fix
		}
	}
}

// checkMachine looks at what else a sandbox may want.
func (d *doctor) checkMachine() {
	d.report.Checks = append(d.report.Checks, openFiles())
	d.report.Checks = append(d.report.Checks, groups()...)
	d.report.Checks = append(d.report.Checks, program("bailey", "everything"),
		program("bailey-gate", "network.allowedDomains: a network that is led through rules"))
	if d.report.Place == "WSL 2" {
		d.report.Checks = append(d.report.Checks, interop(read))
	}
}

// interop warns of programs of Windows, which no sandbox of Linux holds.
func interop(read func(string) string) Check {
	c := Check{Name: "no programs of Windows", OK: true, For: "they would run outside of any sandbox, if the command could reach them"}
	if strings.HasPrefix(read("/proc/sys/fs/binfmt_misc/WSLInterop"), "enabled") {
		c.OK = false
		c.Cause = "WSL starts programs of Windows from Linux; a sandbox does not show the socket it needs for that"
		c.Fix = "in /etc/wsl.conf: [interop] enabled=false, and in Windows: wsl --shutdown"
	}
	return c
}

// enoughFiles is what a launch and the broker need at once, with room to spare.
const enoughFiles = 256

func openFiles() Check {
	c := Check{Name: "open files", Required: true, For: "a launch needs some dozens at once"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		c.Found = err.Error()
		return c
	}
	// The Go runtime has raised the soft limit, so it is the hard one that counts.
	c.OK, c.Found = limit.Max >= enoughFiles, "limit "+strconv.FormatUint(limit.Max, 10)
	if !c.OK {
		c.Cause, c.Fix = "the hard limit of open files is too low", "raise it where it is set: ulimit -Hn, or a file in /etc/security/limits.d"
	}
	return c
}

// groups tries to hold limits that only a control group holds.
func groups() []Check {
	var checks []Check
	for _, l := range []struct {
		name, key string
		limits    spec.Limits
	}{
		{"memory of a sandbox", "resources.memory", spec.Limits{Memory: 64 << 20}},
		{"processors of a sandbox", "resources.cpu", spec.Limits{CPU: 1000}},
	} {
		c := Check{Name: l.name, For: l.key + ": a control group that limits all of it together"}
		err := limits.Check(&l.limits)
		var why *spec.Unsupported
		switch {
		case err == nil:
			c.OK = true
		case errors.As(err, &why):
			c.Cause, c.Fix = why.Reason, why.Fix
		default:
			c.Cause = err.Error()
		}
		checks = append(checks, c)
	}
	return checks
}

// program looks for a program of Bailey's beside this one.
func program(name, needs string) Check {
	c := Check{Name: "program " + name, For: needs, Required: name == "bailey"}
	if c.Found = host.Beside(name); c.Found != "" {
		c.OK = true
		return c
	}
	c.Cause, c.Fix = "it is not installed beside this program", "install all programs of Bailey's into one directory: make install"
	return c
}

func itoa(n int) string { return strconv.Itoa(n) }

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return unix.EIO
	}
	return errno
}
