package pathrule

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// What follows says the same as the package in as few words as possible, and
// takes its time.

// refExpand writes braces out.
func refExpand(text string) []string {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return []string{text}
	}
	depth, start := 0, open+1
	var choices []string
	for i := open; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			choices = append(choices, text[start:i])
			start = i + 1
		case c == '}':
			if depth--; depth == 0 {
				choices = append(choices, text[start:i])
				var out []string
				for _, choice := range choices {
					out = append(out, refExpand(text[:open]+choice+text[i+1:])...)
				}
				return out
			}
		}
	}
	panic("unbalanced")
}

func refNames(text string) (names []string) {
	for _, n := range strings.Split(text, "/") {
		if n != "" && n != "." {
			names = append(names, n)
		}
	}
	return names
}

func refGlob(glob, name string) bool {
	switch {
	case glob == "":
		return name == ""
	case glob[0] == '*':
		return refGlob(glob[1:], name) || name != "" && refGlob(glob, name[1:])
	case name == "":
		return false
	}
	return (glob[0] == '?' || glob[0] == name[0]) && refGlob(glob[1:], name[1:])
}

// refMatch says whether a pattern matches a path or something above it.
func refMatch(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return true
	case pattern[0] == "**":
		return refMatch(pattern[1:], path) || len(path) > 0 && refMatch(pattern, path[1:])
	case len(path) == 0:
		return false
	}
	return refGlob(pattern[0], path[0]) && refMatch(pattern[1:], path[1:])
}

type refEntry struct {
	rule    int
	negated bool
	all     []string // of a negated one, its choices
	names   []string // of another
}

func refEntries(rules []Rule) (list []refEntry) {
	for i, r := range rules {
		text, negated := strings.CutPrefix(r.Pattern, "!")
		if negated {
			list = append(list, refEntry{rule: i, negated: true, all: refExpand(text)})
			continue
		}
		for _, choice := range refExpand(text) {
			names := refNames(choice)
			for len(names) > 0 && names[len(names)-1] == "**" {
				names = names[:len(names)-1]
			}
			list = append(list, refEntry{rule: i, names: names})
		}
	}
	return list
}

func (e refEntry) matches(path []string) bool {
	if !e.negated {
		return refMatch(e.names, path)
	}
	for _, choice := range e.all {
		if refMatch(refNames(choice), path) {
			return false
		}
	}
	return true
}

func refRead(names []string, n int) (path []string) {
	for _, name := range names {
		if name != "**" {
			path = append(path, name)
			continue
		}
		for range n {
			path = append(path, "\x01")
		}
	}
	return path
}

func (e refEntry) contains(o refEntry) bool {
	count := 1
	for i, n := range e.names {
		if n != "**" || i > 0 && e.names[i-1] != "**" || i == 0 {
			count++
		}
	}
	for _, n := range []int{0, 1, count} {
		if !refMatch(e.names, refRead(o.names, n)) {
			return false
		}
	}
	return true
}

func (e refEntry) beats(o refEntry) bool {
	if e.negated || o.negated {
		return o.negated && !e.negated
	}
	return o.contains(e) && !e.contains(o)
}

func refDecide(rules []Rule, path string) Permission {
	names := refNames(path)
	var matched []refEntry
	for _, e := range refEntries(rules) {
		if e.matches(names) {
			matched = append(matched, e)
		}
	}
	best := -1
	for _, e := range matched {
		beaten := false
		for _, o := range matched {
			beaten = beaten || o.beats(e)
		}
		if beaten {
			continue
		}
		if best < 0 || rules[e.rule].Priority > rules[best].Priority || rules[e.rule].Priority == rules[best].Priority && e.rule > best {
			best = e.rule
		}
	}
	if best < 0 {
		return Write
	}
	return rules[best].Permission
}

// refRules makes rules from bytes: few letters, so that they meet often.
func refRules(data []byte) (rules []Rule, path string) {
	pieces := []string{"a", "b", "*", "**", "?", "{a,b}", "a*", "{a,b/**}", "**/a", "*b", "ab", "{**/b,a}"}
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	for range next()%5 + 1 {
		var parts []string
		for range next()%4 + 1 {
			parts = append(parts, pieces[next()%len(pieces)])
		}
		text := strings.Join(parts, "/")
		if next()%6 == 0 && slices.ContainsFunc(parts, func(p string) bool { return p != "**" }) { // or it is about no path
			text = "!" + text
		}
		rules = append(rules, Rule{Pattern: text, Permission: Permission(next() % 4), Priority: next() % 3})
	}
	names := []string{"a", "b", "ab", "c", "ba"}
	for range next() % 6 {
		path += "/" + names[next()%len(names)]
	}
	if path == "" {
		path = "/"
	}
	return rules, path
}

func compareWithReference(t *testing.T, data []byte) {
	rules, path := refRules(data)
	s, err := NewSet(rules)
	if err != nil {
		t.Fatalf("%v: %v", rules, err)
	}
	d := s.Decide(path)
	if want := refDecide(rules, path); d.Permission != want {
		t.Errorf("%+v\n%s: got %v by rule %d, want %v", rules, path, d.Permission, d.Rule, want)
	}
	// What can be seen is reached through what can be seen.
	if d.Permission == None {
		return
	}
	for above := path; above != "/"; {
		above = above[:strings.LastIndexByte(above, '/')]
		if above == "" {
			above = "/"
		}
		if up := s.Decide(above); !up.IsVisible(true) && leadsThere(s, rules, above, path) {
			t.Errorf("%+v\n%s is %v, and %s does not lead there", rules, path, d.Permission, above)
		}
	}
}

// leadsThere says whether the rule that grants a path is one that makes a way at a
// directory above it: it does not match the directory itself.
func leadsThere(s *Set, rules []Rule, dir, path string) bool {
	d := s.Decide(path)
	if d.Rule < 0 || strings.HasPrefix(rules[d.Rule].Pattern, "!") {
		return false
	}
	for _, e := range refEntries(rules) {
		if e.rule == d.Rule && e.matches(refNames(path)) && e.matches(refNames(dir)) {
			return false
		}
	}
	return true
}

func FuzzDecideLikeTheReference(f *testing.F) {
	f.Add([]byte{4, 1, 0, 3, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte("\x02\x01\x03\x00\x01\x02\x00\x02\x08\x01\x01\x03\x01\x03\x00\x01\x02"))
	f.Fuzz(compareWithReference)
}

func TestDecidesLikeTheReference(t *testing.T) {
	state := uint64(1)
	for range testenv.Count(4000, 200000) {
		data := make([]byte, 48)
		for i := range data {
			state = state*6364136223846793005 + 1442695040888963407
			data[i] = byte(state >> 56)
		}
		if compareWithReference(t, data); t.Failed() {
			return
		}
	}
}
