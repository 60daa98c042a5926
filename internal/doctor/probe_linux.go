package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ProbeWord is the first argument of the program that Run starts again and again
// to try something; see Probe.
const ProbeWord = "doctor-probe"

// attempt is one run of a probe: the error of each step, 0 for those that worked.
// A step that is missing was not reached.
type attempt map[string]unix.Errno

// errNotReached is the errno of a step that was never tried.
const errNotReached = unix.ECANCELED

func (a attempt) errno(step string) unix.Errno {
	if e, ok := a[step]; ok {
		return e
	}
	return errNotReached
}

// try runs a probe in new namespaces and collects what it says. That the process
// cannot even be started is the error of the step "start".
func (d *doctor) try(name string, namespaces uintptr) attempt {
	cmd := exec.Command("/proc/self/exe", ProbeWord, name)
	if namespaces != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: namespaces | unix.CLONE_NEWUSER,
			// Only as root inside does the probe keep its rights when it is executed.
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
	}
	out, err := cmd.Output()
	a := attempt{"start": startErrno(err)}
	for line := range strings.Lines(string(out)) {
		step, number, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if n, err := strconv.Atoi(number); ok && err == nil {
			a[step] = unix.Errno(n)
		}
	}
	return a
}

// startErrno is why a process was not started. How it ended is another matter.
func startErrno(err error) unix.Errno {
	var exit *exec.ExitError
	var errno syscall.Errno
	switch {
	case err == nil || errors.As(err, &exit):
		return 0
	case errors.As(err, &errno):
		return errno
	}
	return unix.EIO
}

// Probe is a process that tries something, says how that went and ends. It returns
// its exit status.
func Probe(args []string, stdout io.Writer) int {
	if len(args) != 1 {
		return 2
	}
	switch args[0] {
	case "nothing":
	case "build":
		tryBuild(teller{stdout})
	case "confine":
		tryConfine(teller{stdout})
	case "wait":
		teller{stdout}.say("ready", nil)
		waitForEnd()
	case "work":
		return work()
	default:
		return 2
	}
	return 0
}

// teller reports steps.
type teller struct{ to io.Writer }

func (t teller) say(step string, err error) {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	_, _ = fmt.Fprintf(t.to, "%s\t%d\n", step, int(errno)) // who does not hear it counts it as not reached
}

// tryBuild is the probe of what a launch does in its namespaces.
func tryBuild(t teller) {
	err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	t.say("private mounts", err)
	if err != nil {
		return
	}
	const at = "/tmp"
	if err = unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
		t.say("file system in memory", err)
		return
	}
	t.say("file system in memory", nil)
	for _, dir := range []string{"proc", "pts", "lower", "upper", "work", "merged", "shown"} {
		_ = os.Mkdir(at+"/"+dir, 0o755)
	}
	t.say("mount calls", tryMountCalls(at+"/lower", at+"/shown"))
	t.say("fresh proc", unix.Mount("proc", at+"/proc", "proc", unix.MS_RDONLY, ""))
	t.say("terminals", unix.Mount("devpts", at+"/pts", "devpts", 0, "newinstance,ptmxmode=0666"))
	t.say("overlay", unix.Mount("overlay", at+"/merged", "overlay", 0,
		"userxattr,lowerdir="+at+"/lower,upperdir="+at+"/upper,workdir="+at+"/work"))
	t.say("loopback", raiseLoopback())
}

// tryMountCalls shows a directory read-only, with the calls that a launch uses.
func tryMountCalls(from, at string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// work does what nearly every command does: it makes a file, and reads one.
func work() int {
	const name = "work"
	err := os.WriteFile(name, []byte(name), 0o600)
	if err == nil {
		_, err = os.ReadFile(name)
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// waitForEnd is a process for others to look into, until its stdin is closed.
func waitForEnd() {
	var buf [1]byte
	_, _ = os.Stdin.Read(buf[:])
}
