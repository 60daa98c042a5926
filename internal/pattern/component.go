package pattern

import (
	"slices"
	"strings"
	"unicode/utf8"
)

type componentKind uint8

const (
	literal  componentKind = iota // one name
	wild                          // names that match a glob
	anyDepth                      // **
)

// component is what a pattern says about one name, or with anyDepth about any
// number of them.
type component struct {
	kind componentKind
	name string // of a literal
	glob *glob  // of a wild one
}

// newComponent takes tokens without slashes and groups.
func newComponent(tokens []token) component {
	isStar := func(t token) bool { return t.kind == star }
	if len(tokens) == 2 && isStar(tokens[0]) && isStar(tokens[1]) {
		return component{kind: anyDepth}
	}
	if slices.ContainsFunc(tokens, func(t token) bool { return t.kind != run }) {
		return component{kind: wild, glob: newGlob(tokens)}
	}
	if len(tokens) == 1 {
		return component{kind: literal, name: tokens[0].bytes}
	}
	var name strings.Builder
	for _, t := range tokens {
		name.WriteString(t.bytes)
	}
	return component{kind: literal, name: name.String()}
}

// glob matches single names. It has at least one wildcard.
type glob struct {
	pieces []piece
	// The bytes every matching name starts and ends with; they are all there is
	// to look at if simple is set, which means head*tail.
	head, tail string
	simple     bool
}

// piece is a part of a glob. Other than a star, it has one way to match at a
// given place.
type piece struct {
	kind tokenKind
	// bytes of a run are valid UTF-8, or one byte that is not.
	bytes string
	class *class
}

func newGlob(tokens []token) *glob {
	g := &glob{}
	var literal strings.Builder
	endRun := func() {
		g.pieces = appendRuns(g.pieces, literal.String())
		literal.Reset()
	}
	for _, t := range tokens {
		if t.kind == run {
			literal.WriteString(t.bytes)
			continue
		}
		endRun()
		if n := len(g.pieces); t.kind == star && n > 0 && g.pieces[n-1].kind == star {
			continue
		}
		g.pieces = append(g.pieces, piece{kind: t.kind, class: t.class})
	}
	endRun()

	middle := g.pieces
	if first := middle[0]; first.kind == run {
		g.head, middle = first.bytes, middle[1:]
	}
	if last := middle[len(middle)-1]; last.kind == run {
		g.tail, middle = last.bytes, middle[:len(middle)-1]
	}
	g.simple = len(middle) == 1 && middle[0].kind == star && utf8.ValidString(g.head) && utf8.ValidString(g.tail)
	return g
}

// appendRuns appends the bytes as runs, each of which starts and ends where a
// character of a matching name does.
func appendRuns(pieces []piece, bytes string) []piece {
	for bytes != "" {
		end := 0
		for end < len(bytes) {
			r, width := character(bytes[end:])
			if r == invalid {
				break
			}
			end += width
		}
		end = max(end, 1)
		pieces = append(pieces, piece{kind: run, bytes: bytes[:end]})
		bytes = bytes[end:]
	}
	return pieces
}

func (g *glob) match(name string) bool {
	if g.simple {
		return len(name) >= len(g.head)+len(g.tail) && strings.HasPrefix(name, g.head) && strings.HasSuffix(name, g.tail)
	}
	return g.matchPieces(name)
}

// matchPieces tries for each star the shortest run first, and never needs to go
// back behind the latest star: whatever an earlier one could take in addition,
// the latest can take as well.
func (g *glob) matchPieces(name string) bool {
	at, next := 0, 0           // in name and pieces
	starAt, afterStar := 0, -1 // where the latest star ends, and what follows it
	for {
		switch {
		case next < len(g.pieces) && g.pieces[next].kind == star:
			next++
			if next == len(g.pieces) {
				return true
			}
			starAt, afterStar = at, next
			continue
		case next == len(g.pieces) && at == len(name):
			return true
		case next < len(g.pieces):
			if width := g.pieces[next].width(name[at:]); width > 0 {
				at += width
				next++
				continue
			}
		}
		if afterStar < 0 || starAt == len(name) {
			return false
		}
		_, width := character(name[starAt:])
		starAt += width
		at, next = starAt, afterStar
	}
}

// width returns how many bytes the piece matches at the start of rest, 0 if it
// does not match.
func (p *piece) width(rest string) int {
	if rest == "" {
		return 0
	}
	if p.kind == run && !strings.HasPrefix(rest, p.bytes) {
		return 0
	}
	if p.kind == run && (len(p.bytes) > 1 || p.bytes[0] < utf8.RuneSelf) {
		return len(p.bytes)
	}
	r, width := character(rest)
	switch {
	case p.kind == run && r != invalid:
		return 0 // the byte is the start of a longer character
	case p.kind == oneOf && !p.class.has(r):
		return 0
	}
	return width
}

// key tells globs apart that match different names.
func (g *glob) key() string {
	var b strings.Builder
	for _, p := range g.pieces {
		switch p.kind {
		case run:
			b.WriteString(Quote(p.bytes))
		case star:
			b.WriteByte('*')
		case one:
			b.WriteByte('?')
		case oneOf:
			p.class.writeKey(&b)
		}
	}
	return b.String()
}

// class is a set of characters.
type class struct {
	ranges  []runeRange
	negated bool
}

type runeRange struct{ lo, hi rune }

func (c *class) has(r rune) bool {
	for _, within := range c.ranges {
		if within.lo <= r && r <= within.hi {
			return !c.negated
		}
	}
	return c.negated
}

// writeKey writes members in a fixed form, so that none of them can be taken
// for the end.
func (c *class) writeKey(b *strings.Builder) {
	b.WriteByte('[')
	if c.negated {
		b.WriteByte('!')
	}
	for _, r := range c.ranges {
		b.WriteByte('\\')
		b.WriteRune(r.lo)
		b.WriteByte('-')
		b.WriteRune(r.hi)
	}
	b.WriteByte(']')
}

// invalid stands for a byte that is not part of a UTF-8 character. It is in no
// range, and in every negated class.
const invalid rune = -1

// character returns the first character of a string that is not empty, and its
// width in bytes.
func character(s string) (rune, int) {
	if s[0] < utf8.RuneSelf {
		return rune(s[0]), 1
	}
	r, width := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && width == 1 {
		return invalid, 1
	}
	return r, width
}
