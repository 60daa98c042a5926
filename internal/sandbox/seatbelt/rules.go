package seatbelt

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// brokered denies what a broker denies on Linux while the command runs. In a layer
// the first rule that says something decides: so a denial is about what its pattern
// names without what rules before it allow. Nothing is allowed here, so that no
// rule about names can grant more than the mounts do.
func (w *writer) brokered() {
	if w.spec.Broker == nil {
		return
	}
	for _, layer := range w.spec.Broker.Layers {
		var readable, writable []string
		for i := range layer {
			r := &layer[i]
			if r.Read == spec.Allowed {
				readable = append(readable, w.exactly(r.Pattern))
			}
			if r.Write == spec.Allowed {
				writable = append(writable, w.exactly(r.Pattern))
			}
			if r.Read == spec.Denied || r.Write == spec.Denied {
				w.deniedBy(r, readable, writable)
			}
		}
	}
}

// deniedBy writes one denial. What cannot be read cannot be moved either: under
// another name it could.
func (w *writer) deniedBy(r *spec.PathRule, readable, writable []string) {
	d, err := w.denial(r.Pattern)
	if err != nil {
		return // Refuses has said so
	}
	var filters []string
	for _, expression := range d.expressions {
		filters = append(filters, w.regex(expression))
	}
	if r.Read == spec.Denied {
		w.deny(reading+" "+executing+" file-write-unlink", without(filters, readable)...)
	}
	if r.Write == spec.Denied {
		w.deny(writing, without(filters, writable)...)
	}
	var pins []string
	for _, p := range d.above {
		if pin := w.regex(folded(p) + "$"); !slices.Contains(pins, pin) {
			pins = append(pins, pin)
		}
	}
	w.deny(moving, pins...)
}

// without takes exceptions from each filter.
func without(filters, exceptions []string) []string {
	if len(exceptions) == 0 {
		return filters
	}
	out := make([]string, len(filters))
	for i, f := range filters {
		out[i] = "(require-all " + f + " (require-not (require-any " + strings.Join(exceptions, " ") + ")))"
	}
	return out
}

// exactly is about what a pattern names and no more.
func (w *writer) exactly(text string) string {
	if p, ok := pattern.Literal(text); ok {
		return w.subpath(p)
	}
	expression, err := exact(text)
	if err != nil {
		return "(require-not (subpath \"/\"))" // Refuses has said so
	}
	return w.regex(expression)
}

// denied is a pattern as a denial.
type denied struct {
	expressions []string
	// above are the directories that lead to what is denied and lie in one that
	// the command can write.
	above []string
}

// denial says a pattern in a form that holds whatever the command renames: a path,
// names in a directory, or a name anywhere below one. Others are an error.
func (w *writer) denial(text string) (denied, error) {
	if dir, names, ok := spec.NamesIn(text); ok {
		return w.namesIn(dir, names), nil
	}
	if p, ok := pattern.Literal(text); ok {
		return denied{[]string{folded(p) + end}, w.leading(p)}, nil
	}
	dir, name, anywhere, err := split(text)
	if err != nil {
		return denied{}, err
	}
	tail, err := component(name, true)
	if err != nil {
		return denied{}, err
	}
	d := denied{above: append(w.leading(dir), w.inWritable(dir)...)}
	if !anywhere {
		d.expressions = []string{folded(dir) + "/" + tail + end}
		return d, nil
	}
	// The file could be carried to another directory, together with one around it.
	for _, area := range w.areas(dir) {
		d.expressions = append(d.expressions, folded(area)+"(/.*)?/"+tail+end)
	}
	return d, nil
}

// end lets an expression be about a path and all below it.
const end = "(/.*)?$"

func (w *writer) namesIn(dir string, names []string) denied {
	var alternatives []string
	d := denied{above: append(w.leading(dir), w.inWritable(dir)...)}
	for _, name := range names {
		alternatives = append(alternatives, foldedName(name))
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			d.above = append(d.above, path.Join(dir, above))
		}
	}
	d.expressions = []string{folded(dir) + "/(" + strings.Join(alternatives, "|") + ")" + end}
	return d
}

// leading are the directories above a path that the command could rename.
func (w *writer) leading(p string) (list []string) {
	for dir := path.Dir(p); len(w.inWritable(dir)) > 0; dir = path.Dir(dir) {
		list = append(list, dir)
		if dir == "/" {
			break
		}
	}
	return list
}

// inWritable is the path itself if the command can write there, and nothing if not.
func (w *writer) inWritable(p string) []string {
	if a, m := w.spec.Access(p); m != nil && m.Kind == spec.Bind && a == spec.AccessWrite {
		return []string{p}
	}
	return nil
}

// areas are a directory and all that the command can write, each once.
func (w *writer) areas(dir string) []string {
	list := []string{dir}
	add := func(p string) {
		if !slices.ContainsFunc(list, func(have string) bool { return spec.Covers(have, p) }) {
			list = append(list, p)
		}
	}
	for i := range w.spec.Mounts {
		if m := &w.spec.Mounts[i]; m.Kind == spec.Bind && m.Write && !m.File {
			add(m.Target)
		}
	}
	if w.options.Scratch != "" {
		add(w.options.Scratch)
	}
	return list
}

// allSockets says whether every socket in a granted directory can be reached.
func allSockets(s *spec.Spec) bool { return s.Broker == nil || s.Broker.Sockets.All }

// literalSockets are those that the Spec names.
func literalSockets(s *spec.Spec) (list []string) {
	if s.Broker == nil {
		return nil
	}
	for _, text := range s.Broker.Sockets.Allowed {
		if p, ok := pattern.Literal(text); ok {
			list = append(list, p)
		}
	}
	return list
}
