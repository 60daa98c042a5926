package sandbox

import (
	"os"
	"syscall"
)

// Running is a command in a sandbox, for programs that go on with other things
// meanwhile.
type Running interface {
	// Done is closed when the command has ended. If the sandbox was its own,
	// nothing of that is left then.
	Done() <-chan struct{}
	// Pid is process 1 of the sandbox, in the caller's numbering.
	Pid() int
	// State is how the command ended; it is valid once Done is closed.
	State() State
	// Signal passes a signal on to the command. After its end it does nothing.
	// A command that is killed takes along everything in a sandbox of its own,
	// and its process group in one that stays.
	Signal(sig syscall.Signal) error
}

// State is how a command ended.
type State struct {
	Code     int  // exit status, or -1
	Signal   int  // the signal that ended it, or 0
	Killed   bool // the sandbox was ended from outside
	TimedOut bool // the policy's timeout ended it
	// Met are the limits that were met, such as memory; in a sandbox that stays,
	// by any of its processes meanwhile.
	Met []string
	// Changes is what it has written to an overlay in memory, or nil. It is the
	// caller's to close.
	Changes *os.File
}
