// Package event is the single record of what happened in a sandbox: what was
// allowed and denied, which programs ran and how they ended, which limits were
// met, which connections were made. There is one type and one stream of it. The
// summary at the end of a run, the audit log, "bailey log" and whatever learns
// from a run read the same events.
//
// An event goes to a Sink. Fold keeps denials for the summary, Writer and Audit
// write JSON, one object a line; docs/events.md describes that format, and
// docs/schema/event.schema.json is its schema. Nothing is opened or started
// before the first event.
//
// What a sandbox does decides about most of an event's text, so none of it is
// fit for a terminal as it stands: Printable, Text and Summary make it so.
package event

import "time"

// Version is the version of the format that this package writes, and the only
// one it reads. New keys do not change it, since readers ignore those they do
// not know.
const Version = 1

// Kind says what an event is about.
type Kind string

const (
	Allow      Kind = "allow"      // somebody was asked and allowed something
	Deny       Kind = "deny"       // something was refused
	Exec       Kind = "exec"       // a program was started
	Exit       Kind = "exit"       // a process ended
	Limit      Kind = "limit"      // a limit on resources was met
	Connection Kind = "connection" // a connection through the network gate ended
)

// Kinds lists every Kind.
func Kinds() []Kind { return []Kind{Allow, Deny, Exec, Exit, Limit, Connection} }

// Op is what was attempted, for events that allow or deny.
type Op string

const (
	OpOpen     Op = "open"
	OpCreate   Op = "create"
	OpRename   Op = "rename"
	OpLink     Op = "link"
	OpMkdir    Op = "mkdir"
	OpSymlink  Op = "symlink"
	OpMknod    Op = "mknod"
	OpBind     Op = "bind"
	OpTruncate Op = "truncate"
	OpRemove   Op = "remove"
	OpChange   Op = "change" // of attributes
	OpStat     Op = "stat"
	OpConnect  Op = "connect"
	OpAccept   Op = "accept" // of a connection from the host
	OpExec     Op = "exec"
	OpCall     Op = "call" // any other, refused because something failed
)

// Event is one thing that happened. The strings are bytes as the kernel has
// them, not necessarily UTF-8; the JSON form keeps them exactly. What does not
// apply is left empty, and is then left out of the JSON.
type Event struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Sandbox string    `json:"sandbox,omitempty"` // its id
	Pid     int       `json:"pid,omitempty"`     // as the host numbers it
	Process string    `json:"process,omitempty"` // the program's name
	Op      Op        `json:"op,omitempty"`
	Path    string    `json:"path,omitempty"`
	Argv    []string  `json:"argv,omitempty"` // of exec

	// Of the network.
	Host     string        `json:"host,omitempty"`    // as it was asked for
	Address  string        `json:"address,omitempty"` // what it resolved to
	Port     int           `json:"port,omitempty"`
	Method   string        `json:"method,omitempty"`
	URLPath  string        `json:"urlPath,omitempty"`
	BytesIn  int64         `json:"bytesIn,omitempty"`  // into the sandbox
	BytesOut int64         `json:"bytesOut,omitempty"` // out of it
	Duration time.Duration `json:"durationNanos,omitempty"`

	Rule  string `json:"rule,omitempty"`  // what decided: filesystem.denyWrite **/.env
	Where string `json:"where,omitempty"` // file:line:column of the rule, if it has one
	Fix   string `json:"fix,omitempty"`   // the flag or policy line that would allow it

	// Count is how many equal events this one stands for. 0 and 1 mean one.
	Count int `json:"count,omitempty"`

	Status *int   `json:"status,omitempty"` // of exit, unless a signal ended the process
	Signal string `json:"signal,omitempty"` // of exit: SIGKILL
	Limit  string `json:"limit,omitempty"`  // of limit: memory

	// Truncated says that some text was too long to record whole.
	Truncated bool `json:"truncated,omitempty"`
}

// New returns an event of this moment.
func New(kind Kind) *Event {
	return &Event{Version: Version, Time: time.Now().UTC(), Kind: kind}
}

// times is how often the event happened.
func (e *Event) times() int { return max(e.Count, 1) }

// Sink takes events. Emit may be called by several goroutines at once, does not
// change the event and does not keep it; it cannot fail, because nothing that
// happens in a sandbox may depend on whether it could be recorded.
type Sink interface {
	Emit(e *Event)
}

// Multi passes each event to several sinks, in order.
type Multi []Sink

var _ Sink = Multi(nil)

// Emit implements Sink.
func (m Multi) Emit(e *Event) {
	for _, s := range m {
		s.Emit(e)
	}
}
