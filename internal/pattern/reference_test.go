package pattern

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// referenceMatch decides from the text of a good pattern, by the sentences at
// the package's documentation and as plainly as possible. It takes exponential
// time.
func referenceMatch(text, path string) bool {
	for _, flat := range referenceExpand(text) {
		if referenceComponents(referenceSplit(flat), referenceSplit(path)) {
			return true
		}
	}
	return false
}

// referenceExpand replaces the first braces by each of their choices, and goes
// on with the results.
func referenceExpand(text string) []string {
	open, depth, start := -1, 0, 0
	var choices []string
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '[':
			for i++; text[i] != ']'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '{':
			if depth++; depth == 1 {
				open, start = i, i+1
			}
		case c == ',' && depth == 1:
			choices = append(choices, text[start:i])
			start = i + 1
		case c == '}':
			if depth--; depth > 0 {
				continue
			}
			choices = append(choices, text[start:i])
			var out []string
			for _, choice := range choices {
				out = append(out, referenceExpand(text[:open]+choice+text[i+1:])...)
			}
			return out
		}
	}
	return []string{text}
}

func referenceSplit(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "/"), func(s string) bool { return s == "" || s == "." || s == `\.` })
}

func referenceComponents(patterns, names []string) bool {
	switch {
	case len(patterns) == 0:
		return true // the rest of the path is below what matched
	case patterns[0] == "**":
		return referenceComponents(patterns[1:], names) || len(names) > 0 && referenceComponents(patterns, names[1:])
	case len(names) == 0:
		return false
	}
	return referenceName(patterns[0], names[0]) && referenceComponents(patterns[1:], names[1:])
}

// referenceName keeps the set of places in the name up to which the pattern so
// far can match.
func referenceName(pattern, name string) bool {
	text, p := referenceCharacters(name), referenceCharacters(withoutIdleEscapes(pattern))
	places := map[int]bool{0: true}
	for i := 0; i < len(p); i++ {
		accepts := func(c rune) bool { return c == p[i] }
		switch p[i] {
		case '*':
			longer := map[int]bool{}
			for place := range places {
				for end := place; end <= len(text); end++ {
					longer[end] = true
				}
			}
			places = longer
			continue
		case '?':
			accepts = func(rune) bool { return true }
		case '[':
			accepts, i = referenceClass(p, i)
		case '\\':
			i++
		}
		moved := map[int]bool{}
		for place := range places {
			if place < len(text) && accepts(text[place]) {
				moved[place+1] = true
			}
		}
		places = moved
	}
	return places[len(text)]
}

// referenceClass reads the class at p[i] and returns where it ends.
func referenceClass(p []rune, i int) (accepts func(rune) bool, end int) {
	negated := p[i+1] == '!' || p[i+1] == '^'
	if negated {
		i++
	}
	var ranges [][2]rune
	for i++; p[i] != ']'; i++ {
		if p[i] == '\\' {
			i++
		}
		r := [2]rune{p[i], p[i]}
		if p[i+1] == '-' && p[i+2] != ']' {
			if i += 2; p[i] == '\\' {
				i++
			}
			r[1] = p[i]
		}
		ranges = append(ranges, r)
	}
	return func(c rune) bool {
		within := slices.ContainsFunc(ranges, func(r [2]rune) bool { return r[0] <= c && c <= r[1] })
		return within != negated
	}, i
}

// withoutIdleEscapes removes escapes before bytes beyond ASCII, where they do
// nothing but hide the character from the decoder.
func withoutIdleEscapes(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			if i++; pattern[i] < utf8.RuneSelf {
				b.WriteByte('\\')
			}
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// referenceCharacters returns characters, with numbers beyond Unicode for bytes
// that are not part of one.
func referenceCharacters(s string) []rune {
	var out []rune
	for s != "" {
		r, width := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && width == 1 {
			r = utf8.MaxRune + 1 + rune(s[0])
		}
		out = append(out, r)
		s = s[width:]
	}
	return out
}
