package oci

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
)

// Names of runtimes, as policies say them.
const (
	Runc   = "runc"
	Crun   = "crun"
	Gvisor = "gvisor"
)

// containerName is the sandbox's in the runtime's own state, where it is alone.
const containerName = "bailey"

// runtimeOrder is a runtime and how it is to be called.
type runtimeOrder struct {
	Name     string
	Program  string
	Rootless bool
	Grouped  bool // there are limits, which need a control group
	Open     bool // gVisor: the host's network
	Sockets  bool // gVisor: unix sockets of the host can be reached
	// Platforms of gVisor are tried in this order, and the first is the one in use.
	// Other runtimes have one without a name.
	Platforms []string
}

// arrange makes the guard's mounts as the runtime wants them. Crun refuses a machine
// with both kinds of control groups; where the newer, which holds no limits there, is
// out of sight it works, and makes its groups there in memory.
func (r *runtimeOrder) arrange() error {
	const newer = "/sys/fs/cgroup/unified"
	var st unix.Statfs_t
	if r.Name != Crun || unix.Statfs(newer, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	if err := unix.Mount("tmpfs", newer, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("cover %s: %w", newer, err)
	}
	return nil
}

// execute starts the runtime. Some versions of crun open what they are to show, if they can,
// without what is mounted below it: then that would be missing, and what it covers would be
// seen. Where the kernel lacks the call for it they mount everything, as runc does, so that
// is what they are told. The filter stays with everything that crun starts, whose own
// filter refuses the call too.
func (r *runtimeOrder) execute(args []string, attr *syscall.ProcAttr) (pid int, err error) {
	if r.Name != Crun {
		return syscall.ForkExec(r.Program, args, attr)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, errno := landlock.Install(seccomp.Assemble(seccomp.Lacking(unix.SYS_OPEN_TREE)), 0); errno != 0 {
			err = os.NewSyscallError("install a filter for crun", errno)
			return
		}
		pid, err = syscall.ForkExec(r.Program, args, attr)
	}()
	<-started
	return pid, err
}

// arguments have the runtime start the sandbox, and end.
func (r *runtimeOrder) arguments(console bool) []string {
	args := append([]string{r.Program}, r.global()...)
	switch r.Name {
	case Gvisor:
		args = append(args, "run", "-detach", "-bundle="+stage, "-pid-file="+pidFile, "-pass-fd=3:3")
		if console {
			args = append(args, "-console-socket="+consoleSocket)
		}
	default:
		args = append(args, "run", "--detach", "--bundle", stage, "--pid-file", pidFile, "--preserve-fds", "1")
		if console {
			args = append(args, "--console-socket", consoleSocket)
		}
	}
	return append(args, containerName)
}

// global are the options before the verb.
func (r *runtimeOrder) global() []string {
	state := filepath.Join(stage, stateName)
	switch r.Name {
	case Crun:
		args := []string{"--root", state, "--log", "file:" + logFile}
		if !r.Grouped {
			args = append(args, "--cgroup-manager", "disabled")
		}
		return args
	case Gvisor:
		return r.gvisor(state)
	}
	args := []string{"--root", state, "--log", logFile}
	if r.Rootless {
		args = append(args, "--rootless", "true")
	}
	return args
}

func (r *runtimeOrder) gvisor(state string) []string {
	args := []string{
		"--root=" + state, "--log=" + logFile, "--platform=" + r.Platforms[0], "--oci-seccomp=true",
		"--directfs=true", "--overlay2=none", "--network=none", "--host-uds=none",
	}
	if r.Open {
		args = append(args, "--network=host")
	}
	if r.Sockets {
		args = append(args, "--host-uds=open")
	}
	if r.Rootless || !r.Grouped {
		args = append(args, "--ignore-cgroups=true")
	}
	return args
}

// signal sends a signal to the sandbox's first process, which passes it on. That of
// gVisor is no process of the host.
func (r *runtimeOrder) signal(pid int, sig unix.Signal) error {
	if r.Name != Gvisor {
		return unix.Kill(pid, sig)
	}
	args := append(r.global(), "kill", containerName, strconv.Itoa(int(sig)))
	return exec.Command(r.Program, args...).Run()
}
