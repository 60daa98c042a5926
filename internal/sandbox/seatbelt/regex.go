package seatbelt

import (
	"errors"
	"strings"
)

// Expressions are over bytes. A denial must hold for every spelling under which
// the file system finds the same file, and may deny a little more: letters match
// in both cases, and what is not ASCII, whose spellings are many, matches anything
// within a name. A grant is about exactly what is written.

// Errors say what an expression cannot.
var (
	errDeep  = errors.New("only names in a directory, and with ** names anywhere below one, can be denied whatever is renamed")
	errClass = errors.New("a class can hold letters, digits, and . _ - only")
	// Two of them in a grant would match the two bytes of one character.
	errNegated = errors.New("a grant cannot have a class of what is not in it")
	errBrace   = errors.New("alternatives cannot be empty, and cannot hold slashes")
)

// foreign matches a run of bytes that are not printable ASCII.
const foreign = "[^ -~]+"

// folded is the beginning of an expression for a path in every spelling.
func folded(p string) string {
	if p == "/" {
		return "^"
	}
	return "^" + foldedName(p)
}

// foldedName is folded for a part of a path.
func foldedName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if isASCII(name[i]) {
			b.WriteString(foldedByte(name[i]))
			continue
		}
		for i+1 < len(name) && !isASCII(name[i+1]) {
			i++
		}
		b.WriteString("[^/]+")
	}
	return b.String()
}

// foldedByte matches a character in both cases. Two letters have a third form
// that file systems take for the same: the Kelvin sign, and the long s.
func foldedByte(c byte) string {
	lower, upper := c|0x20, c&^0x20
	switch {
	case lower == 'k' || lower == 's':
		return "([" + string(lower) + string(upper) + "]|" + foreign + ")"
	case isLetter(c):
		return "[" + string(lower) + string(upper) + "]"
	}
	return quoted(c)
}

