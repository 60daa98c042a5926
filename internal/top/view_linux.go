package top

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// line is one of the screen.
type line struct {
	text  string
	style style
}

// style sets a line off from others.
type style string

const (
	ordinary style = ""
	bold     style = "\x1b[1m"
	marked   style = "\x1b[7m"
	plainly        = "\x1b[0m"
)

const helpText = `up, down, k, j      select a sandbox or, inside of one, an event
Page Up, Page Down  ten at once; Home, End, g, G: the first, the last
Enter, i            inspect: policy in short, processes, recent events
Escape              back to the list
a                   allow what the selected denial names, in the list the last
                    one: a connection in the sandbox that stands, until it ends
                    or its rules are loaded again; of other denials it says
                    which flag or which line of the policy would allow them
s                   stop the sandbox and everything in it
q, Ctrl-C           quit; the sandboxes stay

any key goes back`

// view returns the whole screen: as many lines as it is high, none wider than it
// is.
func (m *model) view(width, height int) []line {
	if width <= 0 || height <= 0 {
		return nil
	}
	foot := m.foot(width)
	room := max(height-len(foot), 0)
	var lines []line
	switch b := m.current(); {
	case m.page == pageHelp:
		lines = help()
	case m.page == pageInside && b != nil:
		lines = m.viewInside(b, width, room)
	default:
		lines = m.viewList(room)
	}
	for len(lines) < room {
		lines = append(lines, line{})
	}
	lines = append(lines[:room], foot...)
	lines = lines[len(lines)-height:]
	for i := range lines {
		lines[i].text = cut(lines[i].text, width)
	}
	return lines
}

// foot is the last lines: what is asked or was said, in full, and the keys.
func (m *model) foot(width int) []line {
	keys := "arrows select  enter inspect  a allow  s stop  ? help  q quit"
	if m.page == pageInside {
		keys = "arrows select  esc back  a allow  s stop  ? help  q quit"
	}
	if m.question != nil {
		return append(wrap(m.question.text, marked, width), line{"y yes  any other key no", bold})
	}
	return append(wrap(oneLine(m.message), ordinary, width), line{keys, bold})
}

// wrap breaks a text into lines, wherever the edge is: what it names may be a
// single word that is longer.
func wrap(text string, style style, width int) []line {
	letters := []rune(text)
	lines := []line{}
	for len(letters) > width {
		lines = append(lines, line{string(letters[:width]), style})
		letters = letters[width:]
	}
	return append(lines, line{string(letters), style})
}

func help() []line {
	lines := []line{{"bailey box top: keys", bold}, {}}
	for text := range strings.SplitSeq(helpText, "\n") {
		lines = append(lines, line{text: text})
	}
	return lines
}

// viewList shows the sandboxes, and in what is left of the screen what the
// selected one was denied.
func (m *model) viewList(room int) []line {
	title := fmt.Sprintf("bailey box top: %d sandboxes", len(m.boxes))
	switch len(m.boxes) {
	case 0:
		return []line{{title, bold}, {}, {text: "none runs; to make one that stays: bailey --keep NAME -- CMD"}}
	case 1:
		title = "bailey box top: 1 sandbox"
	}
	rows := [][]string{{"NAME", "CPU", "MEMORY", "PROCESSES", "CONNECTIONS", "DENIED", "AGE", "COMMANDS"}}
	for i := range m.boxes {
		b := &m.boxes[i]
		rows = append(rows, []string{
			name(&b.Box), columns.Share(b.share), memory(&b.Box), fmt.Sprint(b.Processes), fmt.Sprint(b.Connections),
			fmt.Sprint(b.Denials), columns.Brief(b.Age), commands(&b.Box),
		})
	}
	text := columns.Align(rows)
	lines := []line{{title, bold}, {}, {"  " + text[0], bold}}
	denials := m.viewDenials(room / 3)
	for i, t := range window(text[1:], m.index(), room-len(lines)-len(denials)) {
		lines = append(lines, choose(t, i == m.index()))
	}
	return append(lines, denials...)
}

