// Package signals passes signals on to another process.
//
// It does so in the signal handler itself, which is a few instructions of
// assembler that make one system call. The package os/signal would start two
// threads and a conversation between them for every kind of signal: measured,
// half a millisecond beside a command that runs no longer than that.
package signals

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// target is the pidfd of the process that gets the signals, or the descriptor
// that gets their numbers.
//
//lint:ignore U1000 the handler reads it
var target int32

// Forward sends every one of the signals that arrives from now on to the
// process behind pidfd, which must stay open. A signal that the caller's parent
// had ignored stays ignored, where the Go runtime has left that so: SIGHUP and
// SIGINT.
func Forward(pidfd int, list ...unix.Signal) {
	handle(pidfd, handlerAddr(), list)
}

// Tell writes the number of every one of the signals that arrives from now on to
// a descriptor, as one byte.
func Tell(fd int, list ...unix.Signal) {
	handle(fd, tellerAddr(), list)
}

func handle(fd int, handler uintptr, list []unix.Signal) {
	target = int32(fd)
	for _, sig := range list {
		if old := swap(sig, nil); old.handler == ignored {
			continue
		}
		action := actionOf(handler)
		swap(sig, &action)
	}
}

// WithDefault runs f while a signal has its default action.
func WithDefault(sig unix.Signal, f func()) {
	old := swap(sig, &action{})
	f()
	swap(sig, &old)
}

// IgnoreStops has the kernel not send SIGCHLD when a child stops, or a process that
// this one traces: who waits for that hears of it anyway, and a signal for each wakes
// a thread that has nothing to do with it.
func IgnoreStops() {
	if old := swap(unix.SIGCHLD, nil); old.flags&noStops == 0 {
		old.flags |= noStops
		swap(unix.SIGCHLD, &old)
	}
}

// action is the kernel's struct sigaction. Its zero value is the default.
type action struct{ handler, flags, restorer, mask uint64 }

const ignored = 1 // SIG_IGN

// Flags of an action.
const (
	noStops = 0x1        // of SIGCHLD: SA_NOCLDSTOP
	onStack = 0x08000000 // the runtime's signal stack: a goroutine's may be too small
	restart = 0x10000000
)

// swap sets a signal's action, unless it is nil, and returns the former one.
func swap(sig unix.Signal, to *action) (old action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&old)), unsafe.Sizeof(old.mask), 0, 0)
	return old
}

// handlerAddr and tellerAddr are addresses of code that the kernel calls.
func handlerAddr() uintptr

func tellerAddr() uintptr
