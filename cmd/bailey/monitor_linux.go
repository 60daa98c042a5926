package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// monitor tells what a command asks for and does not get. What the broker denies
// is certain. What the mounts do not show is found out by holding every path
// that the command names against the Spec, which is advice: nothing is decided
// by it.
type monitor struct {
	observer
	report *report
	json   *event.Writer // nil: text
	held   bool          // until the end, because the command has the terminal
	silent bool          // somebody else tells of it, by summary

	mu    sync.Mutex
	told  []event.Event
	index map[told]int    // into told
	paths map[string]bool // that something was told of
	needs []learn.Need
	rest  int // distinct events that were not kept
}

// told is what makes two events equal.
type told struct {
	op         event.Op
	path, rule string
	host       string
	port       int
	method     string
}

func toldBy(e *event.Event) told {
	host := e.Host
	if host == "" {
		host = e.Address
	}
	return told{e.Op, e.Path, e.Rule, host, e.Port, e.Method}
}

// maxTold bounds how many distinct events are told of.
const maxTold = 1000

func newMonitor(r *report, asJSON bool) *monitor {
	m := &monitor{report: r, index: map[told]int{}, paths: map[string]bool{}}
	if asJSON {
		m.json = event.NewWriter(os.Stderr)
	}
	return m
}

// watch makes a Spec observable. Lines on a terminal that the command uses as
// well would end up in the middle of its own, and of a full-screen program's
// picture, so they are held.
func (m *monitor) watch(s *spec.Spec, tty *terminal.Session) error {
	m.held = tty != nil && tty.Streams[2]
	var err error
	m.judge, err = learn.NewJudge(s)
	makeObservable(s)
	return err
}

// makeObservable has the kernel tell about every call that names a file.
func makeObservable(s *spec.Spec) {
	if s.Broker == nil {
		s.Broker = &spec.Broker{Sockets: spec.Sockets{All: true}}
	}
	s.Broker.Observe = true
}

// observe takes a call before it is performed. Several threads call it. Of each
// path that it lacks something of, one thing is told: the file's own path, and
// those of the interpreters that a script needs.
func (m *monitor) observe(o broker.Observation) {
	told := ""
	needs := m.lacks(o)
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
		full := m.report.NewDenial(o.Pid, broker.ProcessName(o.Pid))
		full.Op, full.Path, full.Rule, full.Fix = e.Op, e.Path, e.Rule, m.fix(n)
		m.report.Log(full)
		m.tell(full, n)
	}
}

// fix is the flag that would allow it, if one would.
func (m *monitor) fix(n *learn.Need) string {
	switch {
	case n.Fix != "":
		return n.Fix + " " + plain.Word(m.report.Short(n.Path))
	case n.Denied != "" || filepath.Dir(n.Grant) == "/" || n.Grant == realHome():
		return ""
	}
	return grantFlag(n.Change) + plain.Word(m.report.Short(n.Grant))
}

func grantFlag(write bool) string {
	if write {
		return "--allow-write "
	}
	return "--allow-read "
}

// denied takes what the broker refused.
func (m *monitor) denied(e *event.Event) {
	if !m.again(e) {
		m.tell(e, nil)
	}
}

// network takes what the network gate tells. What it let through is for programs
// that read along.
func (m *monitor) network(e *event.Event) {
	if e.Kind == event.Deny {
		m.denied(e)
		return
	}
	if m.json != nil && !m.silent {
		m.json.Emit(e)
	}
}

// again counts an event that was told already. A look at what was told of for
// another reason is not worth a line.
func (m *monitor) again(e *event.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, known := m.index[toldBy(e)]
	if known {
		m.told[i].Count = max(m.told[i].Count, 1) + 1
	}
	return known || e.Op == "stat" && m.paths[e.Path]
}

