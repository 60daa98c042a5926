package spec

import (
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// patternRule is an entry of a Filesystem with wildcards. It is decided when a
// file is opened or made.
type patternRule struct {
	kind  ruleKind
	text  string   // absolute
	base  resolved // the directory that all it matches lies in
	entry string
}

func (r *patternRule) reason() string { return r.kind.String() + " " + r.entry }

func isPattern(entry string) bool {
	_, ok := pattern.Plain(entry)
	return !ok
}

// readPattern resolves the part of a pattern that is a plain path.
func (c *compiler) readPattern(l *layer, kind ruleKind, entry string) {
	r, ok := c.resolvePattern(kind.String(), entry)
	if !ok {
		return
	}
	r.kind = kind
	switch {
	case kind == privateWrite:
		c.refuse(kind.String(), entry, "only whole directories can have private writes", "name the directory")
	case IsOwn(r.base.path):
		c.refuse(kind.String(), entry, "patterns are for files of the host", "name the file")
	case !kind.denies() && c.wide(r.base.path):
		c.refuseHere(kind.String(), entry, "would show everything in "+r.base.path+" by name", "name a directory below it in front of the pattern")
	case r.base.missing && !kind.denies():
		// For machines that have it.
	default:
		l.patterns = append(l.patterns, r)
		if kind.denies() {
			c.denyNamesake(l, kind, entry)
		}
	}
}

// denyNamesake denies also the file that has the pattern for its name, if there is
// one: who denies "pages/[id].tsx" may well have meant that.
func (c *compiler) denyNamesake(l *layer, kind ruleKind, entry string) {
	other := strings.HasPrefix(entry, "~") && !strings.HasPrefix(entry, "~/")
	if other {
		return
	}
	p, ok := c.absolute(kind.String(), pattern.Quote(unescape(entry)))
	if !ok {
		return
	}
	if r, err := c.facts.resolve(p); err == nil && !r.missing {
		l.rules = append(l.rules, rule{resolved: r, kind: kind, entry: entry})
	}
}

// unescape takes the backslashes off what they make literal.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func (c *compiler) resolvePattern(key, entry string) (patternRule, bool) {
	text := entry
	switch {
	case strings.IndexByte(entry, 0) >= 0:
		c.refuse(key, entry, "is not a path", "remove it")
		return patternRule{}, false
	case strings.HasPrefix(text, "/"):
	case strings.HasPrefix(text, "~/"):
		if c.host.Home == "" {
			c.refuseHere(key, entry, "there is no home directory", "set HOME, or name the path from /")
			return patternRule{}, false
		}
		text = join(pattern.Quote(clean(c.host.Home)), text[2:])
	default:
		text = join(pattern.Quote(c.project), strings.TrimPrefix(text, "./"))
	}
	if _, err := pattern.Compile(text); err != nil {
		c.refuse(key, entry, err.Error(), "see docs/policy.md on patterns")
		return patternRule{}, false
	}
	base := pattern.Base(text)
	r, err := c.facts.resolve(base)
	if err != nil {
		c.refuseHere(key, entry, err.Error(), "name the directory itself")
		return patternRule{}, false
	}
	if r.path != base {
		text = join(pattern.Quote(r.path), afterComponents(text, strings.Count(strings.TrimSuffix(base, "/"), "/")))
	}
	return patternRule{text: text, base: r, entry: entry}, true
}

// afterComponents returns what follows the first n components of a pattern,
// which have no wildcards.
func afterComponents(text string, n int) string {
	rest := strings.TrimLeft(text, "/")
	for range n {
		_, rest, _ = strings.Cut(rest, "/")
		rest = strings.TrimLeft(rest, "/")
	}
	return rest
}

// grantPatterns makes room for what patterns grant: the directory they are
// about is mounted, and what they do not match in it is denied by narrowings.
// Where it is granted as a whole they add nothing.
func (c *compiler) grantPatterns() {
	for _, l := range c.layers {
		for i := range l.patterns {
			r := &l.patterns[i]
			want := AccessRead
			if r.kind == allowWrite {
				want = AccessWrite
			}
			have := l.access(r.base.path)
			if r.kind.denies() || have >= want {
				continue
			}
			l.narrow = append(l.narrow, narrowed{r.base.path, have})
			l.rules = append(l.rules, rule{resolved: r.base, kind: r.kind, why: r.reason()})
		}
	}
}

