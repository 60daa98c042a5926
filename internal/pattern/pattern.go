// Package pattern decides which rule of an ordered list is the first that
// matches a path.
//
// A pattern is an absolute path whose components may hold wildcards:
//
//	?        one character
//	*        any run of characters, also none
//	[a-z]    one character of a class; [!a] and [^a]: one that is not in it
//	{a,b}    either; may hold slashes, and braces in turn
//	**       as a whole component: any number of components, also none
//	\        takes the meaning from the character after it
//
// A pattern that matches a path also covers everything below it, so a "/**" at
// the end adds nothing. Names that start with a dot are like any others. Names
// are bytes: a character is one that UTF-8 encodes, or else a single byte, and
// no two different names are ever taken for one another.
//
// A component's wildcards are matched here and not by doublestar, whose rules
// they follow, because it compares decoded characters: to it, all bytes that are
// not UTF-8 are the same.
//
// No answer takes longer than the length of the path times the length of the
// patterns, whatever they are. Paths given to this package are absolute and
// clean.
package pattern

import "strings"

// Pattern is one compiled pattern.
type Pattern struct {
	text string
	set  *Set
}

// Compile reads a pattern. Its errors are of type *Error.
func Compile(text string) (Pattern, error) {
	alternatives, err := parse(text)
	if err != nil {
		return Pattern{}, err
	}
	b := newBuilder(1)
	b.add(0, alternatives)
	return Pattern{text, newSet(b)}, nil
}

func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches the path or an ancestor of it.
func (p Pattern) Match(path string) bool { return p.set.First(path) == 0 }

// Literal returns the path that a pattern without wildcards means, without its
// escapes. A "/**" at the end does not count as a wildcard, since it changes
// nothing. A bad pattern is not literal.
func Literal(text string) (path string, ok bool) {
	alternatives, err := parse(text)
	if err != nil || len(alternatives) != 1 {
		return "", false
	}
	names := literals(alternatives[0])
	return "/" + strings.Join(names, "/"), len(names) == len(alternatives[0])
}

// Base returns the longest path without wildcards that everything a pattern
// matches is, or is below: "/p" for "/p/**/.env", and the path itself for a
// literal one. It is empty for a bad pattern.
func Base(text string) string {
	alternatives, err := parse(text)
	if err != nil {
		return ""
	}
	base := literals(alternatives[0])
	for _, a := range alternatives[1:] {
		names := literals(a)
		same := 0
		for same < min(len(base), len(names)) && base[same] == names[same] {
			same++
		}
		base = base[:same]
	}
	return "/" + strings.Join(base, "/")
}

// literals returns the names before the first component with a wildcard.
func literals(components []component) []string {
	var names []string
	for _, c := range components {
		if c.kind != literal {
			break
		}
		names = append(names, c.name)
	}
	return names
}

// Quote returns the pattern that means exactly this path, to put names that are
// not known beforehand in front of a pattern.
func Quote(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`*?[{},\`, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// wildcards are what makes an entry of a policy a pattern.
const wildcards = "*?[{"

// Entry returns the entry of a policy that names exactly this path.
func Entry(path string) string {
	if !strings.ContainsAny(path, wildcards) {
		return path
	}
	return Quote(path)
}

// Plain returns the path that an entry without wildcards names, and false for one
// with. A "/**" at the end is none: a path names all below it anyway. A backslash
// stands for itself unless it is needed to take a wildcard for what it is.
func Plain(entry string) (path string, ok bool) {
	path = entry
	if path == "/**" {
		path = "/"
	}
	path = strings.TrimSuffix(path, "/**")
	if !strings.ContainsAny(path, wildcards) {
		return path, true
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		switch {
		case strings.IndexByte(wildcards, path[i]) >= 0:
			return "", false
		case path[i] == '\\':
			if i++; i == len(path) {
				return "", false
			}
		}
		b.WriteByte(path[i])
	}
	return b.String(), true
}