// quoted takes the meaning from a character.
func quoted(c byte) string {
	if strings.IndexByte(`.^$*+?()[]{}|\`, c) >= 0 {
		return `\` + string(rune(c))
	}
	return string([]byte{c})
}

func isASCII(c byte) bool { return c >= ' ' && c <= '~' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// exact is the expression for a pattern and all below what it matches.
func exact(text string) (string, error) {
	var b strings.Builder
	b.WriteString("^")
	for _, name := range components(text) {
		if name == "**" {
			b.WriteString("(/.*)?")
			continue
		}
		expression, err := component(name, false)
		if err != nil {
			return "", err
		}
		b.WriteString("/" + expression)
	}
	return b.String() + end, nil
}

// split takes a pattern apart into a directory without wildcards and a name in it
// or, if anywhere is set, below it.
func split(text string) (dir, name string, anywhere bool, err error) {
	parts := components(text)
	for len(parts) > 1 && parts[len(parts)-1] == "**" {
		parts = parts[:len(parts)-1] // what is below is meant anyway
	}
	name = parts[len(parts)-1]
	parts = parts[:len(parts)-1]
	for len(parts) > 0 && parts[len(parts)-1] == "**" {
		anywhere = true
		parts = parts[:len(parts)-1]
	}
	var b strings.Builder
	for _, part := range parts {
		plain, ok := unquoted(part)
		if !ok {
			return "", "", false, errDeep
		}
		b.WriteString("/" + plain)
	}
	if b.Len() == 0 {
		return "/", name, anywhere, nil
	}
	return b.String(), name, anywhere, nil
}

// components splits a pattern at slashes, but for those in braces and classes.
func components(text string) (list []string) {
	depth, class, start := 0, false, 1
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '/' && depth == 0:
			list = append(list, text[start:i])
			start = i + 1
		}
	}
	return append(list, text[min(start, len(text)):])
}

// unquoted is a component without wildcards as the name it means.
func unquoted(part string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] == '\\' && i+1 < len(part) {
			i++
		} else if strings.IndexByte("*?[{", part[i]) >= 0 {
			return "", false
		}
		b.WriteByte(part[i])
	}
	return b.String(), true
}

// component is the expression for one component of a pattern, in every spelling if
// fold is set.
func component(text string, fold bool) (string, error) {
	c := &converter{text: text, fold: fold}
	if err := c.sequence(0); err != nil {
		return "", err
	}
	return c.out.String(), nil
}

type converter struct {
	text string
	at   int
	fold bool
	out  strings.Builder
}

// sequence converts up to the end, or in braces up to what ends an alternative.
func (c *converter) sequence(depth int) error {
	for start := c.at; c.at < len(c.text); {
		ch := c.text[c.at]
		if depth > 0 && (ch == ',' || ch == '}') {
			if c.at == start {
				return errBrace
			}
			return nil
		}
		c.at++
		if err := c.one(ch, depth); err != nil {
			return err
		}
	}
	if depth > 0 {
		return errBrace
	}
	return nil
}

func (c *converter) one(ch byte, depth int) error {
	switch ch {
	case '*':
		c.out.WriteString("[^/]*")
	case '?':
		c.out.WriteString(c.orForeign("[ -.0-~]"))
	case '[':
		return c.class()
	case '{':
		return c.alternatives(depth + 1)
	case '/':
		return errBrace
	case '\\':
		if c.at < len(c.text) {
			ch = c.text[c.at]
			c.at++
		}
		c.literal(ch)
	default:
		c.literal(ch)
	}
	return nil
}

func (c *converter) literal(ch byte) {
	switch {
	case !c.fold:
		c.out.WriteString(quoted(ch))
	case isASCII(ch):
		c.out.WriteString(foldedByte(ch))
	default:
		for c.at < len(c.text) && !isASCII(c.text[c.at]) {
			c.at++
		}
		c.out.WriteString("[^/]+")
	}
}

func (c *converter) alternatives(depth int) error {
	c.out.WriteByte('(')
	for {
		if err := c.sequence(depth); err != nil {
			return err
		}
		c.at++
		if c.text[c.at-1] == '}' {
			c.out.WriteByte(')')
			return nil
		}
		c.out.WriteByte('|')
	}
}

// orForeign adds characters of several bytes to a class, for a denial. A grant does
// without: it cannot tell one of them from two.
func (c *converter) orForeign(class string) string {
	if !c.fold {
		return class
	}
	return "(" + class + "|" + foreign + ")"
}

// class converts a class of plain characters.
func (c *converter) class() error {
	inside, _, ok := strings.Cut(c.text[c.at:], "]")
	if !ok {
		return errClass
	}
	c.at += len(inside) + 1
	set := strings.TrimLeft(inside, "!^")
	negated := len(inside) - len(set)
	if set == "" || negated > 1 || !isPlain(set) {
		return errClass
	}
	switch {
	case negated == 1 && !c.fold:
		return errNegated
	case negated == 1:
		c.out.WriteString(c.orForeign("[^/" + set + "]"))
	case c.fold:
		c.out.WriteString(c.orForeign("[" + strings.ToLower(set) + "]|[" + strings.ToUpper(set) + "]"))
	default:
		c.out.WriteString("[" + set + "]")
	}
	return nil
}

// isPlain says whether a class means the same to everybody, in both cases: ranges
// are of letters of one case, or of digits, and a hyphen otherwise is the last.
func isPlain(set string) bool {
	for i := 0; i < len(set); i++ {
		kind := kindOf(set[i])
		if kind == 0 || set[i] == '-' && i != len(set)-1 {
			return false
		}
		if i+2 < len(set) && set[i+1] == '-' {
			if kind == '.' || kindOf(set[i+2]) != kind || set[i+2] < set[i] {
				return false
			}
			i += 2
		}
	}
	return true
}

// kindOf is zero for a character that a class cannot hold.
func kindOf(c byte) byte {
	switch {
	case c >= 'a' && c <= 'z':
		return 'a'
	case c >= 'A' && c <= 'Z':
		return 'A'
	case c >= '0' && c <= '9':
		return '0'
	case strings.IndexByte("._-", c) >= 0:
		return '.'
	}
	return 0
}
