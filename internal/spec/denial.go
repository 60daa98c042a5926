package spec

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
