package command

import (
	"path"
	"strings"
)

// rule is one entry. Its words are taken apart when they are compared, because
// most rules never are.
type rule struct {
	key, where string
	// reason is why a rule of the built-in list exists; allow makes it one that
	// allows.
	reason string
	allow  bool
	// path is the program if the entry names it by a path, and then the file
	// must be that one.
	path string
	// all are the words, the program first.
	all []string
}

// newRule reads an entry. It has no words if the entry is empty.
func newRule(key string, e Entry) rule {
	all := strings.Fields(e.Text)
	// Everything that begins with the words is meant anyway.
	for len(all) > 1 && all[len(all)-1] == "*" {
		all = all[:len(all)-1]
	}
	ru := rule{key: key, where: e.Where, all: all}
	if len(all) > 0 && strings.Contains(all[0], "/") {
		ru.path = path.Clean(all[0])
	}
	return ru
}

// size is how specific a rule is.
func (ru *rule) size() int { return len(ru.all) }

// entry is the rule as it is written in a policy.
func (ru *rule) entry() string { return strings.Join(ru.all, " ") }

// isMark tells the words of a rule that mark a command wherever they stand in
// it: options (-f, --force, --pid=host) and settings (if=, of=/dev/sd*). All
// others are plain: they are the command's own words, in order.
func isMark(word string) bool { return isOption(word) || strings.Contains(word, "=") }

// maxPlain is how many plain words fit into a set of states, see startsWith.
// More are left out, which makes a denial wider.
const maxPlain = 62

// denies reports whether a command's arguments are what the rule denies.
func (ru *rule) denies(t *tool, args []string) bool {
	if !ru.startsWith(t, args) {
		return false
	}
	for _, w := range ru.all[1:] {
		if isMark(w) && !isIn(w, args) {
			return false
		}
	}
	return true
}

// startsWith reports whether the plain words of a command begin with those of
// the rule. What stands between them is passed over: options, with the value
// that follows if they take one, and settings (X=1).
//
// Where it is not known whether an option takes the next word as its value,
// both are tried, so that a denied word is found behind any option. A state is
// how many words of the rule have been found; now is the set of states before
// the word at hand, next before the one after it.
func (ru *rule) startsWith(t *tool, args []string) bool {
	var space [8]string
	plain := space[:0]
	for _, w := range ru.all[1:] {
		if !isMark(w) && len(plain) < maxPlain {
			plain = append(plain, w)
		}
	}
	if len(plain) == 0 {
		return true
	}
	found := uint64(1) << len(plain)
	now, next := uint64(1), uint64(0)
	options := true
	for _, a := range args {
		if now|next == 0 || a == Rest {
			return false
		}
		then, later := next, uint64(0)
		switch {
		case now == 0:
		case options && a == "--":
			options = false
			then |= now
		case options && isOption(a):
			// Only the options before the first word are in the table.
			flag, value := t.takes(a)
			if flag {
				then |= now & 1
			}
			if value {
				later |= now & 1
			}
			then |= now &^ 1
			if !strings.Contains(a, "=") {
				later |= now &^ 1
			}
		case isSetting(a):
			then |= now
		case t != nil && t.toolchain && a != "" && a[0] == '+':
			then |= now & 1
		default:
			then |= advance(plain, now, a)
		}
		if (then|later)&found != 0 {
			return true
		}
		now, next = then, later
	}
	return false
}

// advance moves every state on whose next word is a.
func advance(plain []string, states uint64, a string) uint64 {
	var out uint64
	for i, w := range plain {
		if states&(1<<i) != 0 && glob(w, a) {
			out |= 2 << i
		}
	}
	return out
}

// allows reports whether a command's arguments begin with exactly the words of
// the rule; only options that stand before the first of them, and that the
// program is known to have, are passed over. A word that is not known yet
// answers with unknown.
func (ru *rule) allows(t *tool, args []string, unknown bool) bool {
	words := ru.all[1:]
	if len(words) > 0 && !isOption(words[0]) {
		args = t.afterOptions(args)
	}
	for i, w := range words {
		switch {
		case i >= len(args):
			return false
		case args[i] == Rest:
			return unknown
		case isUnknown(args[i]):
			if !unknown {
				return false
			}
		case !glob(w, args[i]):
			return false
		}
	}
	return true
}

// isIn looks for an option or a setting of a rule among a command's arguments.
// An option does not stand behind "--".
func isIn(mark string, args []string) bool {
	option := isOption(mark)
	if isCluster(mark) && lettersIn(mark[1:], args) {
		return true
	}
	name, value, hasValue := strings.Cut(mark, "=")
	if hasValue && value == "" {
		value = "*"
	}
	for i, a := range args {
		switch {
		case a == Rest:
			return false
		case !option:
			if n, v, ok := strings.Cut(a, "="); ok && glob(name, n) && glob(value, v) {
				return true
			}
		case a == "--":
			return mark == "--"
		case !hasValue:
			if glob(mark, a) || strings.HasPrefix(a, mark) && strings.HasPrefix(a[len(mark):], "=") {
				return true
			}
		case hasOption(name, value, args[i:]):
			return true
		}
	}
	return false
}

// hasOption knows the ways to write an option with a value: --pid=host and
// --pid host; -v=x, -v x and -vx.
func hasOption(name, value string, args []string) bool {
	rest, ok := strings.CutPrefix(args[0], name)
	switch {
	case !ok:
		return false
	case rest == "":
		return len(args) > 1 && !isUnknown(args[1]) && glob(value, args[1])
	case rest[0] == '=':
		return glob(value, rest[1:])
	}
	return len(name) == 2 && glob(value, rest)
}

// isCluster is true of -f and -rf: letters that may be written together, apart
// and in any order. Longer ones are a word after a single dash.
func isCluster(mark string) bool {
	return isOption(mark) && len(mark) <= 4 && isLetters(mark[1:])
}

func lettersIn(letters string, args []string) bool {
	found := 0
	for _, a := range args {
		if a == "--" || a == Rest {
			break
		}
		const longest = 6
		if len(a) > longest || !isOption(a) || !isLetters(a[1:]) {
			continue
		}
		for i := range len(letters) {
			if strings.IndexByte(a, letters[i]) > 0 {
				found |= 1 << i
			}
		}
	}
	return found == 1<<len(letters)-1
}

func isOption(s string) bool { return len(s) > 1 && s[0] == '-' }

// isSetting is true of NAME=value.
func isSetting(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '=':
			return i > 0
		case c != '_' && !isLetter(c) && (i == 0 || c < '0' || c > '9'):
			return false
		}
	}
	return false
}

func isLetters(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) {
			return false
		}
	}
	return s != ""
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// glob compares a word with a pattern in which * stands for any characters.
func glob(pattern, s string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for {
		part, more, ok := strings.Cut(rest, "*")
		if !ok {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

// baseName is the last part of a path; a path that names no file has none.
func baseName(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		p = p[i+1:]
	}
	if p == "." || p == ".." {
		return ""
	}
	return p
}
