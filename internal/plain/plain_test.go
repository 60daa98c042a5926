package plain

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestHostileTextIsShownHarmless(t *testing.T) {
	for _, c := range []struct{ s, text, word string }{
		{"plain-1.2_x+y,z:@%=~", "plain-1.2_x+y,z:@%=~", "plain-1.2_x+y,z:@%=~"},
		{"/söme/文", "/söme/文", "/söme/文"},
		{"", "", ""},
		{"a b", "a b", "'a b'"},
		{"it's", "it's", `'it'\''s'`},
		{"~", "~", "'~'"},
		{"x (rule); to allow: -", "x (rule); to allow: -", "'x (rule); to allow: -'"},
		{"$HOME", "$HOME", "'$HOME'"},
		{"*", "*", "'*'"},
		{`a\b`, `a\b`, `'a\b'`},
		{"a\tb", "a\tb", `$'a\x09b'`},
		{"a\nbailey: forged", `a\x0abailey: forged`, `$'a\x0abailey: forged'`},
		{"\x1b[2J", `\x1b[2J`, `$'\x1b[2J'`},
		{"\x9b2J", `\x9b2J`, `$'\x9b2J'`},
		{"\t\x9b", "\t\\x9b", `$'\x09\x9b'`},
		{"a\\\x9b", `a\\\x9b`, `$'a\\\x9b'`},
		{"\u009b2J", `\u009b2J`, `$'\u009b2J'`},
		{"\ufffd", "\ufffd", "\ufffd"},
		{"'\\\x00", `'\\\x00`, `$'\'\\\x00'`},
		{"\u202egnp.exe", `\u202egnp.exe`, `$'\u202egnp.exe'`},
		{"\U000e0001", `\U000e0001`, `$'\U000e0001'`},
		{"\u2028", `\u2028`, `$'\u2028'`},
		{"\u00a0", `\u00a0`, `$'\u00a0'`},
	} {
		if got := Text(c.s); got != c.text {
			t.Errorf("Text(%q): got %s, want %s", c.s, got, c.text)
		}
		if got := Word(c.s); got != c.word {
			t.Errorf("Word(%q): got %s, want %s", c.s, got, c.word)
		}
	}
}

func TestShellReadsWordsBack(t *testing.T) {
	testenv.Requires(t, testenv.Program("bash"))
	for _, name := range []string{"a b", "it's", "~", "$HOME", "*", "a\nb", "\x1bab", "\xff\xfe0", "\u009b2J", "\U000e0001f", `\`, "'\x7f\\'"} {
		out, err := exec.Command("bash", "--norc", "-c", "LC_ALL=C.UTF-8; printf %s "+Word(name)).Output()
		if err != nil || string(out) != name {
			t.Errorf("%s: got %q (%v), want %q", Word(name), out, err, name)
		}
	}
}

func FuzzNothingDrivesATerminal(f *testing.F) {
	for _, s := range []string{"a", "\x9b", "a\x1b]0;\x07", "\u202e", "\xf0\x9f", "'\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{Text(s), Word(s)} {
			if !IsText(got) || strings.ContainsAny(got, "\n\r\x1b") {
				t.Errorf("%q: got %q", s, got)
			}
		}
	})
}