// viewDenials shows the last denials of the selected sandbox, with a line above
// them to keep them apart.
func (m *model) viewDenials(room int) []line {
	list := m.denials()
	b := m.current()
	if len(list) == 0 || b == nil || room < 3 {
		return nil
	}
	lines := []line{{}, {"denied in " + b.Name, bold}}
	for _, e := range list[:min(len(list), room-len(lines))] {
		lines = append(lines, line{text: "  " + moment(&e.Event)})
	}
	return lines
}

// viewInside shows one sandbox.
func (m *model) viewInside(b *row, width, room int) []line {
	title := fmt.Sprintf("%s in %s: process %d, %s old, %s of a processor, %s", name(&b.Box), plain.Text(b.Dir), b.Pid,
		columns.Brief(b.Age), columns.Share(b.share), memory(&b.Box))
	lines := []line{{title, bold}, {}}
	if m.inside == nil {
		return lines
	}
	if b.Launcher == 0 {
		lines = append(lines, line{"policy", bold})
		for _, text := range inShort(&m.inside.Spec) {
			lines = append(lines, line{text: "  " + text})
		}
	}
	lines = append(lines, m.viewProcesses((room-len(lines))/2)...)
	return append(lines, m.viewEvents(width, room-len(lines))...)
}

func (m *model) viewProcesses(room int) []line {
	lines := []line{{}, {"processes", bold}}
	rows := [][]string{}
	for _, p := range m.inside.Processes {
		rows = append(rows, []string{fmt.Sprint(p.Pid), columns.Size(p.Memory), fmt.Sprintf("%.2fs", p.CPU.Seconds()), oneLine(sandbox.Quote(p.Argv))})
	}
	text := columns.Align(rows)
	left := max(room-len(lines)-1, 1)
	for i, t := range text {
		if i == left {
			lines = append(lines, line{text: fmt.Sprintf("  and %d more", len(text)-left)})
			break
		}
		lines = append(lines, line{text: "  " + t})
	}
	return lines
}

// viewEvents shows the selected event in full: what would allow it stands at its end.
func (m *model) viewEvents(width, room int) []line {
	lines := []line{{}, {"recent events", bold}}
	list := m.events()
	at := 0
	var text []string
	for i := range list {
		if list[i].Number == m.event {
			at = i
		}
		text = append(text, string(list[i].Event.Kind)+" "+moment(&list[i].Event))
	}
	if len(text) == 0 {
		return append(lines, line{text: "  none"})
	}
	chosen := choose(text[at], true)
	whole := wrap(chosen.text, chosen.style, width)
	for i, t := range window(text, at, room-len(lines)-len(whole)+1) {
		if i == at {
			lines = append(lines, whole...)
			continue
		}
		lines = append(lines, choose(t, false))
	}
	return lines
}

// window yields as many of the texts as there is room for, the selected one among
// them, with their places.
func window(texts []string, selected, room int) func(func(int, string) bool) {
	room = max(room, 1)
	from := min(max(selected-room/2, 0), max(len(texts)-room, 0))
	to := min(from+room, len(texts))
	return func(yield func(int, string) bool) {
		for i := from; i < to; i++ {
			if !yield(i, texts[i]) {
				return
			}
		}
	}
}

// choose marks the selected line, for terminals that cannot turn colours round
// with a character as well.
func choose(text string, is bool) line {
	if is {
		return line{"> " + text, marked}
	}
	return line{text: "  " + text}
}

// moment is an event with its time.
func moment(e *event.Event) string {
	named := *e
	named.Sandbox = "" // whose it is stands above
	return e.Time.Local().Format("15:04:05") + " " + oneLine(named.Text())
}

func name(b *keeper.Box) string {
	if b.Leaving {
		return b.Name + "*"
	}
	return b.Name
}

func memory(b *keeper.Box) string {
	if b.Limits.Memory == 0 {
		return columns.Size(b.Memory)
	}
	return columns.Size(b.Memory) + "/" + columns.Size(b.Limits.Memory)
}

func commands(b *keeper.Box) string {
	var lines []string
	for _, argv := range b.Commands {
		lines = append(lines, oneLine(sandbox.Quote(argv)))
	}
	if lines == nil {
		return "-"
	}
	return strings.Join(lines, "; ")
}

// oneLine is text of a sandbox's that takes as many places as it has characters.
func oneLine(s string) string { return strings.ReplaceAll(plain.Text(s), "\t", " ") }

// cut shortens text that is too wide.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
