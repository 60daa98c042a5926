package native

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Guest is a process 1 that waits for requests and that another program has started, as
// the program of GuestProgram with a socket at descriptor 3. What it may do is for that
// program to hold.
type Guest struct {
	// Pid is process 1, or what stands for it, in the caller's numbering.
	Pid int
	// Guard is a child of the caller's that everything in the sandbox ends with.
	Guard int
	// Control is the other end of the socket. Ready must have said yes.
	Control *os.File
	// Listeners are the gate's sockets, if the Spec has a gate.
	Listeners []Listener
	// Root is a directory in which paths of the sandbox are as they are inside.
	Root string
	// Partial says that only the overlay of the Spec is in Root.
	Partial bool
	// Owner is the user and the group that commands are for the caller, if that is
	// neither the caller nor 0.
	Owner uint32
	// Umask is the file mode mask that commands have if they have none of their own.
	Umask int
	// Terminals says that terminals can be opened in its /dev/pts.
	Terminals bool
}

// GuestProgram is the program of a Guest.
func GuestProgram() []byte { return image(initParams{terminal: -1, resident: true, guest: true}) }

// Ready waits until the program of a Guest waits for requests.
func Ready(control *os.File) bool {
	var buf [messageSize]byte
	_, err := io.ReadFull(control, buf[:])
	return err == nil && decodeMessage(buf[:]).what&msgStarted != 0
}

// Welcome takes a Guest over. The Resident ends the guard, and takes it in.
func Welcome(s *spec.Spec, g Guest) (*Resident, error) {
	pidfd, err := unix.PidfdOpen(g.Guard, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	control, err := unix.FcntlInt(g.Control.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		_ = unix.Close(pidfd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	_ = g.Control.Close()
	r, err := newResident(s, &Process{
		Pid: g.Pid, Listeners: g.Listeners, pidfd: pidfd, helper: g.Guard, status: control, umask: g.Umask, running: true,
	})
	if err == nil {
		r.root, r.bare, r.Partial, r.Owner = g.Root, !g.Terminals, g.Partial, g.Owner
	}
	return r, err
}

// ErrNoTerminal is returned where a runtime has none for a command in a sandbox that
// stands.
var ErrNoTerminal = fmt.Errorf("the runtime has no terminals for sandboxes that stay: %w", unix.ENOTTY)

// Root is where paths of the sandbox are as they are inside.
func (r *Resident) Root() string { return r.root }
