package broker

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestFlagsOfADescriptorAreRead(t *testing.T) {
	for text, want := range map[string]int{
		"pos:\t0\nflags:\t02004002\nmnt_id:\t9\n": unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_RDWR,
		"pos:\t0\nflags:\t02\n":                   unix.O_RDWR,
		"pos:\t0\n":                               0,
		"":                                        0,
	} {
		if got := parseFlags([]byte(text)); got != want {
			t.Errorf("%q: got %o, want %o", text, got, want)
		}
	}
}
