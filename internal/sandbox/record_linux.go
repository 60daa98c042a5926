package sandbox

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Record keeps what was denied in a sandbox, for the end of the run and for the
// audit log. Nothing is made until there is something. Several threads use it.
type Record struct {
	fold  event.Fold
	once  sync.Once
	audit event.Audit
	name  string // of the sandbox
	dir   string
}

func (r *Record) begin() {
	r.name = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.Itoa(os.Getpid())
	r.dir, _ = os.Getwd() // without it paths stay absolute
	home, _ := os.UserHomeDir()
	r.audit.Dir = event.AuditDir(StateHome(home))
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
func (r *Record) Short(path string) string {
	if rest, ok := strings.CutPrefix(path, r.dir+"/"); ok && r.dir != "" {
		return rest
	}
	return path
}
