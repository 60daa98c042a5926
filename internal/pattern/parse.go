package pattern

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limits of one pattern. A pattern is written by a person, but may come with
// code that nobody has read yet: what it costs is bounded before it is paid.
const (
	maxText         = 16 << 10 // bytes of text
	maxDepth        = 32       // braces within braces
	maxAlternatives = 1000     // patterns without braces that it stands for
	maxTokens       = 64 << 10 // size of all of them
)

// Error says what is wrong with a pattern, and where.
type Error struct {
	Text   string
	Offset int // of the byte in Text where it goes wrong
	Msg    string
}

func (e *Error) Error() string {
	const longest = 100
	text := e.Text
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Sprintf("bad pattern %s: byte %d: %s", strconv.Quote(text), e.Offset+1, e.Msg)
}

// parse returns what the text stands for: one or more patterns without braces.
func parse(text string) ([][]component, error) {
	if isPlain(text) {
		return [][]component{plainComponents(text)}, nil
	}
	p := parser{text: text}
	flat, err := p.flatten()
	if err != nil {
		return nil, err
	}
	alternatives := make([][]component, len(flat))
	for i, tokens := range flat {
		if alternatives[i], err = p.split(tokens); err != nil {
			return nil, err
		}
	}
	return alternatives, nil
}

// isPlain reports whether the text is a clean path with nothing special in it.
// Most patterns are, and every start of a sandbox reads them all.
func isPlain(text string) bool {
	return len(text) <= maxText && strings.HasPrefix(text, "/") && !strings.ContainsAny(text, "*?[{}\\\x00") && path.Clean(text) == text
}

func plainComponents(path string) []component {
	components := make([]component, 0, strings.Count(path, "/"))
	for at := 0; at < len(path); {
		c := component{kind: literal}
		if c.name, at = nextName(path, at); c.name != "" {
			components = append(components, c)
		}
	}
	return components
}

type tokenKind uint8

const (
	run   tokenKind = iota // bytes that stand for themselves
	slash                  // between components
	star                   // *
	one                    // ?
	oneOf                  // a class
	group                  // braces
)

// token is a piece of a pattern.
type token struct {
	kind    tokenKind
	at      int       // offset in the text
	bytes   string    // of a run
	class   *class    // of a oneOf
	choices [][]token // of a group
}

type parser struct {
	text string
	at   int
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &Error{p.text, at, fmt.Sprintf(format, args...)}
}

// flatten reads the text and writes its braces out.
func (p *parser) flatten() ([][]token, error) {
	switch nul := strings.IndexByte(p.text, 0); {
	case p.text == "":
		return nil, p.fail(0, "empty; write an absolute path")
	case len(p.text) > maxText:
		return nil, p.fail(maxText, "longer than %d bytes; write several patterns", maxText)
	case nul >= 0:
		return nil, p.fail(nul, "NUL, which no path can hold")
	}
	tokens, err := p.sequence(0)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.measure(tokens); err != nil {
		return nil, err
	}
	return expand(tokens), nil
}

