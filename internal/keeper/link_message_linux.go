package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A server asks much and often, so it has one connection for all of it, a link.
// Each request has a number, which is in the reply; replies come in any order.
// What the sandboxes of a server do goes on without it: a new process of the
// server asks for what the old one had.

// What a server sends on a link.
const (
	linkOpen   kind = 'O' // Open: make a sandbox
	linkExec   kind = 'X' // Exec: start a command
	linkAttach kind = 'N' // Name: the streams of a command, once more
	linkSignal kind = 'Y' // Signal
	linkTag    kind = 'B' // Tag
	linkFinish kind = 'E' // Name: the input of that command is at its end
	linkForget kind = 'F' // Name: nobody will ask for that command again
	linkStop   kind = 'Z' // Stopping
	linkFreeze kind = 'Q' // Freeze
	linkRoot   kind = 'U' // Root
	linkUsage  kind = 'W' // Name: of a sandbox
	linkReload kind = 'J' // Rules
	linkList   kind = 'M' // Name, which is empty
	linkEvents kind = 'D' // Name: of a sandbox
	linkPort   kind = 'V' // Port
	linkExpect kind = 'H' // Name: of a sandbox that will be asked for; there is no reply
)

// What the keeper sends on it.
const (
	tellReply kind = 'r' // reply
	tellExit  kind = 'x' // Execution that has ended
	tellGone  kind = 'g' // Name: of a sandbox that has ended
	tellEvent kind = 'c' // Name: of a sandbox of which there are new events since they were asked for
)

// Link begins a link.
type Link struct {
	// Orphans is how long sandboxes go on when no server is there.
	Orphans time.Duration
}

// Open asks for a sandbox.
type Open struct {
	Ref  uint64
	Name string
	Plan Plan
}

// Exec asks for a command in a sandbox.
type Exec struct {
	Ref uint64
	Box string
	// ID is what the command is known by, unique among all.
	ID   string
	Argv []string
	// Env is set over the environment of the sandbox.
	Env []string
	// Dir is where it begins; empty for where the sandbox does.
	Dir     string
	Timeout time.Duration // 0 for none
	// Input is what its standard input is.
	Input Input
	// Terminal, if not nil, gives it a terminal for all its streams.
	Terminal *native.Terminal
	// Tag is the server's own.
	Tag []byte
	// Fleeting says that only the server that asks wants its streams and its end:
	// the keeper does not keep them.
	Fleeting bool
}

// Input is what a command reads from.
type Input uint8

const (
	InputNone   Input = iota // nothing
	InputPipe                // a pipe
	InputSocket              // a socket, on which it can answer
)

// Moment is a point in time, in nanoseconds since 1970; 0 is none.
type Moment int64

// Now is this moment.
func Now() Moment { return Moment(time.Now().UnixNano()) }

// Time is the moment as others know it.
func (m Moment) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(m))
}

// Execution is a command in a sandbox.
type Execution struct {
	ID, Box  string
	Argv     []string
	Tag      []byte
	Input    Input
	Terminal bool
	Fleeting bool
	Pid      int // of its process, as it is numbered inside
	Started  Moment
	// Ended is zero while it runs. What follows is how it ended.
	Ended    Moment
	Wait     uint32
	Killed   bool // with the sandbox
	TimedOut bool
	// Starved says that a process of the sandbox was killed for want of memory
	// while it ran.
	Starved bool
	Spent   Spent
}

// Spent is what a command used, with those of its children that it waited for.
type Spent struct {
	User, System  time.Duration // of processors
	Memory        int64         // the most that one process had, in bytes
	Read, Written int64         // from disks and to disks, in bytes
}

func spent(r *unix.Rusage) Spent {
	const kilo, block = 1 << 10, 512 // what Linux counts in
	return Spent{
		User: time.Duration(r.Utime.Nano()), System: time.Duration(r.Stime.Nano()), Memory: int64(r.Maxrss) * kilo,
		Read: int64(r.Inblock) * block, Written: int64(r.Oublock) * block,
	}
}

// Standing is a sandbox that a server has made.
type Standing struct {
	Name   string
	Pid    int
	Since  Moment
	Frozen bool
	Ending bool // it was asked to end, and has not yet
	// Ports are those of the host that lead inside, as ADDR:PORT:INSIDE.
	Ports []string
	// Owner is the user and group of its commands; 0 if that is the keeper's own.
	Owner uint32
	// Partial says that only the workspace can be opened from outside.
	Partial bool
	// Timeout is the most time that its policy lets a command have, or 0.
	Timeout time.Duration
}

// State is all that a keeper holds for a server.
type State struct {
	Boxes []Standing
	Execs []Execution
}

// Name names a sandbox or a command.
type Name struct {
	Ref  uint64
	Name string
}

// Signal is a signal for a command.
type Signal struct {
	Ref    uint64
	ID     string
	Number int
}

// Tag replaces what the server has written on a command.
type Tag struct {
	Ref uint64
	ID  string
	Tag []byte
}

// Stopping asks for the end of a sandbox.
type Stopping struct {
	Ref   uint64
	Name  string
	Grace time.Duration
}

// Freeze asks for everything in a sandbox to stand still, or to go on.
type Freeze struct {
	Ref  uint64
	Name string
	Thaw bool
}

// Root asks for a descriptor of a directory as it is seen inside.
type Root struct {
	Ref       uint64
	Name, Dir string
}

// Rules asks for other network rules.
type Rules struct {
	Ref    uint64
	Change Change
}

// Port asks for a port of a sandbox to be exposed, or not to be any more.
type Port struct {
	Ref      uint64
	Name     string
	Exposure spec.Exposure
	Withdraw bool
}

// Used is what a sandbox has used.
type Used struct {
	Usage   limits.Usage
	Known   bool // the usage is that of a control group
	Denials int
}

// Happened are the latest events of a sandbox, each with its number and as
// package event writes it.
type Happened struct {
	Numbers []int
	Lines   [][]byte
}

// reply is the answer to a request.
type reply struct {
	Ref     uint64
	Failure *Failure
	Data    []byte
}
