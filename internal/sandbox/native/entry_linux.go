package native

import "golang.org/x/sys/unix"

// A thread of the Go runtime wakes every 20 µs in the first milliseconds of a
// program, which is all the time a launch takes, and where processors are few
// it takes them from the sandbox: three percent of a launch on two. Timers
// with two milliseconds of slack keep it asleep. Threads inherit their slack, so
// it has to be set before the runtime starts its first: the command's program
// is linked with -E to begin in entry (see the Makefile). A program without
// that works the same, a little slower.

// slack is the caller's own timer slack, or 0 if the program began elsewhere.
// Commands get it back.
var slack uint64

func entry()

var _ = entry

func (b *builder) timers() {
	if slack != 0 {
		b.begin(WallInit, "restore the timer slack", "", "")
		b.call(unix.SYS_PRCTL, num(unix.PR_SET_TIMERSLACK), num(slack), num(0), num(0), num(0))
	}
}
