package main

import (
	"testing"
	"unicode/utf8"
)

// Some terminals take the byte 0x9b for the beginning of a command. In text it
// occurs only as a part of a character.
func TestMessagesDriveNoTerminal(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{
		{"help", "\x9b2J"},
		{"completion", "\x9b2J"},
		{"--\x9b2J"},
		{"-t", "\x9b2J", "--", "true"},
		{"-s", "\x9b2J", "--", "true"},
		{"trust", "\x9b2J"},
		{"trust", "--remove", "\x9b2J"},
		{"config", "\x9b2J"},
		{"--allow-read", "\x9b2J", "--", "\x9b2J"},
	} {
		if got := b.run(args...); got.status != exitOwn && got.status != exitNotFound || !utf8.ValidString(got.stderr+got.stdout) {
			t.Errorf("%q: got status %d, stdout %q, stderr %q", args, got.status, got.stdout, got.stderr)
		}
	}
}
