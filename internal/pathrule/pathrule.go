// Package pathrule decides what a sandbox may do with each path of a workspace,
// by rules that a person writes: a pattern, a permission, and perhaps a priority.
//
// Patterns are those of package pattern, relative to the root of the workspace:
// "src" and "src/**" are that directory and all below it, "**/.env" every file of
// that name, and "!P" everything that P does not match. Paths given to this
// package are absolute and clean, with the workspace as their root: "/" is the
// workspace itself.
//
// Of the rules that match a path, the most specific decides. A rule is more
// specific than another if the other's pattern matches this one's, read as a path,
// and not the other way round: "src/.env" is more specific than both "src" and
// "**/.env", of which neither is more specific than the other. To read a pattern
// as a path, braces are written out, and each "**" is taken for no name, for one,
// and for as many as the other pattern is long. A rule with "!" is less specific
// than every rule without. Of those that are left, the one with the highest
// priority decides, and of several with the same the last. Where no rule matches,
// everything is permitted that the rest of the policy grants.
//
// A directory that is hidden, and below which a rule grants something by a name
// that is not above it, is a way: it can be passed, and shows only what is visible
// in it and further ways.
package pathrule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
)

// Permission is what a rule grants. The values are ordered: the lesser of two is
// what both grant.
type Permission uint8

const (
	None  Permission = iota // it does not exist
	View                    // its name and size, but not its content
	Read                    // its content
	Write                   // everything
)

var names = [...]string{"none", "view", "read", "write"}

func (p Permission) String() string { return names[p] }

// Parse returns the permission of a name.
func Parse(name string) (Permission, error) {
	for i, n := range names {
		if n == name {
			return Permission(i), nil
		}
	}
	return None, fmt.Errorf("no permission is called %q; write none, view, read or write", name)
}

// Rule is one permission.
type Rule struct {
	Pattern    string     `json:"pattern"`
	Permission Permission `json:"permission"`
	Priority   int        `json:"priority,omitempty"`
}

// pathPattern is the rule's pattern as package pattern wants it, and whether it
// stands behind a "!".
func (r *Rule) pathPattern() (text string, negated bool) {
	text, negated = strings.CutPrefix(r.Pattern, "!")
	return "/" + strings.TrimPrefix(strings.TrimPrefix(text, "./"), "/"), negated
}

// entry is a pattern without braces of one rule.
type entry struct {
	rule     int
	negated  bool
	literal  bool // it has no wildcards
	parts    pattern.Alternative
	alone    *pattern.Set
	beatenBy []int // entries that are more specific
}

// List is an ordered list of rules, compiled. It never changes.
type List struct {
	rules   []Rule
	entries []entry
	set     *pattern.Set // the pattern of each entry
	negated []int        // entries behind a "!"
}

// maxEntries bounds what one list costs. The relation between all pairs is
// computed once.
const maxEntries = 2000

// Compile reads rules. An error names the bad one.
func Compile(rules []Rule) (*List, error) {
	l := &List{rules: rules}
	var texts []string
	for i := range rules {
		text, negated := rules[i].pathPattern()
		alternatives, err := pattern.Alternatives(text)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, asWritten(err, text, rules[i].Pattern))
		}
		if negated && slices.ContainsFunc(alternatives, func(a pattern.Alternative) bool { return len(a) == 0 }) {
			return nil, fmt.Errorf("rule %d: %q is about no path: its rest matches all; write what is left out after it, as in !src", i+1, rules[i].Pattern)
		}
		if rules[i].Permission > Write {
			return nil, fmt.Errorf("rule %d: no permission has the number %d", i+1, rules[i].Permission)
		}
		if err := l.add(i, text, negated, alternatives); err != nil {
			return nil, err
		}
	}
	for i := range l.entries {
		texts = append(texts, l.entries[i].text())
	}
	set, err := pattern.NewSet(texts)
	if err != nil {
		return nil, err
	}
	l.set = set
	l.compare()
	return l, nil
}

// asWritten has an error show a pattern as people wrote it: without the slash that
// stands before it here.
func asWritten(err error, text, written string) error {
	var bad *pattern.Error
	if !errors.As(err, &bad) {
		return err
	}
	return &pattern.Error{Text: written, Offset: max(bad.Offset-len(text)+len(written), 0), Msg: bad.Msg}
}

