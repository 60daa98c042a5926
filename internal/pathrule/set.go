package pathrule

// Set is several lists that must all agree: what a path may be used for is the
// least that any of them permits. It never changes, and any number of goroutines
// may use it at once.
type Set struct {
	lists []*List
}

// NewSet compiles lists of rules.
func NewSet(lists ...[]Rule) (*Set, error) {
	s := &Set{}
	for _, rules := range lists {
		l, err := Compile(rules)
		if err != nil {
			return nil, err
		}
		s.lists = append(s.lists, l)
	}
	return s, nil
}

// Decision is what a Set says about a path, and which rule says so.
type Decision struct {
	Permission Permission
	// List and Rule are indices; both are -1 where no rule matches.
	List, Rule int
	// Way says that the path is hidden, but as a directory leads to something
	// that is not.
	Way bool
}

// IsVisible says whether there is something at the path, where it is a directory
// or not.
func (d Decision) IsVisible(isDir bool) bool { return d.Permission > None || isDir && d.Way }

// Decide decides about a path.
func (s *Set) Decide(path string) Decision {
	d := Decision{Permission: Write, List: -1, Rule: -1}
	for i, l := range s.lists {
		if p, rule := l.Decide(path); p < d.Permission || d.Rule < 0 && rule >= 0 {
			d.Permission, d.List, d.Rule = p, i, rule
		}
	}
	d.Way = d.Permission == None && s.leadsOn(path)
	return d
}

// leadsOn needs every list that hides the directory to lead on.
func (s *Set) leadsOn(dir string) bool {
	for _, l := range s.lists {
		if p, _ := l.Decide(dir); p == None && !l.leadsOn(dir) {
			return false
		}
	}
	return true
}

// Permission is what Decide says, for who needs no reason.
func (s *Set) Permission(path string) Permission {
	least := Write
	for _, l := range s.lists {
		if p, _ := l.Decide(path); p < least {
			least = p
		}
	}
	return least
}

// Least is the least that a path can be permitted.
func (s *Set) Least() Permission {
	least := Write
	for _, l := range s.lists {
		for i := range l.rules {
			least = min(least, l.rules[i].Permission)
		}
	}
	return least
}

// SameBelow says whether everything below a directory keeps its permission when
// the directory is renamed, whatever is in it. It says true only if that is
// certain.
func (s *Set) SameBelow(from, to string) bool {
	for _, l := range s.lists {
		if !l.sameBelow(from, to) {
			return false
		}
	}
	return true
}

func (l *List) sameBelow(from, to string) bool {
	if !l.set.SameBelow(from, to) {
		return false
	}
	for _, i := range l.negated {
		if !l.entries[i].alone.SameBelow(from, to) {
			return false
		}
	}
	return true
}

// Rules returns the lists as they were given.
func (s *Set) Rules() [][]Rule {
	out := make([][]Rule, len(s.lists))
	for i, l := range s.lists {
		out[i] = l.rules
	}
	return out
}

// Subtree is a directory or file by its path, with all below it.
type Subtree struct {
	Path       string // absolute, with the workspace as root
	Permission Permission
	Rule       int
}

// Subtrees returns the rules of a list as subtrees, if they are nothing else:
// every pattern is a path, and nothing is only to be viewed. Of two subtrees one
// in the other, the inner decides.
func (l *List) Subtrees() (list []Subtree, ok bool) {
	for i := range l.entries {
		e := &l.entries[i]
		p := l.rules[e.rule].Permission
		if e.negated || !e.literal || p == View {
			return nil, false
		}
		path := asPath(e.parts, 0)
		if decided, rule := l.Decide(path); rule == e.rule {
			list = append(list, Subtree{path, decided, rule})
		}
	}
	return list, true
}
