// Package notation says how the things are written that a policy names and the
// gate uses: paths of requests, methods, proxies, labels of names. The policy is
// checked with it when it is loaded and the gate reads with it, so that nothing
// which the one accepts is refused by the other, when it is too late to tell. It
// imports nothing of the network: the command links it.
package notation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CheckPath says what is wrong with a pattern of paths. Its errors name the
// pattern that was probably meant.
func CheckPath(text string) error {
	switch trimmed := strings.Trim(text, "*"); {
	case trimmed == "":
		return errors.New(`the pattern of a path begins with a slash; write "/**" for every path, or leave paths out`)
	case text[0] != '/':
		return errors.New("the pattern of a path begins with a slash; write " + strconv.Quote("/"+text))
	}
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		return errors.New("paths are matched without the query; write " + strconv.Quote(text[:i]))
	}
	return checkEscapes(text)
}

func checkEscapes(text string) error {
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		if _, ok := Escape(text[i:]); !ok {
			return errors.New("a % stands before two hexadecimal digits; write %25 for a percent sign")
		}
		i += 2
	}
	return nil
}

// Escape reads the %XX at the beginning of s.
func Escape(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high, ok1 := unhex(s[1])
	low, ok2 := unhex(s[2])
	return high<<4 | low, ok1 && ok2
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// CheckMethod says what is wrong with a method of HTTP.
func CheckMethod(text string) error {
	if text == "*" {
		return errors.New("leave methods out to mean every method")
	}
	if i := notToken(text); i >= 0 || text == "" {
		return errors.New(`a method is one word, such as "GET"`)
	}
	return nil
}

// CheckHeader says what is wrong with the name of a header.
func CheckHeader(name string) error {
	if i := notToken(name); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return fmt.Errorf("%q is not allowed in the name of a header", r)
	}
	return nil
}

// notToken is where something stands that is no character of a token, -1 if
// nothing does.
func notToken(s string) int {
	return strings.IndexFunc(s, func(r rune) bool {
		return !isAlphanumeric(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
