package native

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Wall names the layer a launch step belongs to, so that a failure can be
// explained by what is missing on the machine.
type Wall string

const (
	WallUser     Wall = "user namespace"
	WallMount    Wall = "mount namespace"
	WallProc     Wall = "fresh /proc"
	WallIPC      Wall = "ipc namespace"
	WallUTS      Wall = "uts namespace"
	WallCgroup   Wall = "cgroup namespace"
	WallNetwork  Wall = "network namespace"
	WallCapture  Wall = "capture of connections (nftables)"
	wallIPv6     Wall = "IPv6" // without which there are sandboxes too
	WallLandlock Wall = "landlock"
	WallSeccomp  Wall = "seccomp"
	WallPrivate  Wall = "private writes (overlayfs)"
	WallOverlay  Wall = "workspace (overlayfs)"
	WallRules    Wall = "path permissions (FUSE)"
	WallTerminal Wall = "terminal"
	WallInit     Wall = "process 1"
	WallLimits   Wall = "resource limits"
	WallDir      Wall = "working directory"
)

// LaunchError says which step of a launch the kernel refused. Nothing of the
// command has run.
type LaunchError struct {
	Step  string
	Errno unix.Errno
	Wall  Wall
}

func (e *LaunchError) Error() string { return "launch: " + e.Step + ": " + e.Errno.Error() }

func (e *LaunchError) Unwrap() error { return e.Errno }

// ExecError says that the sandbox stands but the command could not be started
// in it.
type ExecError struct {
	Name  string
	Errno unix.Errno
}

func (e *ExecError) Error() string { return e.Name + ": " + e.Errno.Error() }

func (e *ExecError) Unwrap() error { return e.Errno }

// DirError says that a command's working directory is nothing that it could begin in.
type DirError struct {
	Errno unix.Errno
}

func (e *DirError) Error() string { return "change to the working directory: " + e.Errno.Error() }

func (e *DirError) Unwrap() error { return e.Errno }

// ErrRuntime is returned for a Spec that another runtime must carry.
var ErrRuntime = errors.New("only a command by itself can be run with it, not one that is kept, learned from, audited or started by a program; " +
	`set "runtime" to "auto" or "native"`)

// ErrDirectory is returned for a stream that is a directory: through its
// descriptor the sandbox could walk the host's tree.
var ErrDirectory = errors.New("is a directory, which would open a way out of the sandbox")

// ErrProtected is returned for a stream that is a file of a granted directory
// to which the command has less access than to the directory: opened again, by
// its name in /proc, it would have the directory's.
var ErrProtected = errors.New("is a file that the policy protects; give it through a pipe")

// ErrSocket is returned for a stream that is a socket of another kind than a
// connected unix socket: it would reach into the network it was made in.
var ErrSocket = errors.New("is a network socket, through which the sandbox would reach the host's network; give it through a pipe")

// ErrTruncatable is returned for a file opened for reading where the kernel
// could not keep the sandbox from truncating it.
var ErrTruncatable = errors.New("is a file, and landlock before interface 3 (Linux 6.2) cannot keep it from being truncated; give it through a pipe")

// ErrnoOf is the error number in err, or EIO if it has none.
func ErrnoOf(err error) unix.Errno {
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return unix.EIO
}
