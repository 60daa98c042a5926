package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
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
}

func (r *report) begin() {
	r.sandbox = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.Itoa(os.Getpid())
	r.dir, _ = os.Getwd() // without it paths stay absolute
	home, _ := os.UserHomeDir()
	r.audit.Dir = event.AuditDir(sandbox.StateHome(home))
}

// denied takes a call that the broker refused. Several threads call it.
func (r *report) denied(d broker.Denial) {
	e := r.newEvent(d.Pid)
	e.Op, e.Path, e.Argv, e.Rule, e.Where, e.Fix = event.Op(d.Op), d.Path, d.Argv, d.Why, d.Where, d.Fix
	if strings.HasPrefix(d.Fix, "--") {
		e.Fix = d.Fix + " " + event.Printable(r.short(d.Path))
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

// newEvent returns a denial of this sandbox.
func (r *report) newEvent(pid int) *event.Event {
	r.once.Do(r.begin)
	e := event.New(event.Deny)
	e.Sandbox, e.Pid, e.Process = r.sandbox, pid, processName(pid)
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

// processName is the name of the program that a thread belongs to, as the kernel
// has it: threads often have names of their own.
func processName(thread int) string {
	status := readProc(thread, "status")
	if _, rest, ok := strings.Cut(status, "\nTgid:\t"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		if pid, err := strconv.Atoi(line); err == nil {
			thread = pid
		}
	}
	return strings.TrimSuffix(readProc(thread, "comm"), "\n")
}

// readProc returns the beginning of a file about a process, or "" if that is
// gone.
func readProc(pid int, name string) string {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [256]byte
	n, _ := unix.Read(fd, buf[:])
	return string(buf[:max(n, 0)])
}
