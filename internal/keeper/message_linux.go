package keeper

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// kind says what a message is.
type kind byte

// What clients send. The first message of a connection is a request; the
// descriptors of a command's streams come with it. Once the command runs, each
// byte is a signal for it, or the answer to a Question.
const (
	askRun  kind = 'R' // Run
	askSpec kind = 'P' // Plan, when the keeper wants it
	askList kind = 'L'
	askStop kind = 'S' // Stop
	askLogs kind = 'G' // Logs
	askHold kind = 'H' // Hold

	askReload kind = 'C' // Change
	askLook   kind = 'I' // Look
	askAllow  kind = 'A' // Allow
	askShow   kind = 'V' // Show
	askTake   kind = 'T' // Take
	askLink   kind = 'K' // Link
)

// What the keeper sends.
const (
	tellHello   kind = 'h' // Hello: a request can be sent
	tellWant    kind = 'n' // the sandbox must be made first: send a Plan
	tellStarted kind = 's' // with the command's terminal; of one that has none and is waited for, nothing is said
	tellStatus  kind = 'w' // Status: it was stopped, or it has ended
	tellDenial  kind = 'd' // Denial
	tellNote    kind = 'i' // Note

	tellQuestion  kind = 'q' // Question
	tellWithdrawn kind = 'v' // Withdrawn

	tellBoxes  kind = 'b' // []Box
	tellInside kind = 'p' // told
	tellOutput kind = 'o' // Output
	tellTaken  kind = 't' // Taken
	tellShown  kind = 'm' // with the mount of a view
	tellDone   kind = 'z'
	tellError  kind = 'e' // Failure
)

// Hello begins a connection.
type Hello struct{ Version string }

// Run asks for a command in a sandbox.
type Run struct {
	Name string
	// Key is what the sandbox must have, or empty for the one of that name,
	// whatever it is: then environment and directory are those it was made for.
	Key []byte
	// Linger is how long the sandbox stands without a command.
	Linger time.Duration
	// Detach lets the command run without the client. What it writes is kept
	// with the sandbox.
	Detach bool

	Argv, Exec, Env []string
	Dir             string
	Umask           int
	Term            string // TERM, where the environment is the sandbox's own
	Terminal        *native.Terminal
}

// Plan is a sandbox to be made.
type Plan struct {
	Spec spec.Spec
	// Key is what the sandbox is known by, as the client sees it now.
	Key []byte
	// Files is the client's soft limit of open files.
	Files uint64
	// Environ is what the network gate has for its environment. It is nowhere else:
	// it may hold credentials.
	Environ []string
}

// planOf is the plan of a Spec for this process.
func planOf(s *spec.Spec, files uint64) Plan {
	return Plan{Spec: *s, Key: Key(s), Files: files, Environ: needed(s)}
}

// key is what the sandbox of the plan is known by, as this process sees it now.
func (p *Plan) key() []byte { return keyOf(&p.Spec, p.Environ) }

// Hold asks for a sandbox to be kept for as long as the connection stands, and
// for a while after that in which the client can return.
type Hold struct {
	Name   string
	Key    []byte
	Linger time.Duration
}

// Stop asks for sandboxes to be ended.
type Stop struct {
	Names []string
	All   bool
	Grace time.Duration // between asking the commands to end and killing them
}

// Logs asks for what detached commands wrote.
type Logs struct {
	Name   string
	Follow bool
}

// Status is what happened to the command.
type Status struct {
	Wait   uint32
	Killed bool // the sandbox was ended
}

// Denial is a call of the command that was refused.
type Denial struct {
	broker.Denial
	Process string
}

// Note is something the client's user should know.
type Note struct{ Text string }

// Output is a piece of a log.
type Output struct{ Data []byte }

