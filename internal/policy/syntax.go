package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// syntax reads once more what the parser has refused, to name the mistake in
// the words of whoever made it. Its methods return the first one they meet, or
// nil.
type syntax struct {
	*decoder
	i   int
	end int // of the last value
	// open are the brackets that are not closed yet.
	open []int
	// misled is set when a bracket was closed by one further to the left:
	// probably that was meant for another, and the one of suspect is missing.
	misled  bool
	suspect int
}

// errorf shows the line only inside an object: what has no braces is no policy,
// and somebody may have put a link to any file in the place of one.
func (s *syntax) errorf(offset int, hint, format string, args ...any) *Error {
	e := s.decoder.errorf(offset, "%s", plain.Text(fmt.Sprintf(format, args...)))
	e.Hint = hint
	if len(s.open) > 0 {
		e.Excerpt = excerpt(s.data, offset, e.Line)
	}
	return e
}

// place names an offset within a message.
func (s *syntax) place(offset int) string {
	p := s.pos(offset)
	return fmt.Sprintf("line %d, column %d", p.Line, p.Column)
}

func (s *syntax) done() bool { return s.i >= len(s.data) }

func (s *syntax) policy() *Error {
	if e := s.skip(); e != nil {
		return e
	}
	if s.done() {
		return s.errorf(s.i, "the least one is {}", "there is no policy in it")
	}
	if strings.IndexByte(`{["`, s.data[s.i]) < 0 {
		return s.errorf(s.i, "", "a policy begins with {")
	}
	if e := s.value(); e != nil {
		return e
	}
	last := s.end - 1
	if e := s.skip(); e != nil || s.done() {
		return e
	}
	if c := s.data[s.i]; c == '}' || c == ']' {
		return s.errorf(s.i, "one of the two is too many", "this %c closes nothing: the policy has ended in %s", c, s.place(last))
	}
	return s.errorf(s.i, "", "nothing may follow the policy, which has ended in %s", s.place(last))
}

// skip passes over blanks and comments.
func (s *syntax) skip() *Error {
	for !s.done() {
		rest := s.data[s.i:]
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == ' ' || r == '\t' || r == '\r' || r == '\n':
			s.i += n
		case bytes.HasPrefix(rest, []byte("//")):
			if e := s.lineComment(); e != nil {
				return e
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest[2:], []byte("*/"))
			if end < 0 {
				return s.errorf(s.i, "write */ at its end", "this comment is not closed")
			}
			s.i += end + 4
		case r == '#':
			return s.errorf(s.i, "", "a comment begins with //")
		case unicode.IsControl(r):
			return s.errorf(s.i, "remove it", "control character %U", r)
		case unicode.IsSpace(r) || unicode.Is(unicode.Cf, r):
			return s.errorf(s.i, "write a plain space", "%U is not a blank that JSON knows", r)
		default:
			return nil
		}
	}
	return nil
}

// lineComment passes over a comment to the end of its line. The parser refuses
// the two characters that end a line for some editors and not for it.
func (s *syntax) lineComment() *Error {
	text, _, _ := bytes.Cut(s.data[s.i:], []byte("\n"))
	if i := bytes.IndexAny(text, "\u2028\u2029"); i >= 0 {
		r, _ := utf8.DecodeRune(text[i:])
		return s.errorf(s.i+i, "remove it", "%U in a comment", r)
	}
	s.i += len(text)
	return nil
}

func (s *syntax) value() *Error {
	var e *Error
	switch s.data[s.i] {
	case '{':
		e = s.entries('}', s.member)
	case '[':
		e = s.entries(']', s.value)
	case '"':
		e = s.text()
	default:
		e = s.word()
	}
	s.end = s.i
	return e
}

// entries reads an object or a list to its closing bracket.
func (s *syntax) entries(closing byte, entry func() *Error) *Error {
	s.open = append(s.open, s.i)
	s.i++
	for {
		if e := s.skip(); e != nil {
			return e
		}
		if s.done() {
			return s.unclosed()
		}
		switch s.data[s.i] {
		case closing:
			s.close()
			return nil
		case '}', ']':
			return s.crossed()
		case ',':
			return s.errorf(s.i, "", "there is nothing before this comma")
		}
		if e := entry(); e != nil {
			return e
		}
		if e := s.separator(closing); e != nil {
			return e
		}
	}
}

