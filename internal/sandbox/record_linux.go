package sandbox

import (
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Record keeps what was denied in a sandbox, for the end of the run and for the
// audit log. Nothing is made until there is something, so that a command of which
// there is nothing to tell leaves no trace. Several threads use it.
type Record struct {
	fold  event.Fold
	once  sync.Once
	audit event.Audit
	name  string // of the sandbox
	dir   string
	begun atomic.Bool

	// The command of a run, if it is one of a sandbox of its own.
	argv    []string
	program string
	since   time.Time
}

// Of says which command the record is about, before it is started. Whatever is
// recorded first is then preceded by the start of the command. The Spec must not
// change any more.
func (r *Record) Of(s *spec.Spec) {
	if len(s.Argv) == 0 {
		return
	}
	r.argv, r.program, r.since = s.Argv, s.Argv[0], time.Now()
	if len(s.Exec) == 1 {
		r.program = s.Exec[0]
	}
}

func (r *Record) begin() {
	r.name = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.Itoa(os.Getpid())
	r.dir, _ = os.Getwd() // without it paths stay absolute
	home, _ := os.UserHomeDir()
	r.audit.Dir = event.AuditDir(StateHome(home))
	r.begun.Store(true)
	if len(r.argv) > 0 {
		e := r.ofCommand(event.Exec)
		e.Time, e.Path, e.Argv = r.since.UTC(), r.program, r.argv
		r.audit.Emit(e)
	}
}

func (r *Record) ofCommand(kind event.Kind) *event.Event {
	e := event.New(kind)
	e.Sandbox, e.Process = r.name, path.Base(r.argv[0])
	return e
}

// HasAny says whether anything was recorded.
func (r *Record) HasAny() bool { return r.begun.Load() }

// End records how the command has ended, and returns that. The status is negative if
// it has none; the signal is then the one that ended it, or "" if that is not known.
func (r *Record) End(status int, signal string) *event.Event {
	if len(r.argv) == 0 {
		return nil
	}
	r.once.Do(r.begin)
	e := r.ofCommand(event.Exit)
	e.Signal, e.Duration = signal, time.Since(r.since)
	if status >= 0 {
		e.Status = &status
	}
	r.audit.Emit(e)
	return e
}

// Dir is the working directory, below which paths are shown relative to it, once
// there is something.
func (r *Record) Dir() string { return r.dir }

// Log writes an event of the sandbox to the audit log.
func (r *Record) Log(e *event.Event) {
	r.once.Do(r.begin)
	e.Sandbox = r.name
	r.audit.Emit(e)
}

// NewExec returns an event of the sandbox about a program that a process executes.
func (r *Record) NewExec(pid int, process string) *event.Event {
	r.once.Do(r.begin)
	e := event.New(event.Exec)
	e.Sandbox, e.Pid, e.Process = r.name, pid, process
	return e
}

// NewDenial returns an event of the sandbox about something that a process was
// denied.
func (r *Record) NewDenial(pid int, process string) *event.Event {
	r.once.Do(r.begin)
	e := event.New(event.Deny)
	e.Sandbox, e.Pid, e.Process = r.name, pid, process
	return e
}

// LogDenial writes to the audit log that the broker refused a call of a process.
func (r *Record) LogDenial(d broker.Denial, process string) *event.Event {
	r.once.Do(r.begin)
	e := d.Event(r.name, process)
	if spec.LacksPath(d.Fix) {
		e.Fix = d.Fix + " " + plain.Word(r.Short(d.Path))
	}
	r.audit.Emit(e)
	return e
}

// Keep keeps an event for the end of the run, if that says something of it.
func (r *Record) Keep(e *event.Event) {
	shown := *e
	shown.Path = r.Short(e.Path)
	r.fold.Emit(&shown)
}

// Summary is what the end of the run says, each thing once.
func (r *Record) Summary() []string { return r.fold.Summary() }

// Short is a path as the person at the terminal would name it.
func (r *Record) Short(file string) string {
	if rest, ok := strings.CutPrefix(file, r.dir+"/"); ok && r.dir != "" {
		return rest
	}
	return file
}
