package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Monitor tells what a command asks for and does not get. What the broker denies
// is certain. What the mounts do not show is found out by holding every path
// that the command names against the Spec, which is advice: nothing is decided
// by it.
type Monitor struct {
	observer Observer
	record   *sandbox.Record
	voice    Voice
	json     *event.Writer // nil: text
	held     bool          // until the end, because the command has the terminal
	silent   bool          // somebody else tells of it, by Summary

	mu    sync.Mutex
	told  []event.Event
	index map[told]int    // into told
	paths map[string]bool // that something was told of
	needs []learn.Need
	rest  int           // distinct events that were not kept
	execs []event.Event // that are held
}

// Silence has it say nothing: somebody tells of it by Summary.
func (m *Monitor) Silence() { m.silent = true }

// told is what makes two events equal.
type told struct {
	op         event.Op
	path, rule string
	host       string
	port       int
	method     string
	limit      string
}

func toldBy(e *event.Event) told {
	host := e.Host
	if host == "" {
		host = e.Address
	}
	return told{e.Op, e.Path, e.Rule, host, e.Port, e.Method, e.Limit}
}

// maxTold bounds how many distinct events are told of.
const maxTold = 1000

// Voice is how a monitor says something to a person.
type Voice struct {
	// Warn says what was denied, and Note what may be done about it.
	Warn, Note func(text string)
}

// New is the monitor of a run that keeps its record in r. It writes JSON to stderr, or
// speaks.
func New(r *sandbox.Record, v Voice, asJSON bool) *Monitor {
	m := &Monitor{record: r, voice: v, index: map[told]int{}, paths: map[string]bool{}}
	if asJSON {
		m.json = event.NewWriter(os.Stderr)
	}
	return m
}

// Watch makes a Spec observable. Lines on a terminal that the command uses as
// well would end up in the middle of its own, and of a full-screen program's
// picture, so they are held.
func (m *Monitor) Watch(s *spec.Spec, tty *terminal.Session) error {
	m.held = tty != nil && tty.Streams[2]
	var err error
	m.observer.Judge, err = learn.NewJudge(s)
	MakeObservable(s)
	return err
}

// Observe takes a call before it is performed. Several threads call it. Of each
// path that it lacks something of, one thing is told: the file's own path, and
// those of the interpreters that a script needs.
func (m *Monitor) Observe(o broker.Observation) {
	if o.Op == "exec" {
		m.executed(o)
	}
	told := ""
	needs := m.observer.Lacks(o)
	for i := range needs {
		n := &needs[i]
		if n.Brokered || n.Path == told {
			continue // the broker will say so, or it was said
		}
		told = n.Path
		e := event.Event{Op: event.Op(o.Op), Path: n.Path, Rule: n.Rule()}
		if m.again(&e) {
			continue
		}
		full := m.record.NewDenial(o.Pid, broker.ProcessName(o.Pid))
		full.Op, full.Path, full.Rule, full.Fix = e.Op, e.Path, e.Rule, m.fix(n)
		m.record.Log(full)
		m.tell(full, n)
	}
}

// executed tells programs that read along of a program that is about to be executed.
// Who looks for one in several directories tries names of which nothing is there.
func (m *Monitor) executed(o broker.Observation) {
	if m.json == nil || m.silent {
		return
	}
	if _, exists := (HostFiles{}).Look(o.Path); !exists {
		return
	}
	e := m.record.NewExec(o.Pid, broker.ProcessName(o.Pid))
	e.Path, e.Argv = o.Path, o.Argv
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.held:
		m.json.Emit(e)
	case len(m.execs) < maxTold:
		m.execs = append(m.execs, *e.Bounded())
	}
}

// ended tells them how the command has ended.
func (m *Monitor) ended(e *event.Event) {
	if m.json != nil && !m.silent {
		m.json.Emit(e)
	}
}