// add puts a rule's alternatives in. Behind a "!" they stay together, since the
// rule is about what none of them matches.
func (l *List) add(rule int, text string, negated bool, alternatives []pattern.Alternative) error {
	if negated {
		l.negated = append(l.negated, len(l.entries))
		alone, err := pattern.NewSet([]string{text})
		l.entries = append(l.entries, entry{rule: rule, negated: true, alone: alone})
		return err
	}
	for _, a := range alternatives {
		alone, err := pattern.NewSet([]string{a.String()})
		if err != nil {
			return fmt.Errorf("rule %d: %w", rule+1, err)
		}
		l.entries = append(l.entries, entry{rule: rule, parts: a, alone: alone, literal: isLiteral(a)})
	}
	if len(l.entries) > maxEntries {
		return fmt.Errorf("rule %d: the rules stand for more than %d patterns; write fewer braces", rule+1, maxEntries)
	}
	return nil
}

func isLiteral(a pattern.Alternative) bool {
	for _, c := range a {
		if !c.Literal {
			return false
		}
	}
	return true
}

// text is what the common set is asked about. Entries behind a "!" are asked by
// themselves, and have a place in it that nothing matches.
func (e *entry) text() string {
	if e.negated {
		return "/\x01/\x01\x01"
	}
	return e.parts.String()
}

// compare finds which entries are more specific than which.
func (l *List) compare() {
	for i := range l.entries {
		for j := range l.entries {
			if i != j && l.entries[j].isMoreSpecific(&l.entries[i]) {
				l.entries[i].beatenBy = append(l.entries[i].beatenBy, j)
			}
		}
	}
}

func (e *entry) isMoreSpecific(than *entry) bool {
	if e.negated || than.negated {
		return than.negated && !e.negated
	}
	return than.contains(e) && !e.contains(than)
}

// contains says whether the entry matches another one, read as a path.
func (e *entry) contains(other *entry) bool {
	many := len(e.parts) + 1
	for _, n := range [...]int{0, 1, many} {
		if e.alone.First(asPath(other.parts, n)) < 0 {
			return false
		}
	}
	return true
}

// asPath reads a pattern as a path in which "**" is n names that nobody writes.
func asPath(parts pattern.Alternative, n int) string {
	var b strings.Builder
	for _, c := range parts {
		if !c.IsAnyDepth() {
			b.WriteString("/" + c.Text)
			continue
		}
		for range n {
			b.WriteString("/\x01")
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// Decide returns what is permitted at a path, and the index of the rule that
// decides, -1 if none matches.
func (l *List) Decide(path string) (Permission, int) {
	matched := l.matches(path)
	best := -1
	for _, i := range matched {
		if !l.isBeaten(i, matched) && (best < 0 || l.outranks(i, best)) {
			best = i
		}
	}
	if best < 0 {
		return Write, -1
	}
	rule := l.entries[best].rule
	return l.rules[rule].Permission, rule
}

func (l *List) matches(path string) []int {
	matched := make([]int, 0, 8)
	for i := range l.set.Matches(path) {
		if !l.entries[i].negated {
			matched = append(matched, i)
		}
	}
	for _, i := range l.negated {
		if l.entries[i].alone.First(path) < 0 {
			matched = append(matched, i)
		}
	}
	return matched
}

func (l *List) isBeaten(i int, matched []int) bool {
	for _, j := range l.entries[i].beatenBy {
		for _, m := range matched {
			if m == j {
				return true
			}
		}
	}
	return false
}

// outranks says whether of two entries of which neither is more specific the
// first decides.
func (l *List) outranks(i, j int) bool {
	a, b := l.entries[i].rule, l.entries[j].rule
	if pa, pb := l.rules[a].Priority, l.rules[b].Priority; pa != pb {
		return pa > pb
	}
	return a > b
}

// leadsOn says whether something below a hidden directory can be visible: a rule
// that does not match the directory grants it, or it is what a rule behind a "!"
// leaves out.
func (l *List) leadsOn(dir string) bool {
	for i := range l.entries {
		e := &l.entries[i]
		grants := (l.rules[e.rule].Permission > None) != e.negated
		if grants && e.alone.First(dir) < 0 && e.alone.Below(dir) {
			return true
		}
	}
	return false
}
