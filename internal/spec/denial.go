package spec

import (
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
)

// Denial is a path that a rule denies, with all below it. For writing that wins
// over every grant, for reading over those that are not more specific.
type Denial struct {
	Path string
	Read bool   // reading too
	Why  string // the rule, for people
}

// denialsForAdvice collects them from all layers. Those that are patterns are the broker's.
func (c *compiler) denialsForAdvice() {
	for _, l := range c.layers {
		for i := range l.rules {
			if r := &l.rules[i]; r.kind.denies() {
				c.spec.Denials = append(c.spec.Denials, Denial{r.path, r.kind == denyRead, r.reason()})
			}
		}
	}
	for _, m := range c.missing {
		if m.kind.denies() {
			c.spec.Denials = append(c.spec.Denials, Denial{m.path, m.kind == denyRead, m.kind.String() + " " + m.entry})
		}
	}
}

// DeniedBy returns the rule that denies a path whatever is granted, or "".
func (s *Spec) DeniedBy(p string, write bool) string {
	for i := range s.Denials {
		if d := &s.Denials[i]; (write || d.Read) && Covers(d.Path, p) {
			return d.Why
		}
	}
	return ""
}

// Unwritable returns who says why a command can neither make nor write a path, or
// "" if it can. What is there as something else than a directory, or not at all,
// must leave alone what is protected below as well.
func (s *Spec) Unwritable() (func(p string, isDir bool) string, error) {
	var layers [][]PathRule
	var sets []*pattern.Set
	if s.Broker != nil {
		for _, layer := range s.Broker.Layers {
			var rules []PathRule
			var texts []string
			for _, r := range layer {
				if r.Write != "" {
					rules, texts = append(rules, r), append(texts, r.Pattern)
				}
			}
			set, err := pattern.NewSet(texts)
			if err != nil {
				return nil, err
			}
			layers, sets = append(layers, rules), append(sets, set)
		}
	}
	return func(p string, isDir bool) string {
		if access, m := s.Access(p); access != AccessWrite {
			if m == nil {
				return "no rule grants it"
			}
			return m.Why
		}
		for i, set := range sets {
			if first := set.First(p); first >= 0 && layers[i][first].Write == Denied {
				return layers[i][first].Why
			}
		}
		if isDir {
			return ""
		}
		return s.guardedBelow(p, layers)
	}, nil
}

// guardedBelow is the rule by which something below a path cannot be written.
func (s *Spec) guardedBelow(p string, layers [][]PathRule) string {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Target != p && Covers(p, m.Target) && m.access() != AccessWrite {
			return m.Why
		}
	}
	for _, rules := range layers {
		for i := range rules {
			if r := &rules[i]; r.Write == Denied && strings.HasPrefix(r.Pattern, pattern.Quote(p)+"/") {
				return r.Why
			}
		}
	}
	return ""
}
