package engine

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// record keeps what was denied, for the end of the run and for the audit log. Nothing is
// made until there is something.
type record struct {
	once    sync.Once
	fold    event.Fold
	audit   event.Audit
	sandbox string
	dir     string // paths below it are shown relative to it
}

func (r *record) begin() {
	r.sandbox = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.Itoa(os.Getpid())
	r.dir, _ = os.Getwd() // without it paths stay absolute
	home, _ := os.UserHomeDir()
	r.audit.Dir = event.AuditDir(sandbox.StateHome(home))
}

// denied takes a call that the broker refused. Several threads call it.
func (r *record) denied(d broker.Denial) {
	r.once.Do(r.begin)
	e := d.Event(r.sandbox, broker.ProcessName(d.Pid))
	if strings.HasPrefix(d.Fix, "--") {
		e.Fix = d.Fix + " " + plain.Word(r.short(d.Path))
	}
	r.audit.Emit(e)
	shown := *e
	shown.Path = r.short(e.Path)
	r.fold.Emit(&shown)
}

// network takes what the network gate tells.
func (r *record) network(e *event.Event) {
	r.once.Do(r.begin)
	e.Sandbox = r.sandbox
	r.audit.Emit(e)
	r.fold.Emit(e)
}

// short is a path as the person at the terminal would name it.
func (r *record) short(path string) string {
	if rest, ok := strings.CutPrefix(path, r.dir+"/"); ok && r.dir != "" {
		return rest
	}
	return path
}