// fix is the flag that would allow it, if one would.
func (m *Monitor) fix(n *learn.Need) string {
	switch {
	case n.Fix != "":
		return n.Fix + " " + plain.Word(m.record.Short(n.Path))
	case n.Denied != "" || n.Vain:
		return ""
	case filepath.Dir(n.Grant) == "/" || n.Grant == RealHome():
		// Nobody should grant all of it. What is there by itself can be granted.
		if n.Op != "create" && n.Op != "mkdir" {
			return ""
		}
		return "make it outside first, and then " + grantFlag(true) + plain.Word(m.record.Short(n.Path))
	}
	return grantFlag(n.Change) + plain.Word(m.record.Short(n.Grant))
}

func grantFlag(write bool) string {
	if write {
		return "--allow-write "
	}
	return "--allow-read "
}

// Denied takes what the broker refused, or the gate.
func (m *Monitor) Denied(e *event.Event) {
	if !m.again(e) {
		m.tell(e, nil)
	}
}

// Network takes what the network gate tells. What it let through is for programs
// that read along.
func (m *Monitor) Network(e *event.Event) {
	if e.Kind == event.Deny || e.Kind == event.Limit {
		m.Denied(e)
		return
	}
	if m.json != nil && !m.silent {
		m.json.Emit(e)
	}
}

// again counts an event that was told already. A look at what was told of for
// another reason is not worth a line.
func (m *Monitor) again(e *event.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, known := m.index[toldBy(e)]
	if known {
		m.told[i].Count = max(m.told[i].Count, 1) + 1
	}
	return known || e.Op == "stat" && m.paths[e.Path]
}

// tell keeps an event and, unless it is held, shows it.
func (m *Monitor) tell(e *event.Event, n *learn.Need) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := toldBy(e)
	if _, known := m.index[key]; known {
		return // another thread was faster
	}
	if len(m.told) == maxTold {
		m.rest++
		return
	}
	m.index[key] = len(m.told)
	m.paths[e.Path] = true
	m.told = append(m.told, *e)
	if n != nil {
		m.needs = append(m.needs, *n)
	}
	if !m.held && !m.silent {
		m.print(e)
	}
}

func (m *Monitor) print(e *event.Event) {
	if m.json != nil {
		m.json.Emit(e)
		return
	}
	shown := *e
	shown.Sandbox, shown.Path = "", m.record.Short(e.Path)
	m.voice.Warn(shown.Text())
}

// Show ends the monitoring: what was held, what happened more than once, and
// the flags that would have allowed it all.
func (m *Monitor) Show() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		return
	}
	for i := range m.execs {
		m.json.Emit(&m.execs[i])
	}
	for i := range m.told {
		switch e := m.told[i]; {
		case m.held:
			m.print(&e)
		case e.Count > 1:
			if m.json != nil {
				e.Count-- // one was written when it happened
			}
			e.Fix = "" // it was said
			m.print(&e)
		}
	}
	if m.json != nil {
		return
	}
	if m.rest > 0 {
		m.voice.Warn(fmt.Sprintf("and %d more", m.rest))
	}
	if text := m.advice(); text != "" {
		m.voice.Note("to allow what was not granted: " + text)
	}
}

// Summary is what a person should know of a silent monitor, each thing once.
func (m *Monitor) Summary() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := slices.Clone(m.told)
	for i := range shown {
		shown[i].Path = m.record.Short(shown[i].Path)
	}
	return event.Summary(shown)
}

// advice is as few flags as a proposal has entries.
func (m *Monitor) advice() string {
	const most = 8
	p := learn.Propose(m.needs, learn.Options{Home: RealHome(), Project: m.record.Dir(), Files: HostFiles{}})
	var words []string
	for _, g := range p.Read {
		words = append(words, grantFlag(false)+plain.Word(m.record.Short(g.Path)))
	}
	for _, g := range p.Write {
		words = append(words, grantFlag(true)+plain.Word(m.record.Short(g.Path)))
	}
	if len(words) > most {
		return "see what bailey learn proposes"
	}
	return strings.Join(words, " ")
}
