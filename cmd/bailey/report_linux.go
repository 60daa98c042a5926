package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// report collects what was denied, for the end of the run and for the audit log.
// Nothing is made until there is something.
type report struct {
	once    sync.Once
	fold    event.Fold
	audit   event.Audit
	sandbox string
	dir     string   // paths below it are shown relative to it
	monitor *monitor // if not nil, it tells about denials as they happen
	// connections are those that the network gate let through, and refused those
	// that it did not.
	connections, refused atomic.Int64
}

func (r *report) begin() {
	r.sandbox = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.Itoa(os.Getpid())
	r.dir, _ = os.Getwd() // without it paths stay absolute
	home, _ := os.UserHomeDir()
	r.audit.Dir = event.AuditDir(sandbox.StateHome(home))
}

// denied takes a call that the broker refused. Several threads call it.
func (r *report) denied(d broker.Denial) { r.deniedTo(d, broker.ProcessName(d.Pid)) }

// deniedTo is denied for a process whose name is known.
func (r *report) deniedTo(d broker.Denial, process string) {
	r.once.Do(r.begin)
	e := d.Event(r.sandbox, process)
	if strings.HasPrefix(d.Fix, "--") {
		e.Fix = d.Fix + " " + plain.Word(r.short(d.Path))
	}
	r.audit.Emit(e)
	if r.monitor != nil {
		r.monitor.denied(e)
		return
	}
	shown := *e
	shown.Path = r.short(e.Path)
	r.fold.Emit(&shown)
}

// network takes what the network gate tells.
func (r *report) network(e *event.Event) {
	r.once.Do(r.begin)
	e.Sandbox = r.sandbox
	r.audit.Emit(e)
	r.count(e)
	if r.monitor != nil {
		r.monitor.network(e)
		return
	}
	r.fold.Emit(e) // what it denied
}

// count counts connections, for --stats.
func (r *report) count(e *event.Event) {
	switch e.Kind {
	case event.Connection:
		r.connections.Add(int64(max(e.Count, 1)))
	case event.Deny:
		r.refused.Add(int64(max(e.Count, 1)))
	}
}

// newEvent returns a denial of this sandbox.
func (r *report) newEvent(pid int, process string) *event.Event {
	r.once.Do(r.begin)
	e := event.New(event.Deny)
	e.Sandbox, e.Pid, e.Process = r.sandbox, pid, process
	return e
}

// short is a path as the person at the terminal would name it.
func (r *report) short(path string) string {
	if rest, ok := strings.CutPrefix(path, r.dir+"/"); ok && r.dir != "" {
		return rest
	}
	return path
}

// show says at the end what was denied, each thing once.
func (r *report) show() {
	for _, line := range r.fold.Summary() {
		say(tagWarning, line)
	}
}
