package engine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Engine carries out Specs.
type Engine interface {
	// Name is what policies and --runtime call it.
	Name() string
	// Refuses is nil if the engine can hold every part of a Spec, and otherwise a
	// *spec.Refused with each part that it cannot hold; see Refuse. It decides by
	// the Spec and by what the machine has, and starts nothing.
	Refuses(s *spec.Spec) error
	// Start builds the sandbox and starts the command in it. When it returns
	// without an error the command runs and every wall stands. That the sandbox
	// stands and the program in it could not be executed is a *native.ExecError;
	// that the machine refused a wall is a *native.LaunchError.
	//
	// The sandbox must not outlive this process, however that ends. Start and Wait
	// are called on the main thread, which stays until Wait has returned the end,
	// so what dies with its parent's thread may rely on that.
	Start(s *spec.Spec, o Options) (Command, error)
}

// Options are what a start needs besides the Spec.
type Options struct {
	// Streams are the command's stdin, stdout and stderr; of descriptors it gets
	// these and no others. They have been checked: none gives the command more
	// than the Spec does.
	Streams [3]*os.File
	// Terminal, if not nil, gives the command a terminal of its own, in the place
	// of the streams it names.
	Terminal *native.Terminal
	// Interrupt, if not 0, is a descriptor that becomes readable when a signal comes
	// that would end the command. An engine for which a start takes long gives up then,
	// with ErrInterrupted, unless the command may run already: then the signal is its.
	Interrupt int
	// Report, if not nil, is told of each call that a broker refuses, from several threads.
	Report func(broker.Denial)
	// Observe, if not nil, is told of each call that names a file, from several threads, if
	// the Spec has the broker observe them.
	Observe func(broker.Observation)
	// Account has everything counted that Command.Used can tell, where this machine can.
	// What the Spec limits is counted anyway.
	Account bool
}

// Broker is what a broker needs to know of them.
func (o *Options) Broker() broker.Options {
	return broker.Options{Report: o.Report, Observe: o.Observe}
}

// ErrInterrupted says that a start was given up before the command ran.
var ErrInterrupted = errors.New("interrupted before the command ran")

// Pooled is an engine whose sandboxes can be built before their command is known.
type Pooled interface {
	Engine
	// Adopt starts the command of a Spec in a sandbox that was built for such a Spec
	// and has had no command before. There is no terminal. It is what Start is otherwise;
	// the descriptors become the engine's.
	Adopt(s *spec.Spec, o Options, w Waiting) (Command, error)
}

// Waiting is a sandbox that waits for a command, as it is handed over by the process
// that built it. It ends with that process and with this one.
type Waiting struct {
	Files []*os.File
	Pid   int
	Group string
}

// Command is a command that runs, seen from outside.
type Command interface {
	// Wait blocks until the command stops or ends and tells how; an engine that
	// cannot see a command stop tells the end only. After an end nothing of the
	// sandbox is left: no process, no mount, no directory, no control group.
	Wait() native.State
	// Signal passes a signal on to the command; SIGKILL ends everything in the
	// sandbox.
	Signal(sig unix.Signal) error
	// Pid is a process of the sandbox, in the caller's numbering, for messages.
	Pid() int
	// Terminal is the outer end of the command's terminal, or nil.
	Terminal() *os.File
	// Used is what everything in the sandbox has used, once it has ended.
	Used() limits.Usage
	// Listeners are the network gate's sockets, for a Spec that needs the gate.
	// They become the caller's.
	Listeners() []native.Listener
}

// Refuse is the reason why an engine cannot hold a part of a Spec. Key is the
// policy's, such as "filesystem.denyRead", and value what it says there, or "".
func Refuse(name, key, value, reason string) *spec.Unsupported {
	return &spec.Unsupported{Key: key, Value: value, Reason: "the " + name + " runtime " + reason, Fix: "remove it, or use --runtime native"}
}

// Refused is the error of these reasons, or nil if there are none.
func Refused(reasons []*spec.Unsupported) error {
	if len(reasons) == 0 {
		return nil
	}
	return &spec.Refused{Reasons: reasons}
}
