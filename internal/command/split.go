package command

import "strings"

// Split is a small Splitter. It knows quotes, lists, pipelines, subshells and
// substitutions, and takes each command on its own, whatever stands around it;
// it does not know here-documents or what a function's name hides. Package line
// has a full parser, for programs that can afford to link one.
func Split(text string) [][]string {
	var out [][]string
	for _, s := range splitShell(text) {
		out = append(out, s.argv)
	}
	return out
}

// simple is one command of a shell text.
type simple struct {
	argv []string
	// writes means that its output goes to a file.
	writes bool
}

func splitShell(text string) []simple {
	var out []simple
	// Shells drop NUL bytes.
	s := scanner{text: strings.ReplaceAll(text, "\x00", ""), out: &out}
	s.commands(0)
	return out
}

// scanner reads a shell text from left to right, once.
type scanner struct {
	text string
	pos  int
	out  *[]simple

	// The command and the word at hand.
	now     simple
	word    []byte
	isWord  bool   // a word has begun, though it may be empty
	isRest  bool   // it may become any number of words
	brace   bool   // it has a { that no quote hides
	ended   bool   // words after this one are not known
	target  string // operator whose target this word is
	nesting int
}

// commands reads until the text ends, or until the parenthesis that the caller
// has read is closed.
func (s *scanner) commands(nesting int) {
	s.nesting = nesting
	open := 0
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case ' ', '\t', '\r':
			s.endWord()
		case '&':
			if strings.HasPrefix(s.text[s.pos:], ">") {
				s.redirect("&")
				continue
			}
			s.endCommand()
		case '\n', ';', '|':
			s.endCommand()
		case '(':
			s.endCommand()
			open++
		case ')':
			s.endCommand()
			if open--; open < 0 && nesting > 0 {
				return
			}
		case '<', '>':
			s.pos--
			s.redirect("")
		case '#':
			if s.isWord {
				s.add(c)
				continue
			}
			s.skipLine()
		default:
			s.part(c)
		}
	}
	s.endCommand()
}

// part reads a piece of a word that begins with c.
func (s *scanner) part(c byte) {
	s.isWord = true
	switch c {
	case '\'':
		s.single()
	case '"':
		s.double()
	case '\\':
		if s.pos >= len(s.text) {
			return
		}
		if c := s.text[s.pos]; c != '\n' {
			s.add(c)
		}
		s.pos++
	case '$':
		s.expansion(false)
	case '`':
		s.backquoted(false)
	case '*', '?', '[':
		s.unknown()
	default:
		s.brace = s.brace || c == '{'
		s.add(c)
	}
}

func (s *scanner) add(c byte) {
	s.isWord = true
	s.word = append(s.word, c)
}

func (s *scanner) unknown() {
	if n := len(s.word); n == 0 || s.word[n-1] != 0 {
		s.word = append(s.word, Unknown...)
	}
	s.isWord = true
}

func (s *scanner) single() {
	end := strings.IndexByte(s.text[s.pos:], '\'')
	if end < 0 {
		s.isRest = true
		s.pos = len(s.text)
		return
	}
	s.word = append(s.word, s.text[s.pos:s.pos+end]...)
	s.pos += end + 1
}

func (s *scanner) double() {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '"':
			return
		case '$':
			s.expansion(true)
		case '`':
			s.backquoted(true)
		case '\\':
			if s.pos < len(s.text) && strings.IndexByte("$`\"\\\n", s.text[s.pos]) >= 0 {
				if c = s.text[s.pos]; c != '\n' {
					s.add(c)
				}
				s.pos++
				continue
			}
			s.add(c)
		default:
			s.add(c)
		}
	}
	s.isRest = true
}