// separator reads what stands after an entry. A closing bracket is left.
func (s *syntax) separator(closing byte) *Error {
	if e := s.skip(); e != nil {
		return e
	}
	if s.done() {
		return s.unclosed()
	}
	open := s.open[len(s.open)-1]
	afterString := s.i == s.end && s.data[s.end-1] == '"'
	switch c := s.data[s.i]; {
	case c == ',':
		s.i++
		return nil
	case c == closing:
		return nil
	case c == '}' || c == ']':
		return s.crossed()
	case c == ':' && closing == ']':
		return s.errorf(s.i, "write ] before the key, or { if keys are meant", "there is a key in the list that begins in %s", s.place(open))
	case c == ';':
		return s.errorf(s.i, "", "entries are separated by a comma")
	case afterString && c != '"':
		return s.errorf(s.i, `a quote in a string is written \"`, "the string has ended before this: a quote is missing, or there is one too many")
	}
	return s.errorf(s.end, "", "a comma is missing here")
}

func (s *syntax) unclosed() *Error {
	open := s.open[len(s.open)-1]
	if s.misled {
		open = s.suspect
	}
	return s.errorf(open, "", "this %c is not closed", s.data[open])
}

func (s *syntax) crossed() *Error {
	open := s.open[len(s.open)-1]
	return s.errorf(s.i, "", "the %c in %s must be closed before this %c", s.data[open], s.place(open), s.data[s.i])
}

// close closes the innermost bracket.
func (s *syntax) close() {
	last := len(s.open) - 1
	open := s.open[last]
	s.open = s.open[:last]
	depth, first := s.indentation(s.i)
	if before, _ := s.indentation(open); first && depth < before && !s.misled {
		s.misled, s.suspect = true, open
	}
	s.i++
}

// indentation counts the blanks a line begins with, and says whether they are
// all that stands before the offset.
func (s *syntax) indentation(offset int) (depth int, first bool) {
	line := s.data[bytes.LastIndexByte(s.data[:offset], '\n')+1 : offset]
	depth = len(line) - len(bytes.TrimLeft(line, " \t"))
	return depth, depth == len(line)
}

// member reads a key and its value.
func (s *syntax) member() *Error {
	if s.data[s.i] != '"' {
		return s.bareKey()
	}
	start := s.i
	if e := s.text(); e != nil {
		return e
	}
	end := s.i
	key := shorten(string(s.data[start:end]))
	if e := s.skip(); e != nil {
		return e
	}
	if s.done() {
		return s.unclosed()
	}
	switch s.data[s.i] {
	case ':':
	case '=':
		return s.errorf(s.i, "", "a key and its value are separated by a colon")
	case ',', '}', ']':
		return s.errorf(end, "a colon and a value follow a key", "the key %s has no value", key)
	default:
		return s.errorf(end, "", "a colon is missing here")
	}
	s.i++
	if e := s.skip(); e != nil {
		return e
	}
	if s.done() {
		return s.unclosed()
	}
	if strings.IndexByte(",}]", s.data[s.i]) >= 0 {
		return s.errorf(s.i, "", "the key %s has no value", key)
	}
	return s.value()
}

func (s *syntax) bareKey() *Error {
	if e := s.foreignQuote(); e != nil {
		return e
	}
	name := s.bareWord()
	if name == "" {
		return s.errorf(s.i, "", "%s is not the beginning of a key", s.character())
	}
	return s.errorf(s.i, "", "a key is written in double quotes: %s", quote(name))
}

// text reads a string.
func (s *syntax) text() *Error {
	start := s.i
	for s.i++; !s.done(); s.i++ {
		switch c := s.data[s.i]; {
		case c == '"':
			s.i++
			return nil
		case c == '\n' || c == '\r':
			return s.unquoted(start)
		case c == '\t':
			return s.errorf(s.i, "", `a tab in a string is written \t`)
		case c < ' ':
			return s.errorf(s.i, "", "control character %U in a string", c)
		case c == '\\':
			if e := s.escape(start); e != nil {
				return e
			}
		}
	}
	return s.unquoted(start)
}

func (s *syntax) unquoted(start int) *Error {
	return s.errorf(start, "", "this string has no quote at its end")
}

