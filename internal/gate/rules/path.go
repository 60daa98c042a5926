package rules

import (
	"errors"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// Path is the path of a request in the readings that servers may have of it.
// Where two of them could differ on whether a rule matches, the rule grants
// nothing and refuses.
type Path struct {
	// plain has unreserved characters decoded and all other escapes in upper
	// case, which every server takes for the same.
	plain string
	// loose is what a lenient server sees: decoded as often as it can be,
	// backslashes as slashes, without parameters, without empty segments.
	loose string
	// resolved is loose without dot segments.
	resolved string
	// ambiguous says that the path has dot segments, control characters or
	// bytes that are no UTF-8 in one of the readings.
	ambiguous bool
}

// maxDecodings is how often servers behind one another may decode a path. One
// that has escapes even then is after no good.
const maxDecodings = 4

// NewPath reads the path of a request as it stands in the request, without the
// query.
func NewPath(escaped string) (*Path, error) {
	if !strings.HasPrefix(escaped, "/") {
		return nil, errors.New("path does not begin with a slash")
	}
	plain, err := decodeUnreserved(escaped)
	if err != nil {
		return nil, err
	}
	p := &Path{plain: plain}
	decoded := plain
	for range maxDecodings {
		decoded = decodeAll(decoded)
	}
	p.loose = loosen(decoded)
	p.resolved = path.Clean(p.loose)
	trimmed := p.loose
	if len(trimmed) > 1 {
		trimmed = strings.TrimSuffix(trimmed, "/")
	}
	p.ambiguous = p.resolved != trimmed || decodeAll(decoded) != decoded || !printable(decoded)
	return p, nil
}

// String is the path as a rule would have it.
func (p *Path) String() string { return p.plain }

// mustMatch says whether the pattern matches in every reading.
func (p *Path) mustMatch(pattern *pathPattern) bool {
	return p != nil && !p.ambiguous && glob(pattern.plain, p.plain, false) && glob(pattern.loose, p.loose, false)
}

// mayMatch says whether the pattern matches in some reading, on a server that
// does not tell capital letters from small ones either.
func (p *Path) mayMatch(pattern *pathPattern) bool {
	if p == nil {
		return true
	}
	return glob(pattern.plain, p.plain, true) || glob(pattern.loose, p.loose, true) || glob(pattern.loose, p.resolved, true)
}

// pathPattern is a pattern in the readings that a Path has. In it * stands for
// any characters but a slash, and ** for any at all; a /** at the end also
// matches nothing.
type pathPattern struct {
	plain, loose string
}

func compilePath(text string) (pathPattern, error) {
	if err := notation.CheckPath(text); err != nil {
		return pathPattern{}, err
	}
	plain, err := decodeUnreserved(text)
	if err != nil {
		return pathPattern{}, err
	}
	return pathPattern{plain, loosen(decodeAll(plain))}, nil
}

func loosen(s string) string {
	s = strings.ReplaceAll(s, `\`, "/")
	segments := strings.Split(s, "/")
	kept := segments[:1]
	for i, segment := range segments[1:] {
		segment, _, _ = strings.Cut(segment, ";")
		if segment != "" || i == len(segments)-2 {
			kept = append(kept, segment)
		}
	}
	return strings.Join(kept, "/")
}

func decodeUnreserved(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		c, ok := notation.Escape(s[i:])
		switch {
		case !ok:
			return "", errors.New("path has a bad percent-encoding")
		case isUnreserved(c):
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return b.String(), nil
}

func decodeAll(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c, ok := notation.Escape(s[i:])
		if !ok {
			b.WriteByte(s[i])
			continue
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}

// glob matches a whole path. It takes time in proportion to the product of the
// lengths at worst, since only the last * and the last ** are ever tried again.
func glob(pattern, s string, fold bool) bool {
	if shorter, ok := strings.CutSuffix(pattern, "/**"); ok && globExact(shorter, s, fold) {
		return true
	}
	if fold && len(s) > 1 && globExact(pattern, strings.TrimSuffix(s, "/"), true) {
		return true
	}
	return globExact(pattern, s, fold)
}

func globExact(pattern, s string, fold bool) bool {
	type retry struct{ p, s int } // where to go on if the rest does not match
	one, many := retry{-1, 0}, retry{-1, 0}
	p, i := 0, 0
	for i < len(s) || p < len(pattern) {
		switch {
		case strings.HasPrefix(pattern[p:], "**"):
			p += 2
			many, one = retry{p, i}, retry{-1, 0}
			continue
		case p < len(pattern) && pattern[p] == '*':
			p++
			one = retry{p, i}
			continue
		case p < len(pattern) && i < len(s) && sameByte(pattern[p], s[i], fold):
			p, i = p+1, i+1
			continue
		case one.p >= 0 && one.s < len(s) && s[one.s] != '/':
			one.s++
			p, i = one.p, one.s
			continue
		case many.p >= 0 && many.s < len(s):
			many.s++
			p, i, one = many.p, many.s, retry{-1, 0}
			continue
		}
		return false
	}
	return true
}

func sameByte(a, b byte, fold bool) bool {
	return a == b || fold && lower(a) == lower(b)
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