// tell keeps an event and, unless it is held, shows it.
func (m *monitor) tell(e *event.Event, n *learn.Need) {
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

func (m *monitor) print(e *event.Event) {
	if m.json != nil {
		m.json.Emit(e)
		return
	}
	shown := *e
	shown.Sandbox, shown.Path = "", m.report.Short(e.Path)
	say(tagWarning, shown.Text())
}

// show ends the monitoring: what was held, what happened more than once, and
// the flags that would have allowed it all.
func (m *monitor) show() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		return
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
		say(tagWarning, fmt.Sprintf("and %d more", m.rest))
	}
	if text := m.advice(); text != "" {
		say(tagNote, "to allow what was not granted: "+text)
	}
}

// summary is what a person should know of a silent monitor, each thing once.
func (m *monitor) summary() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := slices.Clone(m.told)
	for i := range shown {
		shown[i].Path = m.report.Short(shown[i].Path)
	}
	return event.Summary(shown)
}

// advice is as few flags as a proposal has entries.
func (m *monitor) advice() string {
	const most = 8
	p := learn.Propose(m.needs, learn.Options{Home: realHome(), Project: m.report.Dir(), Files: hostFiles{}})
	var words []string
	for _, g := range p.Read {
		words = append(words, grantFlag(false)+plain.Word(m.report.Short(g.Path)))
	}
	for _, g := range p.Write {
		words = append(words, grantFlag(true)+plain.Word(m.report.Short(g.Path)))
	}
	if len(words) > most {
		return "see what bailey learn proposes"
	}
	return strings.Join(words, " ")
}

// observer finds out what calls lack, each once.
type observer struct {
	judge *learn.Judge

	mu       sync.Mutex
	harmless map[look]bool
	lacking  map[look][]learn.Need
	full     bool // something lacked that is not in it
}

// look is what makes two calls equal.
type look struct {
	op, path    string
	write, gone bool
}

// maxLooks bounds what is remembered of calls: that lack nothing, and that lack
// something.
const maxLooks = 1 << 16

// lacks returns what a call lacks. Its program is named if that is something.
func (b *observer) lacks(o broker.Observation) []learn.Need {
	key := look{o.Op, o.Path, o.Write, o.Gone}
	b.mu.Lock()
	needs, known := b.lacking[key]
	known = known || b.harmless[key]
	b.mu.Unlock()
	if known {
		return needs
	}
	needs = b.judge.Needs(learn.Call{Op: o.Op, Path: o.Path, Write: o.Write, Gone: o.Gone}, hostFiles{})
	if len(needs) > 0 {
		program := broker.ProcessName(o.Pid)
		for i := range needs {
			needs[i].Program = program
		}
	}
	b.remember(key, needs)
	return needs
}

func (b *observer) remember(key look, needs []learn.Need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(needs) == 0:
		if b.harmless == nil || len(b.harmless) >= maxLooks {
			b.harmless = map[look]bool{}
		}
		b.harmless[key] = true
	case len(b.lacking) >= maxLooks:
		b.full = true
	default:
		if b.lacking == nil {
			b.lacking = map[look][]learn.Need{}
		}
		b.lacking[key] = needs
	}
}

// all returns everything that was lacked.
func (b *observer) all() []learn.Need {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []learn.Need
	for _, needs := range b.lacking {
		out = append(out, needs...)
	}
	return out
}

// hostFiles are the files of the machine, as this process sees them.
type hostFiles struct{}

var _ learn.Files = hostFiles{}

// Look implements learn.Files. A link that leads nowhere is nothing.
func (hostFiles) Look(path string) (learn.File, bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return learn.File{}, false
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	var buf [unix.PathMax]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil || unix.Fstat(fd, &st) != nil {
		return learn.File{}, false
	}
	return learn.File{Real: string(buf[:n]), Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, true
}

// Names implements learn.Files. Of a directory with very many, some.
func (hostFiles) Names(dir string) []string {
	const most = 4096
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(most) // what could be read is better than nothing
	return names
}

// Interpreter implements learn.Files.
func (hostFiles) Interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [256]byte // as much as the kernel looks at
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil || n < 2 || buf[0] != '#' || buf[1] != '!' {
		return ""
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	name, _ := command.Shebang(line)
	return name
}