// narrowed is a directory that is mounted for what patterns grant in it.
type narrowed struct {
	path string
	have Access // what is granted of it as a whole
}

// exceptions are plain grants of what a pattern denies to read: who names the
// very file means it. For writing a denial always wins.
func (l *layer) exceptions(rules []PathRule) []PathRule {
	if l.strict {
		return rules
	}
	for i := range l.patterns {
		d := &l.patterns[i]
		if d.kind != denyRead {
			continue
		}
		denied, err := pattern.Compile(d.text)
		if err != nil {
			continue // it was compiled before
		}
		for j := range l.rules {
			r := &l.rules[j]
			if r.kind.denies() || r.why != "" || !denied.Match(r.path) {
				continue
			}
			e := PathRule{Pattern: pattern.Quote(r.path), Read: Allowed, Why: r.reason()}
			if r.kind == allowWrite {
				e.Write = Allowed
			}
			rules = append(rules, e)
		}
	}
	return rules
}

// denials are the entries of denyRead and denyWrite that are patterns or name
// what does not exist, and those that do, for when the host replaces the file.
func (c *compiler) denials(rules []PathRule, l *layer, bound bool) []PathRule {
	deny := func(kind ruleKind, text, why string) {
		r := PathRule{Pattern: text, Write: Denied, Why: why}
		if kind == denyRead {
			r.Read = Denied
		}
		rules = append(rules, r)
	}
	for i := range l.patterns {
		if r := &l.patterns[i]; r.kind.denies() {
			deny(r.kind, r.text, r.reason())
		}
	}
	for _, m := range c.missing {
		if m.kind.denies() && m.bound == bound && !m.optional && c.granted(m.path) >= AccessPrivate {
			deny(m.kind, pattern.Quote(m.path), m.kind.String()+" "+m.entry)
		}
	}
	for i := range l.rules {
		if r := &l.rules[i]; r.kind == denyWrite && c.writable(r.path) {
			deny(denyWrite, pattern.Quote(r.path), r.reason())
		}
	}
	return rules
}

// writable says whether a path lies in a directory of the host that can be
// written.
func (c *compiler) writable(p string) bool {
	return slices.ContainsFunc(c.spec.Mounts, func(m Mount) bool {
		return m.Kind == Bind && m.Write && Covers(m.Target, p)
	})
}

// narrowings grant what patterns match, and deny the rest of the directories
// that are mounted for them.
func (l *layer) narrowings(rules []PathRule) []PathRule {
	if len(l.narrow) == 0 {
		return rules
	}
	for i := range l.patterns {
		r := &l.patterns[i]
		switch r.kind {
		case allowRead:
			rules = append(rules, PathRule{Pattern: r.text, Read: Allowed, Why: r.reason()})
		case allowWrite:
			rules = append(rules, PathRule{Pattern: r.text, Read: Allowed, Write: Allowed, Why: r.reason()})
		}
	}
	for i := range l.rules {
		r := &l.rules[i]
		if r.why != "" || !slices.ContainsFunc(l.narrow, func(n narrowed) bool { return below(n.path, r.path) }) {
			continue
		}
		switch r.kind {
		case allowRead:
			rules = append(rules, PathRule{Pattern: pattern.Quote(r.path), Read: Allowed, Why: r.reason()})
		case allowWrite, privateWrite:
			rules = append(rules, PathRule{Pattern: pattern.Quote(r.path), Read: Allowed, Write: Allowed, Why: r.reason()})
		}
	}
	for _, n := range l.narrow {
		all := pattern.Quote(n.path)
		rules = append(rules, PathRule{Pattern: all, Write: Denied, Why: "not granted", Fix: fixWrite + " " + plain.Word(n.path)})
		if n.have == AccessNone {
			rules = append(rules, PathRule{Pattern: all, Read: Denied, Why: "not granted", Fix: fixRead + " " + plain.Word(n.path)})
		}
	}
	return rules
}
