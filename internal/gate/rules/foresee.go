package rules

import "github.com/bailey-sandbox/bailey/internal/gate/config"

// foreseeRest is Foresee where denials that depend on what is not known yet
// stand before grants. They may leave nothing of them: a host that is denied to
// ssh, below a name that is granted to ssh, can never be reached, and nobody
// should hear of it.
func (s *Set) foreseeRest(q *Query, certain int32) Verdict {
	granting, denying := int32(none), int32(none)
	s.lists(q.Host, func(list []int32) {
		for _, i := range list {
			if i >= min(certain, granting) {
				return
			}
			r := &s.rules[i]
			if r.action == config.Deny || r.match(q) == no {
				continue
			}
			if d := s.coverOf(q, i); d != none {
				denying = min(denying, d)
			} else {
				granting = i
			}
		}
	})
	switch {
	case granting != none:
		return s.verdict(granting)
	case certain != none:
		return s.verdict(certain)
	}
	if v := s.otherwise(q); v.Action != config.Deny {
		return v
	}
	return s.verdict(denying)
}

// coverOf returns the first denial before a rule that leaves nothing of it.
func (s *Set) coverOf(q *Query, granting int32) int32 {
	first := int32(none)
	s.lists(q.Host, func(list []int32) {
		for _, i := range list {
			if i >= min(first, granting) {
				return
			}
			if r := &s.rules[i]; r.action == config.Deny && r.covers(&s.rules[granting], q) {
				first = i
			}
		}
	})
	return first
}

// covers says whether a rule matches whatever another does, for a host that both
// are about.
func (r *rule) covers(other *rule, q *Query) bool {
	if len(r.methods)+len(r.paths) > 0 {
		return false
	}
	return r.coversPorts(other, q.Port) && r.coversSchemes(other, q.Scheme)
}

func (r *rule) coversPorts(other *rule, port uint16) bool {
	if port != 0 || len(r.ports) == 0 {
		return r.matchPort(port) == yes
	}
	for _, p := range other.ports {
		if !r.hasRange(p) {
			return false
		}
	}
	return len(other.ports) > 0
}

func (r *rule) hasRange(p config.Ports) bool {
	for _, own := range r.ports {
		if own.From <= p.From && p.To <= own.To {
			return true
		}
	}
	return false
}

func (r *rule) coversSchemes(other *rule, scheme Scheme) bool {
	if scheme != 0 || r.schemes == 0 {
		return r.matchScheme(scheme) == yes
	}
	return other.schemes != 0 && other.schemes&^r.schemes == 0 || r.schemes == anyScheme
}
