package spec

import "strings"

// gitSetting is one "key = value" of a git configuration file. Section and key
// are lower case; a subsection keeps its case.
type gitSetting struct {
	section, subsection, key, value string
}

// parseGitConfig reads a git configuration file as git does, as far as values
// that name paths are concerned: comments, quotes, escapes, continued lines,
// and sections in both spellings. What git would reject is skipped here: a file
// git does not read starts nothing.
func parseGitConfig(data []byte) []gitSetting {
	s := gitScanner{in: string(data)}
	var out []gitSetting
	var section, subsection string
	for !s.done() {
		s.skip(" \t\r\n")
		switch {
		case s.done():
		case s.in[s.i] == '#' || s.in[s.i] == ';':
			s.line()
		case s.in[s.i] == '[':
			section, subsection = s.header()
		default:
			if key, value, ok := s.setting(); ok {
				out = append(out, gitSetting{section, subsection, key, value})
			}
		}
	}
	return out
}

type gitScanner struct {
	in string
	i  int
}

func (s *gitScanner) done() bool { return s.i >= len(s.in) }

func (s *gitScanner) skip(set string) {
	for !s.done() && strings.IndexByte(set, s.in[s.i]) >= 0 {
		s.i++
	}
}

// line skips the rest of the line.
func (s *gitScanner) line() {
	if n := strings.IndexByte(s.in[s.i:], '\n'); n >= 0 {
		s.i += n + 1
		return
	}
	s.i = len(s.in)
}

// header reads [section], [section.subsection] or [section "subsection"].
func (s *gitScanner) header() (section, subsection string) {
	s.i++
	start := s.i
	for !s.done() && strings.IndexByte("] \t\n", s.in[s.i]) < 0 {
		s.i++
	}
	section = strings.ToLower(s.in[start:s.i])
	if dot := strings.IndexByte(section, '.'); dot >= 0 {
		section, subsection = section[:dot], section[dot+1:]
	}
	s.skip(" \t")
	if !s.done() && s.in[s.i] == '"' {
		s.i++
		subsection = s.quoted()
	}
	s.skip(" \t")
	if !s.done() && s.in[s.i] == ']' {
		s.i++
	}
	return section, subsection
}

// quoted reads up to the closing quote of a subsection.
func (s *gitScanner) quoted() string {
	var b strings.Builder
	for !s.done() && s.in[s.i] != '\n' {
		ch := s.in[s.i]
		s.i++
		if ch == '"' {
			break
		}
		if ch == '\\' && !s.done() {
			ch = s.in[s.i]
			s.i++
		}
		b.WriteByte(ch)
	}
	return b.String()
}

// setting reads one key and its value; a key alone means true, and is of no
// interest here.
func (s *gitScanner) setting() (key, value string, ok bool) {
	start := s.i
	for !s.done() && strings.IndexByte("= \t\r\n", s.in[s.i]) < 0 {
		s.i++
	}
	key = strings.ToLower(s.in[start:s.i])
	s.skip(" \t")
	if s.done() || s.in[s.i] != '=' || key == "" {
		s.line()
		return "", "", false
	}
	s.i++
	s.skip(" \t")
	return key, s.value(), true
}

// value reads to the end of the line. Blanks at the end do not count unless
// quoted.
func (s *gitScanner) value() string {
	var b strings.Builder
	keep := 0 // length up to the last byte that counts
	inQuotes := false
	for !s.done() {
		ch := s.in[s.i]
		s.i++
		switch {
		case ch == '\n':
			return b.String()[:keep]
		case ch == '"':
			inQuotes = !inQuotes
			keep = b.Len()
			continue
		case (ch == '#' || ch == ';') && !inQuotes:
			s.line()
			return b.String()[:keep]
		case ch == '\\':
			if s.done() {
				return b.String()[:keep]
			}
			esc := s.in[s.i]
			s.i++
			if esc == '\r' && !s.done() && s.in[s.i] == '\n' {
				s.i++
				continue
			}
			switch esc {
			case '\n':
				continue
			case 'n':
				esc = '\n'
			case 't':
				esc = '\t'
			case 'b':
				esc = '\b'
			}
			b.WriteByte(esc)
			keep = b.Len()
			continue
		}
		blank := !inQuotes && (ch == ' ' || ch == '\t' || ch == '\r')
		if blank && b.Len() == 0 {
			continue
		}
		b.WriteByte(ch)
		if !blank {
			keep = b.Len()
		}
	}
	return b.String()[:keep]
}
