package policy

import (
	"strconv"
	"strings"
)

// Error is something wrong in a policy file, with its place.
type Error struct {
	File   string
	Line   int
	Column int // counted in characters, from 1
	Msg    string
	Hint   string // what to do about it; may be empty
	// Excerpt is the line with a mark below the place; may be empty.
	Excerpt string
}

// Error writes file:line:column: message, the hint if there is one, and the
// excerpt in lines of its own.
func (e *Error) Error() string {
	s := e.Msg
	if e.File != "" {
		s = Pos{e.File, e.Line, e.Column}.String() + ": " + s
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	if e.Excerpt != "" {
		s += "\n" + e.Excerpt
	}
	return s
}

// shorten keeps a message readable when the file holds an endless word.
func shorten(s string) string {
	const longest = 300
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

// nearest returns the candidate that most looks like word, or "" if none is
// close enough to be a slip of the fingers.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", len(word)/3+2
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements between a and b.
// Words far longer than any key are not worth comparing.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal = row[j+1]
			row[j+1] = cost
		}
	}
	return row[len(b)]
}

func didYouMean(word string, candidates []string) string {
	if n := nearest(word, candidates); n != "" {
		return "did you mean " + strconv.Quote(n) + "?"
	}
	return ""
}
