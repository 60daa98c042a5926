package terminal

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestALineIsSeenOnce(t *testing.T) {
	s := &Session{shared: true}
	if got := string(s.typed([]byte("abc\n"))); got != "abc\n" {
		t.Errorf("typed: got %q", got)
	}
	s.typed([]byte("def\n"))
	// The echo of the command's terminal, among what the command writes.
	for _, c := range []struct{ in, want string }{
		{"prompt> abc\nanswer\n", "prompt> answer\n"},
		{"abc\n", "abc\n"}, // this one the command wrote
		{"def\n", ""},
		{"def\n", "def\n"},
	} {
		if got := string(s.withoutEcho([]byte(c.in))); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestEndOfFileIsTyped(t *testing.T) {
	s := &Session{shared: true}
	s.Termios.Cc[unix.VEOF] = 4
	for in, want := range map[string]string{"": "\x04", "abc": "abc\x04", "abc\n": "abc\n"} {
		if got := string(s.typed([]byte(in))); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	s.taken = true // without line mode, as a pager leaves it
	if got := string(s.typed([]byte("q"))); got != "q" {
		t.Errorf("got %q, want the key alone", got)
	}
}
