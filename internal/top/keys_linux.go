package top

import (
	"strings"
	"unicode/utf8"
)

// key is a character that was typed, or one of these.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEscape
	keyOther // one that means nothing here
)

// Characters that stand for keys.
const (
	keyEnter     key = '\r'
	keyInterrupt key = 3  // Ctrl-C
	keyRedraw    key = 12 // Ctrl-L
	keySuspend   key = 26 // Ctrl-Z
)

const escape = "\x1b"

// sequences are what terminals send for keys without a character.
var sequences = map[string]key{
	"[A": keyUp, "OA": keyUp, "[B": keyDown, "OB": keyDown,
	"[5~": keyPageUp, "[6~": keyPageDown,
	"[H": keyHome, "OH": keyHome, "[1~": keyHome, "[F": keyEnd, "OF": keyEnd, "[4~": keyEnd,
}

// parseKeys returns the keys in what a terminal has sent, and what may be the
// beginning of another. A lone escape is such a beginning, and the key of that
// name if nothing follows.
func parseKeys(text string) (keys []key, rest string) {
	for text != "" {
		if !strings.HasPrefix(text, escape) {
			r, n := utf8.DecodeRuneInString(text)
			keys = append(keys, key(r))
			text = text[n:]
			continue
		}
		n := sequenceLength(text)
		if n == 0 {
			return keys, text
		}
		k, known := sequences[text[1:n]]
		switch {
		case n == 1:
			k = keyEscape
		case !known:
			k = keyOther
		}
		keys = append(keys, k)
		text = text[n:]
	}
	return keys, ""
}

// sequenceLength is the length of the escape sequence that a text begins with: 1
// if it is none after all, 0 if its end has not come.
//
//	ESC [ parameters final      ESC O final
func sequenceLength(text string) int {
	switch {
	case len(text) == 1, len(text) == 2 && (text[1] == '[' || text[1] == 'O'):
		return 0
	case text[1] == 'O':
		return 3
	case text[1] != '[':
		return 1
	}
	for i := 2; i < len(text); i++ {
		if c := text[i]; c >= '@' && c <= '~' {
			return i + 1
		}
	}
	return 0
}
