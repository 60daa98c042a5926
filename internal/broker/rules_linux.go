package broker

import (
	"fmt"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// access is what a call wants of a path.
type access uint8

const (
	reading access = iota
	writing
)

// rules are the Spec's, ready to be asked.
type rules struct {
	areas  []string
	free   []string // private directories in areas, which the kernel guards
	layers []layer
	mounts []string // where something is mounted inside
	reads  bool     // there are rules about reading
	// capitals says that there are denials which a small path can be another
	// spelling of.
	capitals bool

	spec *spec.Spec
	once sync.Once
	sets []*pattern.Set // see movable
}

// layer holds, for each access, the rules that say something about it.
type layer [2]*list

// list is an ordered list of rules. Those about names in a directory, which
// every Spec has, are kept apart: they need no set, which takes a while to
// build.
type list struct {
	rules []*spec.PathRule
	names []names
	set   *pattern.Set
	index []int // of the set's patterns in rules
	// folded is for directories that do not tell capitals from small letters.
	folded folded
}

// names is a rule about names in a directory.
type names struct {
	index int
	dir   string
	names []string
}

func (n *names) match(path string) bool {
	if len(path) <= len(n.dir) || !spec.Covers(n.dir, path) {
		return false
	}
	rest := path[len(n.dir)+1:]
	for _, name := range n.names {
		if strings.HasPrefix(rest, name) && (len(rest) == len(name) || rest[len(name)] == '/') {
			return true
		}
	}
	return false
}

// first returns the first rule that is about a path, or nil.
func (l *list) first(path string) *spec.PathRule {
	if n := l.firstIndex(path); n < len(l.rules) {
		return l.rules[n]
	}
	return nil
}

// firstIndex returns its index, or the number of rules.
func (l *list) firstIndex(path string) int {
	best := len(l.rules)
	if n := l.set.First(path); n >= 0 {
		best = l.index[n]
	}
	for i := range l.names {
		if n := &l.names[i]; n.index < best && n.match(path) {
			best = n.index
		}
	}
	return best
}

func newList(all []spec.PathRule, a access) (*list, error) {
	l := new(list)
	var texts []string
	for i := range all {
		if verdict(&all[i], a) == "" {
			continue
		}
		if dir, in, ok := spec.NamesIn(all[i].Pattern); ok {
			l.names = append(l.names, names{len(l.rules), dir, in})
		} else {
			l.index = append(l.index, len(l.rules))
			texts = append(texts, all[i].Pattern)
		}
		l.rules = append(l.rules, &all[i])
	}
	var err error
	l.set, err = pattern.NewSet(texts)
	return l, err
}

func newRules(s *spec.Spec) (*rules, error) {
	r := &rules{areas: s.Broker.Areas, reads: s.Broker.Read, spec: s}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		r.mounts = append(r.mounts, m.Target)
		if s.IsFree(m) {
			r.free = append(r.free, m.Target)
		}
	}
	for _, all := range s.Broker.Layers {
		var l layer
		for a := range l {
			var err error
			if l[a], err = newList(all, access(a)); err != nil {
				return nil, fmt.Errorf("broker: %w", err)
			}
			r.capitals = r.capitals || l[a].hasCapitals(access(a))
		}
		r.layers = append(r.layers, l)
	}
	return r, nil
}

// hasCapitals says whether a denial is not in the form that paths are folded to.
func (l *list) hasCapitals(a access) bool {
	for _, r := range l.rules {
		if verdict(r, a) == spec.Denied && !isFolded(r.Pattern) {
			return true
		}
	}
	return false
}

func verdict(r *spec.PathRule, a access) spec.Verdict {
	if a == writing {
		return r.Write
	}
	return r.Read
}

// judge returns the rule that denies a path, or nil.
func (r *rules) judge(a access, path string) *spec.PathRule {
	for i := range r.layers {
		if rule := r.layers[i][a].first(path); rule != nil && verdict(rule, a) == spec.Denied {
			return rule
		}
	}
	return nil
}

// inArea says whether a path lies in a directory that the rules are about.
func (r *rules) inArea(path string) bool { return covers(r.areas, path) && !covers(r.free, path) }

func covers(dirs []string, path string) bool {
	for _, dir := range dirs {
		if spec.Covers(dir, path) {
			return true
		}
	}
	return false
}

// isMountPoint says whether something is mounted at a path or below it. The
// kernel would refuse the command to move it, but not us.
func (r *rules) isMountPoint(path string) bool {
	for _, m := range r.mounts {
		if spec.Covers(path, m) {
			return true
		}
	}
	return false
}

// passage is the rule against a link in the place of a directory that has
// something denied in it.
var passage = spec.PathRule{Why: "a link in the way to a protected path"}

// leadsOn says whether a rule is about something below a spot, but not below any
// other name beside it. A link there would give what it leads to a name that is
// denied.
func (r *rules) leadsOn(s *spot) bool {
	beside := spot{real: s.real, name: "\x00"} // no file has that name
	return !r.movable(s.path(), beside.path())
}

// movable says whether what lies below one path means the same to the rules
// below another.
func (r *rules) movable(from, to string) bool {
	r.once.Do(r.buildSets)
	for _, set := range r.sets {
		if set == nil || !set.SameBelow(from, to) {
			return false
		}
	}
	return true
}

// buildSets builds sets of all patterns, for the questions about directories
// that few commands ask. One that cannot be built answers no.
func (r *rules) buildSets() {
	for _, all := range r.spec.Broker.Layers {
		for _, a := range []access{reading, writing} {
			var texts []string
			for i := range all {
				if verdict(&all[i], a) != "" {
					texts = append(texts, all[i].Pattern)
				}
			}
			set, _ := pattern.NewSet(texts)
			r.sets = append(r.sets, set)
		}
	}
}