// expansion reads what follows a dollar sign. What it becomes is not known; the
// commands in it are.
func (s *scanner) expansion(quoted bool) {
	if s.pos >= len(s.text) {
		s.add('$')
		return
	}
	switch c := s.text[s.pos]; {
	case c == '(':
		s.pos++
		s.nested()
	case c == '{':
		end := strings.IndexByte(s.text[s.pos:], '}')
		if end < 0 {
			end = len(s.text) - s.pos - 1
		}
		s.pos += end + 1
	case c == '\'' && !quoted:
		s.pos++
		s.ansi()
		return
	case c == '"' && !quoted:
		return
	case isLetter(c) || c == '_':
		for s.pos < len(s.text) && (isLetter(s.text[s.pos]) || s.text[s.pos] == '_' || s.text[s.pos] >= '0' && s.text[s.pos] <= '9') {
			s.pos++
		}
	case strings.IndexByte("0123456789@*#?-$!", c) >= 0:
		s.pos++
		s.isRest = s.isRest || c == '@'
	default:
		s.add('$')
		return
	}
	s.unknown()
	s.isRest = s.isRest || !quoted
}

// ansi reads $'...'. What a backslash makes of the rest is left unknown.
func (s *scanner) ansi() {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '\'':
			return
		case '\\':
			s.pos = min(s.pos+1, len(s.text))
			s.unknown()
		default:
			s.add(c)
		}
	}
	s.isRest = true
}

// nested reads the commands of $(...).
func (s *scanner) nested() {
	if s.nesting >= maxNesting {
		s.pos = len(s.text)
		return
	}
	in := scanner{text: s.text, pos: s.pos, out: s.out}
	in.commands(s.nesting + 1)
	s.pos = in.pos
}

// backquoted reads the commands of `...`.
func (s *scanner) backquoted(quoted bool) {
	var text []byte
	for s.pos < len(s.text) && s.text[s.pos] != '`' {
		c := s.text[s.pos]
		s.pos++
		if c == '\\' && s.pos < len(s.text) && strings.IndexByte("$`\\", s.text[s.pos]) >= 0 {
			c = s.text[s.pos]
			s.pos++
		}
		text = append(text, c)
	}
	s.pos = min(s.pos+1, len(s.text))
	if s.nesting < maxNesting {
		in := scanner{text: string(text), out: s.out}
		in.commands(s.nesting + 1)
	}
	s.unknown()
	s.isRest = s.isRest || !quoted
}

// redirect reads an operator such as 2>&1, >> or <, after its leading &.
func (s *scanner) redirect(operator string) {
	if s.isWord && strings.Trim(string(s.word), "0123456789") == "" {
		s.word, s.isWord = s.word[:0], false
	}
	s.endWord()
	from := s.pos
	for s.pos < len(s.text) && strings.IndexByte("<>&|", s.text[s.pos]) >= 0 {
		s.pos++
	}
	operator += s.text[from:s.pos]
	if strings.HasPrefix(s.text[s.pos:], "(") {
		// <(...) is a word, and a command.
		s.pos++
		s.nested()
		s.unknown()
		return
	}
	s.target = operator
}

func (s *scanner) endWord() {
	if !s.isWord {
		return
	}
	word := string(s.word)
	if s.brace && word != "{" && strings.Contains(word, "}") && (strings.Contains(word, ",") || strings.Contains(word, "..")) {
		s.isRest = true
	}
	switch {
	case s.target != "":
		isDescriptor := strings.HasSuffix(s.target, "&") && strings.Trim(word, "0123456789-") == ""
		s.now.writes = s.now.writes || strings.Contains(s.target, ">") && word != "/dev/null" && !isDescriptor
	case s.ended:
	case s.isRest:
		s.now.argv = append(s.now.argv, Rest)
		s.ended = true
	default:
		s.now.argv = append(s.now.argv, word)
	}
	s.word, s.isWord, s.isRest, s.brace, s.target = s.word[:0], false, false, false, ""
}

func (s *scanner) endCommand() {
	s.endWord()
	if len(s.now.argv) > 0 || s.now.writes {
		*s.out = append(*s.out, s.now)
	}
	s.now, s.ended, s.target = simple{}, false, ""
}

func (s *scanner) skipLine() {
	if end := strings.IndexByte(s.text[s.pos:], '\n'); end >= 0 {
		s.pos += end
		return
	}
	s.pos = len(s.text)
}
