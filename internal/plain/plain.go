// Package plain makes text safe to show on a terminal. Names of files, arguments
// and the contents of policies come from whoever wrote the code that runs in a
// sandbox, and they are shown to the person who has to judge it.
//
// It imports nothing but the standard library, so that every layer can use it.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns s without anything that could end a line, drive a terminal or
// turn the direction of writing. A byte that is no UTF-8 counts as such: some
// terminals take 0x9b for the beginning of a command. What is harmless stays as
// it is, tabs included.
func Text(s string) string {
	if IsText(s) {
		return s
	}
	return escape(s, "", "\t")
}

// Word returns s as one word that is safe on a terminal and that a shell (bash,
// zsh, ksh) reads back as s. A name of harmless characters stays as it is;
// anything else is in quotes, so that no name can pass for the text around it. Of
// an empty one there is nothing to show, and nothing is.
func Word(s string) string {
	if !IsText(s) || strings.Contains(s, "\t") {
		return "$'" + escape(s, `'`, "") + "'"
	}
	if strings.IndexFunc(s, needsQuotes) < 0 && !strings.HasPrefix(s, "~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// IsText says whether Text would leave s as it is.
func IsText(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) && r != '\t' {
			return false
		}
	}
	return utf8.ValidString(s)
}

// needsQuotes is about printable characters only.
func needsQuotes(r rune) bool {
	return r < utf8.RuneSelf && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		!strings.ContainsRune("/._-+,:@%=~", r)
}

// escape writes what is not printable, backslashes and the given quotation mark
// the way strings of shells and of C have it. What keep holds stays as it is.
func escape(s, quote, keep string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case strings.Contains(keep, s[:n]):
			b.WriteString(s[:n])
		case r == utf8.RuneError && n == 1, r < utf8.RuneSelf && !strconv.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\\' || quote != "" && s[:n] == quote:
			b.WriteString(`\` + s[:n])
		case strconv.IsPrint(r):
			b.WriteString(s[:n])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}
