package terminal

import "testing"

func TestEchoIsTakenOutHoweverItArrives(t *testing.T) {
	for _, pieces := range [][]string{
		{"abc\r\nABC\r\n"},
		{"a", "bc\r\nABC\r\n"},
		{"ab", "c\r", "\nABC\r\n"},
		{"a", "b", "c", "\r", "\n", "ABC\r\n"},
	} {
		s := &Session{echo: []byte("abc\r\n")}
		var got string
		for _, p := range pieces {
			got += string(s.withoutEcho([]byte(p)))
		}
		if got += string(s.held); got != "ABC\r\n" {
			t.Errorf("%q: got %q", pieces, got)
		}
	}
	s := &Session{echo: []byte("abc\r\n")}
	if got := string(s.withoutEcho([]byte("prompt a"))) + string(s.withoutEcho([]byte(" word"))); got != "prompt a word" {
		t.Errorf("output that only begins like the echo became %q", got)
	}
}
