package top

import (
	"slices"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// model is what the screen shows.
type model struct {
	boxes    []row
	selected int // process 1 of a sandbox, 0 if there is none
	page     page
	inside   *keeper.Inside // of the selected sandbox; nil if that is not known yet
	event    int            // number of the selected one, 0 for the latest
	question *question      // which must be answered first
	message  string
}

// row is a sandbox, and which part of a processor it used since the last look.
type row struct {
	keeper.Box
	share float64
}

type page int

const (
	pageList page = iota
	pageInside
	pageHelp
)

// question is asked before something is done that cannot be undone.
type question struct {
	text   string
	action action
}

// action is what a key asks for that the model cannot do itself.
type action struct {
	kind   actionKind
	name   string // of the sandbox
	pid    int    // of its process 1
	single int    // the bailey process it belongs to, if it is for a single command
	number int    // of the denial to allow
	what   string // is allowed, for people
}

type actionKind int

const (
	nothing actionKind = iota
	quit
	suspend
	redraw
	look // at another sandbox
	stop
	allow
)

// news is what the keeper says.
type news struct {
	boxes  []keeper.Box
	pid    int // of the sandbox that was looked into
	inside *keeper.Inside
	err    error
}

// take brings the model up to date.
func (m *model) take(n news) {
	if n.err != nil {
		m.message = n.err.Error()
		return
	}
	rows := make([]row, len(n.boxes))
	for i, b := range n.boxes {
		rows[i] = row{b, m.share(&b)}
	}
	before := m.index()
	m.boxes = rows
	if m.index() < 0 {
		m.lost(before)
	}
	if n.pid == m.selected {
		m.inside = n.inside
	}
}

// share is what a sandbox used of a processor since the last look, or before
// there was one, since it began.
func (m *model) share(b *keeper.Box) float64 {
	used, over := b.CPU, b.Age
	if i := slices.IndexFunc(m.boxes, func(r row) bool { return r.Pid == b.Pid }); i >= 0 {
		last := &m.boxes[i]
		used, over = b.CPU-last.CPU, b.Age-last.Age
	}
	return max(float64(used)/float64(max(over, 1)), 0)
}

// index is the place of the selected sandbox, -1 if it is not there.
func (m *model) index() int {
	return slices.IndexFunc(m.boxes, func(r row) bool { return r.Pid == m.selected })
}

// lost selects another sandbox, because the one at that place has ended.
func (m *model) lost(at int) {
	if m.selected != 0 {
		m.page, m.question = min(m.page, pageList), nil
	}
	m.selectAt(at)
}

// selectAt selects the sandbox at a place, or the nearest to it.
func (m *model) selectAt(i int) {
	pid := 0
	if len(m.boxes) > 0 {
		pid = m.boxes[min(max(i, 0), len(m.boxes)-1)].Pid
	}
	if pid != m.selected {
		m.selected, m.inside, m.event = pid, nil, 0
	}
}

// current is the selected sandbox, or nil.
func (m *model) current() *row {
	if i := m.index(); i >= 0 {
		return &m.boxes[i]
	}
	return nil
}

// press does what a key is for.
func (m *model) press(k key) action {
	m.message = ""
	switch {
	case k == keyInterrupt:
		return action{kind: quit}
	case k == keySuspend:
		return action{kind: suspend}
	case k == keyRedraw:
		return action{kind: redraw}
	case m.question != nil:
		return m.answer(k)
	case m.page == pageHelp:
		m.page = pageList
		return action{}
	}
	switch k {
	case 'q':
		return action{kind: quit}
	case '?', 'h':
		m.page = pageHelp
	case keyEnter, 'i':
		if m.current() != nil {
			m.page = pageInside
		}
	case keyEscape:
		m.page = pageList
	case 's':
		m.askToStop()
	case 'a':
		m.askToAllow()
	default:
		return m.move(k)
	}
	return action{}
}

// answer takes y for yes, and everything else for no.
func (m *model) answer(k key) action {
	q := m.question
	m.question = nil
	if k == 'y' || k == 'Y' {
		return q.action
	}
	m.message = "nothing was done"
	return action{}
}

// steps is how far keys go. A page is a guess: the screen scrolls along.
var steps = map[key]int{
	keyUp: -1, 'k': -1, keyDown: 1, 'j': 1, keyPageUp: -10, keyPageDown: 10, keyHome: -1 << 20, 'g': -1 << 20, keyEnd: 1 << 20, 'G': 1 << 20,
}

// move selects another sandbox or, inside of one, another event.
func (m *model) move(k key) action {
	step, ok := steps[k]
	if !ok {
		return action{}
	}
	if m.page == pageInside {
		m.moveEvent(step)
		return action{}
	}
	m.selectAt(m.index() + step)
	return action{kind: look}
}

func (m *model) moveEvent(step int) {
	list := m.events()
	if len(list) == 0 {
		return
	}
	i := slices.IndexFunc(list, func(e event.Numbered) bool { return e.Number == m.event })
	m.event = list[min(max(max(i, 0)+step, 0), len(list)-1)].Number
}

// events are those of the selected sandbox, the latest first.
func (m *model) events() []event.Numbered {
	if m.inside == nil {
		return nil
	}
	list := slices.Clone(m.inside.Events)
	slices.Reverse(list)
	return list
}

// denials are the events that denied something.
func (m *model) denials() []event.Numbered {
	return slices.DeleteFunc(m.events(), func(e event.Numbered) bool { return e.Event.Kind != event.Deny })
}

// chosen is the event that keys are about: the selected one, or in the list of
// sandboxes the last denial.
func (m *model) chosen() *event.Numbered {
	list := m.denials()
	if m.page == pageInside {
		list = m.events()
		if i := slices.IndexFunc(list, func(e event.Numbered) bool { return e.Number == m.event }); i >= 0 {
			return &list[i]
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (m *model) askToStop() {
	b := m.current()
	if b == nil {
		return
	}
	m.question = &question{"stop " + b.Name + " and everything in it? y/n", action{kind: stop, name: b.Name, pid: b.Pid, single: b.Launcher}}
}

// askToAllow asks, or if a sandbox that stands cannot be allowed it, says what
// could.
func (m *model) askToAllow() {
	b, e := m.current(), m.chosen()
	switch {
	case b == nil:
		return
	case e == nil || e.Event.Kind != event.Deny:
		m.message = "nothing was denied here"
	case b.Launcher == 0 && keeper.CanAllow(&e.Event):
		what := keeper.Grant(&e.Event)
		m.question = &question{"let " + b.Name + " reach " + what + "? y/n", action{kind: allow, name: b.Name, pid: b.Pid, number: e.Number, what: what}}
	case e.Event.Fix == "":
		m.message = "no flag would allow this: " + plain.Text(e.Event.Rule)
	case b.Launcher != 0:
		m.message = "to allow: " + plain.Text(e.Event.Fix) + "; the command must be run again"
	default:
		m.message = "to allow: " + plain.Text(e.Event.Fix) + "; it needs a new sandbox: bailey box stop " + b.Name
	}
}
