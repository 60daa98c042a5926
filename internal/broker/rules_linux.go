package broker

import (
	"fmt"

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
}

// layer holds, for each access, the rules that say something about it.
type layer [2]struct {
	set   *pattern.Set
	rules []*spec.PathRule
}

func newRules(s *spec.Spec) (*rules, error) {
	r := &rules{areas: s.Broker.Areas, reads: s.Broker.Read}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		r.mounts = append(r.mounts, m.Target)
		if s.IsFree(m) {
			r.free = append(r.free, m.Target)
		}
	}
	for _, list := range s.Broker.Layers {
		var l layer
		for a := range l {
			var texts []string
			for i := range list {
				if verdict(&list[i], access(a)) != "" {
					texts = append(texts, list[i].Pattern)
					l[a].rules = append(l[a].rules, &list[i])
				}
			}
			var err error
			if l[a].set, err = pattern.NewSet(texts); err != nil {
				return nil, fmt.Errorf("broker: %w", err)
			}
		}
		r.layers = append(r.layers, l)
	}
	return r, nil
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
		l := &r.layers[i][a]
		if n := l.set.First(path); n >= 0 && verdict(l.rules[n], a) == spec.Denied {
			return l.rules[n]
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
	for i := range r.layers {
		for a := range r.layers[i] {
			if !r.layers[i][a].set.SameBelow(from, to) {
				return false
			}
		}
	}
	return true
}
