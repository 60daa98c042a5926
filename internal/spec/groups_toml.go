package spec

import (
	"slices"
	"strings"
)

// tomlString is a string somewhere in a TOML file, and the names that lead to
// it. Those in an array all have the names of the array.
type tomlString struct {
	path  []string
	value string
}

// parseTOML finds the strings of a TOML file. It accepts far more than TOML:
// what it cannot make sense of is passed over to the end of the line, because
// the tool whose file it is will complain about it.
func parseTOML(text string) []tomlString {
	s := tomlScanner{gitScanner: gitScanner{in: text}}
	table := []string{}
	for {
		s.skip(" \t\r\n")
		if s.done() {
			return s.found
		}
		if s.in[s.i] == '[' {
			s.skip("[")
			table = s.names()
		} else if names := s.names(); s.next('=') && len(names) > 0 {
			s.value(inTable(table, names), 0)
		}
		s.line()
	}
}

// inTable is a key of a table. Deeper than anybody looks there are no names.
func inTable(table, key []string) []string {
	if table == nil || len(table)+len(key) > maxDepth {
		return nil
	}
	return slices.Concat(table, key)
}

// tomlScanner is a place in a file, like the one in git's configuration.
type tomlScanner struct {
	gitScanner
	found []tomlString
}

// next skips blanks and the byte, if it comes next.
func (s *tomlScanner) next(ch byte) bool {
	s.skip(" \t")
	if s.done() || s.in[s.i] != ch {
		return false
	}
	s.i++
	return true
}

// names reads a dotted key.
func (s *tomlScanner) names() []string {
	var names []string
	for {
		s.skip(" \t")
		if s.done() {
			return names
		}
		if s.in[s.i] == '"' || s.in[s.i] == '\'' {
			names = append(names, s.text())
		} else {
			rest := s.in[s.i:]
			n := len(rest) - len(strings.TrimLeft(rest, wordBytes+"-"))
			if n == 0 {
				return names
			}
			names = append(names, rest[:n])
			s.i += n
		}
		if !s.next('.') {
			return names
		}
	}
}

// value reads one value and keeps the strings in it, if they have names. It
// always moves on, unless a value is missing.
func (s *tomlScanner) value(names []string, depth int) {
	s.skip(" \t")
	switch {
	case s.done():
	case depth > maxDepth:
		s.i = len(s.in)
	case s.in[s.i] == '"' || s.in[s.i] == '\'':
		if text := s.text(); names != nil {
			s.found = append(s.found, tomlString{names, text})
		}
	case s.in[s.i] == '[':
		s.each(']', func() { s.value(names, depth+1) })
	case s.in[s.i] == '{':
		s.each('}', func() {
			if more := s.names(); s.next('=') && len(more) > 0 {
				s.value(inTable(names, more), depth+1)
			}
		})
	default:
		for !s.done() && strings.IndexByte(",]}#\n", s.in[s.i]) < 0 {
			s.i++
		}
	}
}

// each reads the elements of an array or inline table, up to its end.
func (s *tomlScanner) each(end byte, element func()) {
	s.i++
	for {
		s.skip(" \t\r\n,")
		switch {
		case s.done():
			return
		case s.in[s.i] == end:
			s.i++
			return
		case s.in[s.i] == '#':
			s.line()
			continue
		}
		before := s.i
		if element(); s.i == before {
			s.i++
		}
	}
}

// text reads a string in one of the four kinds of quotation marks. One on a
// single line ends there in any case.
func (s *tomlScanner) text() string {
	quote := s.in[s.i : s.i+1]
	long := strings.HasPrefix(s.in[s.i:], strings.Repeat(quote, 3))
	if long {
		quote = strings.Repeat(quote, 3)
	}
	s.i += len(quote)
	var b strings.Builder
	for !s.done() {
		if strings.HasPrefix(s.in[s.i:], quote) {
			s.i += len(quote)
			break
		}
		ch := s.in[s.i]
		if ch == '\n' && !long {
			break
		}
		if s.i++; ch == '\\' && quote[0] == '"' && !s.done() {
			// Of the escapes only those of these two are undone: no host needs
			// another, and none passes with a backslash in it.
			if next := s.in[s.i]; next == '"' || next == '\\' {
				ch = next
				s.i++
			}
		}
		b.WriteByte(ch)
	}
	return b.String()
}