// sequence reads up to the end of the text or, inside braces, up to the comma
// or brace that ends this choice.
func (p *parser) sequence(depth int) ([]token, error) {
	var tokens []token
	if depth == 0 {
		tokens = make([]token, 0, 2*strings.Count(p.text, "/")+2)
	}
	for p.at < len(p.text) {
		at, c := p.at, p.text[p.at]
		if depth > 0 && (c == ',' || c == '}') {
			return tokens, nil
		}
		t, err := p.token(depth)
		if err != nil {
			return nil, err
		}
		t.at = at
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// token reads one token, which moves p.at past it.
func (p *parser) token(depth int) (token, error) {
	at := p.at
	p.at++
	switch p.text[at] {
	case '/':
		return token{kind: slash}, nil
	case '*':
		return token{kind: star}, nil
	case '?':
		return token{kind: one}, nil
	case '[':
		c, err := p.class()
		return token{kind: oneOf, class: c}, err
	case '{':
		choices, err := p.group(depth + 1)
		return token{kind: group, choices: choices}, err
	case '}':
		return token{}, p.fail(at, `} without {; write \} for a brace in a name`)
	case '\\':
		return p.escaped()
	}
	for p.at < len(p.text) && strings.IndexByte(`/*?[{},\`, p.text[p.at]) < 0 {
		p.at++
	}
	return token{kind: run, bytes: p.text[at:p.at]}, nil
}

// escaped reads the byte after a backslash. If it starts a longer character,
// the rest of it needs no escape.
func (p *parser) escaped() (token, error) {
	if p.at == len(p.text) {
		return token{}, p.fail(p.at-1, `\ before nothing; write \\ for a backslash in a name`)
	}
	if p.text[p.at] == '/' {
		return token{}, p.fail(p.at-1, `\ before a slash, which no name can hold`)
	}
	p.at++
	return token{kind: run, bytes: p.text[p.at-1 : p.at]}, nil
}

// group reads the choices after an opening brace.
func (p *parser) group(depth int) ([][]token, error) {
	open := p.at - 1
	if depth > maxDepth {
		return nil, p.fail(open, "more than %d braces inside one another; write several patterns", maxDepth)
	}
	var choices [][]token
	for {
		choice, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		choices = append(choices, choice)
		if p.at == len(p.text) {
			return nil, p.fail(open, `{ without }; write \{ for a brace in a name`)
		}
		p.at++
		if p.text[p.at-1] == ',' {
			continue
		}
		if len(choices) == 1 && choice == nil {
			return nil, p.fail(open, `nothing between { and }; write \{\} for braces in a name`)
		}
		return choices, nil
	}
}

// class reads what follows an opening bracket.
func (p *parser) class() (*class, error) {
	open := p.at - 1
	c := &class{}
	if p.at < len(p.text) && (p.text[p.at] == '!' || p.text[p.at] == '^') {
		c.negated = true
		p.at++
	}
	for p.at < len(p.text) && p.text[p.at] != ']' {
		at := p.at
		if strings.HasPrefix(p.text[at:], "[:") {
			return nil, p.fail(at, `named classes are not known; write a range such as a-z, or \[ for a bracket`)
		}
		lo, err := p.member(open)
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.startsRange() {
			p.at++
			if hi, err = p.member(open); err != nil {
				return nil, err
			}
		}
		if lo > hi {
			return nil, p.fail(at, "this range ends before it starts; swap its ends")
		}
		c.ranges = append(c.ranges, runeRange{lo, hi})
	}
	if p.at == len(p.text) {
		return nil, p.fail(open, `[ without ]; write \[ for a bracket in a name`)
	}
	p.at++
	if len(c.ranges) == 0 {
		return nil, p.fail(open, `nothing between [ and ]; write \[ and \] for brackets in a name`)
	}
	return c, nil
}

// startsRange reports whether a hyphen comes next that is not the last member
// of its class.
func (p *parser) startsRange() bool {
	rest := p.text[p.at:]
	return len(rest) > 1 && rest[0] == '-' && rest[1] != ']'
}

// member reads one character of the class that starts at open.
func (p *parser) member(open int) (rune, error) {
	if p.text[p.at] == '\\' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0, p.fail(open, `[ without ]; write \[ for a bracket in a name`)
	}
	r, width := character(p.text[p.at:])
	switch {
	case r == '/':
		return 0, p.fail(p.at, "a class with a slash, which no name can hold")
	case r == invalid:
		return 0, p.fail(p.at, "a class with a byte that is not UTF-8")
	}
	p.at += width
	return r, nil
}

// measure returns how many sequences without braces the tokens stand for, and
// how many tokens those have together.
func (p *parser) measure(tokens []token) (count, size int, err error) {
	count = 1
	for _, t := range tokens {
		if t.kind != group {
			size += count
			continue
		}
		choiceCount, choiceSize := 0, 0
		for _, choice := range t.choices {
			n, s, err := p.measure(choice)
			if err != nil {
				return 0, 0, err
			}
			choiceCount += n
			choiceSize += s
		}
		count, size = count*choiceCount, size*choiceCount+count*choiceSize
		if count > maxAlternatives {
			return 0, 0, p.fail(t.at, "stands for more than %d patterns; write several with fewer braces", maxAlternatives)
		}
		if size > maxTokens {
			return 0, 0, p.fail(t.at, "stands for too long a list of patterns; write several with fewer braces")
		}
	}
	return count, size, nil
}

// expand writes the braces out.
func expand(tokens []token) [][]token {
	if !slices.ContainsFunc(tokens, func(t token) bool { return t.kind == group }) {
		return [][]token{tokens}
	}
	out := [][]token{nil}
	for _, t := range tokens {
		tails := [][]token{{t}}
		if t.kind == group {
			tails = nil
			for _, choice := range t.choices {
				tails = append(tails, expand(choice)...)
			}
		}
		if len(tails) == 1 {
			for i := range out {
				out[i] = append(out[i], tails[0]...)
			}
			continue
		}
		var product [][]token
		for _, head := range out {
			for _, tail := range tails {
				product = append(product, slices.Concat(head, tail))
			}
		}
		out = product
	}
	return out
}

// split cuts tokens into components. Doubled slashes, "." and "**" at the end
// or after another "**" add nothing, and are left out.
func (p *parser) split(tokens []token) ([]component, error) {
	if len(tokens) == 0 || tokens[0].kind != slash {
		return nil, p.fail(0, "relative; start it with /, in every alternative")
	}
	components := make([]component, 0, len(tokens)/2+1)
	for len(tokens) > 0 {
		tokens = tokens[1:]
		end := slices.IndexFunc(tokens, func(t token) bool { return t.kind == slash })
		if end < 0 {
			end = len(tokens)
		}
		c := newComponent(tokens[:end])
		switch {
		case c.kind == literal && c.name == "..":
			return nil, p.fail(tokens[0].at, `".." as a name; write the path without it`)
		case c.kind == literal && (c.name == "" || c.name == "."):
		case c.kind == anyDepth && len(components) > 0 && components[len(components)-1].kind == anyDepth:
		default:
			components = append(components, c)
		}
		tokens = tokens[end:]
	}
	if n := len(components); n > 0 && components[n-1].kind == anyDepth {
		components = components[:n-1]
	}
	return components, nil
}
