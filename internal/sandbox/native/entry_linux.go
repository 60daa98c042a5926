package native

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The command's program is linked with -E to begin in entry (see the Makefile),
// which begins with the sandbox (see early_linux.go) and prepares three things
// before the Go runtime starts. A program that begins elsewhere works the same, a
// little slower.
//
// Threads get two milliseconds of timer slack, which they inherit. One of the
// runtime's wakes every 20 µs in the first milliseconds of a program, which is
// all the time a launch takes, and where processors are few it takes them from
// the sandbox: three percent of a launch on two.
//
// The runtime is told to use one processor, by a variable of the environment
// that nobody else sees. With more it starts a thread for each that might have
// something to do, and in a launch none has: two percent.
//
// No file can be opened but in the place of a missing stream. The runtime then
// finds neither the control group nor the size of huge pages, which it would
// look for in four files of /proc and /sys: another three percent. Package
// syscall raises the limit again before anything of this program runs.

// And once the runtime runs, before anything calls deep, the stack is made as
// large as a launch needs. It would double three times else, each time from
// deeper down: the runtime looks up every function on it in tables that nothing
// else reads, and each of their pages is a fault.

// slack is the caller's own timer slack, or 0 if the program began elsewhere.
// Commands get it back.
var slack uint64

// fileLimit is the caller's own limit of open files, or 0 if the program began
// elsewhere.
var fileLimit syscall.Rlimit

// oneProcessor says that entry has set GOMAXPROCS.
var oneProcessor uint64

func entry()

var _ = entry

func growStack()

// useProcessors lets the runtime run as many threads at once as answer calls. A
// thread that waits in the kernel counts as running until the runtime notices,
// which the timer slack makes late, so there are some more than processors.
func useProcessors() {
	if oneProcessor != 0 {
		runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	}
}

func init() {
	if oneProcessor != 0 {
		_ = syscall.Unsetenv("GOMAXPROCS") // fails only for an empty name
	}
	if isOwnProgram = slack != 0; isOwnProgram {
		growStack()
	}
	if fileLimit.Max != 0 {
		// Of package syscall, which then forgets the limit that it found.
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &fileLimit)
	}
}

func (b *builder) timers() {
	if slack != 0 {
		b.begin(WallInit, "restore the timer slack", "", "")
		b.call(unix.SYS_PRCTL, num(unix.PR_SET_TIMERSLACK), num(slack), num(0), num(0), num(0))
	}
}
