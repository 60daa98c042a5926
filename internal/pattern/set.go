package pattern

import (
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Set is an ordered list of patterns, of which the first that matches decides.
// It never changes, and any number of goroutines may use it at once.
type Set struct {
	tree
	// walkers are kept for sets whose lists do not fit on the stack.
	walkers sync.Pool
}

// NewSet compiles patterns. An error names the index of the bad one and wraps
// an *Error.
func NewSet(texts []string) (*Set, error) {
	b := newBuilder(len(texts))
	for i, text := range texts {
		alternatives, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("pattern %d: %w", i, err)
		}
		b.add(i, alternatives)
	}
	return newSet(b), nil
}

func newSet(b *builder) *Set {
	s := &Set{tree: b.tree()}
	s.walkers.New = func() any { return newWalker(&s.tree) }
	return s
}

// First returns the index of the first pattern that matches the path or an
// ancestor of it, -1 if none does. It does not allocate.
func (s *Set) First(path string) int {
	best, _ := s.walk(path)
	if best == none {
		return -1
	}
	return int(best)
}

// Below reports whether a pattern could match something strictly below dir. It
// says false only if that is certain.
func (s *Set) Below(dir string) bool {
	best, open := s.walk(dir)
	return best != none || open
}

// walk returns the first pattern that matches the path or an ancestor of it,
// and whether one that comes before it could match something below.
func (s *Set) walk(path string) (best int32, open bool) {
	if s.inner > fewNodes || s.loops > fewNodes {
		w := s.walkers.Get().(*walker)
		w.follow(path)
		best, open = w.best, w.isOpen()
		s.walkers.Put(w)
		return best, open
	}
	var ids [3][fewNodes]int32
	var entered [1]uint64
	w := walker{tree: &s.tree, entered: entered[:], loops: list{ids: ids[0][:]}}
	w.others[0].ids, w.others[1].ids = ids[1][:], ids[2][:]
	w.follow(path)
	return w.best, w.isOpen()
}

// Matches yields the index of every pattern that matches the path or an
// ancestor of it, in order.
func (s *Set) Matches(path string) iter.Seq[int] {
	return func(yield func(int) bool) {
		w := newTracer(&s.tree)
		w.follow(path)
		for i := range s.count {
			if w.matched.has(i) && !yield(i) {
				return
			}
		}
	}
}

// Named returns the shortest ancestor of path, or path itself, that pattern i
// matches: what the pattern is about when it covers path. It returns "" if the
// pattern does not match.
func (s *Set) Named(i int, path string) string {
	w := newTracer(&s.tree)
	w.start()
	if w.matched.has(i) {
		return "/"
	}
	for at := 0; at < len(path); {
		var name string
		name, at = nextName(path, at)
		w.step(name)
		if w.matched.has(i) {
			return path[:at]
		}
	}
	return ""
}

// SameBelow reports whether everything below a, were a renamed to b, would match
// exactly the patterns afterwards that it matched before, whatever it is called.
// It says true only if that is certain.
//
// It is, if the same patterns match a and b and the same is left to match below
// them.
func (s *Set) SameBelow(a, b string) bool {
	before, after := newTracer(&s.tree), newTracer(&s.tree)
	before.follow(a)
	after.follow(b)
	was, is := before.others[before.latest].all(), after.others[after.latest].all()
	slices.Sort(was)
	slices.Sort(is)
	return slices.Equal(before.matched, after.matched) && slices.Equal(before.entered, after.entered) && slices.Equal(was, is)
}
