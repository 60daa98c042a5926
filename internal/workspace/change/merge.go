package change

import (
	"bytes"
	"slices"

	"znkr.io/diff"
)

// Merge puts together what two made of one text. Where both changed the same
// lines, or lines that touch, it is a conflict: then the result has both versions
// with marks around them, as git writes them.
func Merge(base, ours, theirs []byte) (merged []byte, conflict bool) {
	b := lines(base)
	m := merger{base: b, ours: edits(b, lines(ours)), theirs: edits(b, lines(theirs))}
	m.run()
	return m.out.Bytes(), m.conflict
}

func lines(text []byte) []string {
	var list []string
	for line := range bytes.Lines(text) {
		list = append(list, string(line))
	}
	return list
}

// edit replaces lines [from, to) of the base.
type edit struct {
	from, to int
	lines    []string
}

func edits(base, other []string) (list []edit) {
	for _, h := range diff.Hunks(base, other, diff.Context(0)) {
		list = append(list, edit{h.PosX, h.EndX, other[h.PosY:h.EndY]})
	}
	return list
}

type merger struct {
	base         []string
	ours, theirs []edit
	at           int // how far the base is used up
	out          bytes.Buffer
	conflict     bool
}

func (m *merger) run() {
	for len(m.ours)+len(m.theirs) > 0 {
		from, to, ours, theirs := m.next()
		m.write(m.base[m.at:from])
		m.at = to
		x, y := m.apply(from, to, ours), m.apply(from, to, theirs)
		switch {
		case len(theirs) == 0 || slices.Equal(x, y):
			m.write(x)
		case len(ours) == 0:
			m.write(y)
		default:
			m.clash(x, y)
		}
	}
	m.write(m.base[m.at:])
}

// next takes the first edit, and all of both sides that overlap or touch what is
// taken so far.
func (m *merger) next() (from, to int, ours, theirs []edit) {
	from, to = len(m.base)+1, -1
	take := func(list *[]edit, into *[]edit) bool {
		if len(*list) == 0 {
			return false
		}
		e := (*list)[0]
		if to >= 0 && e.from > to {
			return false
		}
		from, to = min(from, e.from), max(to, e.to)
		*into, *list = append(*into, e), (*list)[1:]
		return true
	}
	if len(m.theirs) == 0 || len(m.ours) > 0 && m.ours[0].from <= m.theirs[0].from {
		take(&m.ours, &ours)
	} else {
		take(&m.theirs, &theirs)
	}
	for take(&m.ours, &ours) || take(&m.theirs, &theirs) {
	}
	return from, to, ours, theirs
}

// apply is a part of the base as one side has it.
func (m *merger) apply(from, to int, list []edit) (out []string) {
	for _, e := range list {
		out = append(append(out, m.base[from:e.from]...), e.lines...)
		from = e.to
	}
	return append(out, m.base[from:to]...)
}

func (m *merger) write(list []string) {
	for _, line := range list {
		m.out.WriteString(line)
	}
}

func (m *merger) clash(ours, theirs []string) {
	m.conflict = true
	m.out.WriteString("<<<<<<< workspace\n")
	m.write(ended(ours))
	m.out.WriteString("=======\n")
	m.write(ended(theirs))
	m.out.WriteString(">>>>>>> directory\n")
}

// ended sees to it that a mark begins a line of its own.
func ended(list []string) []string {
	if n := len(list); n > 0 && list[n-1][len(list[n-1])-1] != '\n' {
		list = slices.Clone(list)
		list[n-1] += "\n"
	}
	return list
}
