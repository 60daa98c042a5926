package landlock

import (
	"errors"
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
)

// Exec puts up the walls around the calling thread and becomes the command. It
// returns only if that fails, and the caller can do nothing then but say so and
// end: walls that stand stay. The goroutine must be locked to its thread: Landlock,
// the filter and the privileges are a thread's, and the kernel takes those of the
// one that executes.
func (p *Plan) Exec() error {
	for _, step := range []func() error{
		p.limits, p.enter, closeOthers, noNewPrivileges, dropCapabilities,
		func() error { return restrict(&Walls{ABI: p.abi, Rules: grants(p.rules), Scopes: scopes}, p.streams) },
		p.install,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return p.execute()
}

// failed is the error of a step that the kernel refused.
func failed(wall native.Wall, step string, err error) error {
	if err == nil {
		return nil
	}
	errno := unix.EIO
	errors.As(err, &errno)
	return &native.LaunchError{Step: step, Errno: errno, Wall: wall}
}

// limits sets resource limits. One that is lower already stays.
func (p *Plan) limits() error {
	for _, l := range p.spec.Rlimits {
		number, ok := native.LimitNumber(l.Name)
		if !ok {
			return failed(native.WallLimits, "limit "+l.Name, unix.EINVAL)
		}
		var old syscall.Rlimit
		err := syscall.Getrlimit(number, &old)
		if err == nil {
			value := min(l.Value, old.Max)
			// Of package syscall, which else would restore the limit of open files
			// that it found.
			err = syscall.Setrlimit(number, &syscall.Rlimit{Cur: value, Max: value})
		}
		if err != nil {
			return failed(native.WallLimits, "limit "+l.Name, err)
		}
	}
	return nil
}

func (p *Plan) enter() error {
	return failed(native.WallDir, "change to "+p.spec.Dir, unix.Chdir(p.spec.Dir))
}

// closeOthers lets no descriptor but the streams survive the exec. This process
// still needs its own.
func closeOthers() error {
	return failed(native.WallInit, "close descriptors", unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC))
}

func noNewPrivileges() error {
	return failed(native.WallLandlock, "no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// dropCapabilities gives up what privileges there may be. With no new ones to be
// had that is for good, for root too.
func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return failed(native.WallUser, "drop capabilities", unix.Capset(&hdr, &none[0]))
}

// Scopes of Landlock: abstract sockets and signals stay within.
const scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// restrict confines the calling thread to the rules, for good, and takes from it
// the given rights of the network.
func restrict(w *Walls, streams [3]uint64) error {
	handled := native.HandledRights(w.ABI)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled, Handled_access_net: w.Net, Scoped: w.Scopes}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if w.Net != 0 || w.Scopes != 0 {
		size = unsafe.Offsetof(attr.Quiet_access_fs) // what interface 6 knows
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return failed(native.WallLandlock, "create the landlock ruleset", errno)
	}
	defer func() { _ = unix.Close(int(set)) }()
	for _, g := range w.Rules {
		fd, err := (&rule{path: g.Path}).open()
		if w.Partial && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)) {
			continue // there is nothing to be granted
		}
		if err == nil {
			err = allow(set, fd, g.Rights&handled)
			_ = unix.Close(fd)
		}
		if err != nil {
			return failed(native.WallLandlock, "landlock rule "+g.Path, err)
		}
	}
	for fd, rights := range streams {
		if rights &= handled; rights == 0 {
			continue
		}
		if err := allow(set, fd, rights); err != nil {
			return failed(native.WallLandlock, "landlock rule for a stream", err)
		}
	}
	_, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0)
	if errno != 0 {
		return failed(native.WallLandlock, "enter the landlock ruleset", errno)
	}
	return nil
}

func allow(set uintptr, fd int, rights uint64) error {
	if rights == 0 {
		return nil // the kernel takes no rule without
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// install adds the system call filter. It comes last: what it refuses is not
// needed from here on.
func (p *Plan) install() error {
	if _, errno := Install(seccomp.Assemble(p.filter), 0); errno != 0 {
		return failed(native.WallSeccomp, "install the system call filter", errno)
	}
	return nil
}

// execute tries the program's candidates in order, as process 1 of a sandbox does:
// one that may not be executed is remembered, but a later one may do.
func (p *Plan) execute() error {
	errno := unix.ENOENT
	for _, name := range p.spec.Exec {
		err := syscall.Exec(name, p.spec.Argv, p.spec.Env)
		var got unix.Errno
		if !errors.As(err, &got) {
			return err
		}
		if got == unix.ENOENT || got == unix.ENOTDIR {
			continue
		}
		errno = got
		if got != unix.EACCES {
			break
		}
	}
	return &native.ExecError{Name: p.spec.Argv[0], Errno: errno}
}
