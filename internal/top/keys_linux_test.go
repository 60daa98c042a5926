package top

import (
	"slices"
	"testing"
)

func TestKeysAreReadFromWhatTerminalsSend(t *testing.T) {
	for _, c := range []struct {
		text string
		keys []key
		rest string
	}{
		{"", nil, ""},
		{"jq", []key{'j', 'q'}, ""},
		{"\r\x03", []key{keyEnter, keyInterrupt}, ""},
		{"ö", []key{'ö'}, ""},
		{"\x1b[A\x1bOB", []key{keyUp, keyDown}, ""},
		{"\x1b[5~\x1b[6~\x1b[H\x1b[4~", []key{keyPageUp, keyPageDown, keyHome, keyEnd}, ""},
		{"\x1b", nil, "\x1b"},
		{"j\x1b[", []key{'j'}, "\x1b["},
		{"\x1b[1;5", nil, "\x1b[1;5"},
		{"\x1b[1;5Aq", []key{keyOther, 'q'}, ""},
		{"\x1bq", []key{keyEscape, 'q'}, ""},
		{"\x1b\x1b[A", []key{keyEscape, keyUp}, ""},
		{"\xff", []key{'\ufffd'}, ""},
	} {
		keys, rest := parseKeys(c.text)
		if !slices.Equal(keys, c.keys) || rest != c.rest {
			t.Errorf("%q: got %v and %q, want %v and %q", c.text, keys, rest, c.keys, c.rest)
		}
	}
}

func FuzzKeysUseEverythingUp(f *testing.F) {
	f.Add("\x1b[1;5A\x1b")
	f.Fuzz(func(t *testing.T, text string) {
		keys, rest := parseKeys(text)
		if len(keys) > len(text) || len(rest) > len(text) || rest != "" && rest[0] != '\x1b' {
			t.Errorf("%q: %v and %q", text, keys, rest)
		}
	})
}