// Box describes a sandbox.
type Box struct {
	Name      string
	Pid       int // process 1, as the host numbers it
	Dir       string
	Age       time.Duration
	Idle      time.Duration // since the last command ended; 0 while one runs
	Linger    time.Duration
	Commands  [][]string // those that run
	Processes int        // besides process 1
	Memory    int64      // bytes, of all of them
	CPU       time.Duration
	// Connections are those of TCP that its processes hold.
	Connections int
	// Denials is how often something was refused, and LastDenial the last of it,
	// for people.
	Denials    int
	LastDenial string
	Limits     spec.Limits
	Leaving    bool // it takes no commands any more
	// Ports are those of the host that lead inside, as ADDR:PORT:INSIDE.
	Ports []string
	// Launcher is the bailey process whose single command this sandbox is for, 0
	// for one that stays.
	Launcher int
	// Image is the system that it was made in, with who its caller is there; nil for the
	// machine's own.
	Image *spec.Image
}

// Failure is an error on its way to a client.
type Failure struct {
	Reason string
	Text   string // if there is no better form
	Name   string // of a program
	Step   string // of a launch
	Wall   string
	Errno  uint
	// Refused are the parts of a Spec that cannot be held.
	Refused []*spec.Unsupported
}

// Reasons.
const (
	reasonExec    = "exec"
	reasonLaunch  = "launch"
	reasonMissing = "missing"
	reasonRefused = "refused"
	reasonDir     = "dir"
	reasonOther   = "other"
)

var (
	// ErrMissing says that there is no sandbox of that name.
	ErrMissing = errors.New("there is no such sandbox")
	// ErrVersion says that client and keeper are of different versions.
	ErrVersion = errors.New("the sandboxes that run were started by another version; end them first: bailey box stop --all")
)

func failureOf(err error) Failure {
	var exec *native.ExecError
	var dir *native.DirError
	var launch *native.LaunchError
	var refused *spec.Refused
	switch {
	case errors.As(err, &refused):
		return Failure{Reason: reasonRefused, Refused: refused.Reasons}
	case errors.As(err, &exec):
		return Failure{Reason: reasonExec, Name: exec.Name, Errno: uint(exec.Errno)}
	case errors.As(err, &dir):
		return Failure{Reason: reasonDir, Errno: uint(dir.Errno)}
	case errors.As(err, &launch):
		return Failure{Reason: reasonLaunch, Step: launch.Step, Wall: string(launch.Wall), Errno: uint(launch.Errno)}
	case errors.Is(err, ErrMissing):
		return Failure{Reason: reasonMissing, Text: err.Error()}
	}
	return Failure{Reason: reasonOther, Text: err.Error()}
}

// err is the failure as the client's caller knows it.
func (f *Failure) err() error {
	switch f.Reason {
	case reasonExec:
		return &native.ExecError{Name: f.Name, Errno: unix.Errno(f.Errno)}
	case reasonDir:
		return &native.DirError{Errno: unix.Errno(f.Errno)}
	case reasonLaunch:
		return &native.LaunchError{Step: f.Step, Wall: native.Wall(f.Wall), Errno: unix.Errno(f.Errno)}
	case reasonRefused:
		return &spec.Refused{Reasons: f.Refused}
	case reasonMissing:
		return fmt.Errorf("%w%s", ErrMissing, f.Text[min(len(f.Text), len(ErrMissing.Error())):])
	}
	return errors.New(f.Text)
}

// Key is a hash of all that is decided about a sandbox: the Spec without its
// command, which files of the host the mounts show, since one that was replaced is
// another although its name is the same, and the credentials that this process has
// for it in variables.
func Key(s *spec.Spec) []byte { return keyOf(s, os.Environ()) }

func keyOf(s *spec.Spec, environ []string) []byte {
	b := wire.Append(nil, *s.Box())
	b = wire.Append(b, decisive(s, environ))
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Bind || m.Kind == spec.Private {
			var st unix.Stat_t
			_ = unix.Lstat(m.Source, &st) // what is missing is missing in both
			b = wire.Append(b, [2]uint64{st.Dev, st.Ino})
		}
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// CheckName refuses a name that could be taken for something else.
func CheckName(name string) error {
	if name == "" || len(name) > 64 {
		return errors.New("the name of a sandbox has 1 to 64 characters")
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.') {
			return errors.New("the name of a sandbox has letters and digits, and after the first also dots, dashes and underscores")
		}
	}
	return nil
}
