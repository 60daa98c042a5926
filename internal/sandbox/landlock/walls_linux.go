package landlock

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Walls are what a child puts up around itself before it becomes the command.
type Walls struct {
	ABI    int
	Rules  []Grant
	Scopes uint64
	Net    uint64 // rights of the network that nothing grants
	// Partial says that paths of rules may be missing: others made what is there.
	Partial bool
	// Filter asks a broker, to whom its listener is handed; without one there is none.
	Filter []seccomp.Instruction
	// Datagrams says that the filter asks about messages that are sent, too.
	Datagrams bool
}

// Grant is a rule of Landlock, by a path as it leads where the child is.
type Grant struct {
	Path   string
	Rights uint64
}

func grants(rules []rule) (list []Grant) {
	for _, r := range rules {
		list = append(list, Grant{r.path, r.rights})
	}
	return list
}

// WallsOf are those of a Spec in a sandbox whose mounts and namespaces stand: the same
// that the native runtime puts up there.
func WallsOf(s *spec.Spec) (*Walls, error) {
	abi, errno := native.LandlockABI()
	if abi < s.Landlock.MinABI {
		if errno == 0 {
			errno = unix.ENOSYS
		}
		return nil, &native.LaunchError{
			Step:  fmt.Sprintf("landlock interface %d is needed, this kernel has %d", s.Landlock.MinABI, abi),
			Errno: errno, Wall: native.WallLandlock,
		}
	}
	w := &Walls{ABI: abi, Scopes: native.Scopes(&s.Landlock, abi), Partial: true}
	for i := range s.Landlock.Rules {
		r := &s.Landlock.Rules[i]
		w.Rules = append(w.Rules, Grant{r.Path, native.Rights(r)})
	}
	if s.Broker != nil {
		o := native.FilterOptions(s)
		w.Filter, w.Datagrams = seccomp.Assemble(seccomp.New(o)), o.Datagrams
	}
	return w, nil
}

// Inner is a command that a child of the calling process is to become behind Walls, in a
// sandbox that stands.
type Inner struct {
	Walls     Walls
	Exec      []string
	Argv, Env []string
	Dir       string
}

// Start starts the child, with the attributes and streams that the command is to have, and
// waits until it is the command. Program is one of Bailey's that calls Become. Listen is
// given the listener of the broker, if the Walls have one, and closes it; the command is
// executed only when the broker lets it. It dies with the calling thread.
func (in *Inner) Start(program string, streams [3]uintptr, attr *syscall.SysProcAttr, listen func(fd int) error) (pid int, err error) {
	o := &order{Walls: in.Walls, Exec: in.Exec, Argv: in.Argv, Env: in.Env, Dir: in.Dir}
	for i, fd := range streams {
		if o.Streams[i], err = native.StreamRight(int(fd)); err != nil {
			return 0, err
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(pair[0]) }()
	read, write, err := os.Pipe()
	if err != nil {
		_ = unix.Close(pair[1])
		return 0, err
	}
	pid, err = syscall.ForkExec(program, []string{ChildName}, &syscall.ProcAttr{
		Env: []string{parentVariable + "=" + strconv.Itoa(os.Getpid())}, Sys: attr,
		Files: []uintptr{streams[0], streams[1], streams[2], read.Fd(), uintptr(pair[1])},
	})
	_, _ = read.Close(), unix.Close(pair[1])
	if err != nil {
		_ = write.Close()
		return 0, &native.LaunchError{Step: "start the child", Errno: native.ErrnoOf(err), Wall: native.WallInit}
	}
	_, _ = write.Write(o.encode()) // if the child has ended, that will be known
	_ = write.Close()
	return pid, hear(pair[0], in.Argv[0], hearing{listen: listen, walled: len(in.Walls.Filter) == 0})
}