// escape reads what follows a backslash, up to its last character.
func (s *syntax) escape(start int) *Error {
	rest := s.data[s.i+1:]
	switch {
	case len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r':
		return s.unquoted(start)
	case strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0:
		s.i++
		return nil
	case rest[0] != 'u':
		r, _ := utf8.DecodeRune(rest)
		return s.errorf(s.i, `a backslash is written \\`, `\%c means nothing in a string`, r)
	}
	digits := rest[1:min(5, len(rest))]
	if _, err := strconv.ParseUint(string(digits), 16, 16); err != nil {
		return s.errorf(s.i, `a backslash is written \\`, `four hexadecimal digits follow \u in a string`)
	}
	s.i += 5
	return nil
}

// word reads true, false, null or a number, and knows what people write in
// their place.
func (s *syntax) word() *Error {
	if e := s.foreignQuote(); e != nil {
		return e
	}
	word := s.bareWord()
	if json.Valid([]byte(word)) {
		s.i += len(word)
		return nil
	}
	if word == "" {
		return s.errorf(s.i, "", "%s is not the beginning of a value", s.character())
	}
	switch strings.ToLower(word) {
	case "true", "yes", "on":
		return s.errorf(s.i, "", "%s is written true", word)
	case "false", "no", "off":
		return s.errorf(s.i, "", "%s is written false", word)
	case "none", "nil", "null", "undefined":
		return s.errorf(s.i, "leave the key out to say nothing", "%s is not a value", word)
	}
	digit := '0' <= word[0] && word[0] <= '9'
	switch {
	case digit && strings.ContainsFunc(word, unicode.IsLetter):
		return s.errorf(s.i, "", "a number with a unit is written in double quotes: %s", quote(word))
	case digit || strings.IndexByte("+-.", word[0]) >= 0:
		return s.errorf(s.i, "", "%s is not a number as JSON has them", shorten(word))
	}
	return s.errorf(s.i, "", "a string is written in double quotes: %s", quote(word))
}

// bareWord is what stands here without quotes.
func (s *syntax) bareWord() string {
	rest := s.data[s.i:]
	for i := 0; i < len(rest); {
		r, n := utf8.DecodeRune(rest[i:])
		comment := bytes.HasPrefix(rest[i:], []byte("//")) || bytes.HasPrefix(rest[i:], []byte("/*"))
		if comment || r == ' ' || !strconv.IsPrint(r) || strings.ContainsRune("{}[],:;=\"'`", r) {
			return string(rest[:i])
		}
		i += n
	}
	return string(rest)
}

// character is the one that stands here.
func (s *syntax) character() string {
	r, _ := utf8.DecodeRune(s.data[s.i:])
	return strconv.QuoteRune(r)
}

// foreignQuote knows the quotes of other languages and of word processors.
func (s *syntax) foreignQuote() *Error {
	const typographic = "“”„‟‘’‚‛«»"
	r, n := utf8.DecodeRune(s.data[s.i:])
	end := string(r)
	switch {
	case strings.ContainsRune(typographic, r):
		end = typographic
	case r != '\'' && r != '`':
		return nil
	}
	line, _, _ := bytes.Cut(s.data[s.i+n:], []byte("\n"))
	if i := bytes.IndexAny(line, end); i >= 0 {
		return s.errorf(s.i, "", "a string is written in double quotes: %s", quote(string(line[:i])))
	}
	return s.errorf(s.i, "", `%c does not begin a string; " does`, r)
}

// excerpt shows a line, or the part of it around the offset, and a mark below.
func excerpt(data []byte, offset, line int) string {
	const before, after = 60, 40 // characters
	begin := bytes.LastIndexByte(data[:offset], '\n') + 1
	rest, _, _ := bytes.Cut(data[offset:], []byte("\n"))
	head, tail := []rune(string(data[begin:offset])), []rune(string(bytes.TrimRight(rest, "\r")))
	if cut := len(head) - before; cut > 0 {
		head = append([]rune("..."), head[cut:]...)
	}
	if len(tail) > after {
		tail = append(tail[:after], []rune("...")...)
	}
	show := func(r rune) rune {
		switch {
		case r == '\t':
			return ' ' // wherever the terminal has its stops, the mark must stand below
		case !strconv.IsPrint(r):
			return '?'
		}
		return r
	}
	number := strconv.Itoa(line)
	return fmt.Sprintf("  %s | %s\n  %*s | %*s", number, strings.Map(show, string(head)+string(tail)),
		len(number), "", len(head)+1, "^")
}
