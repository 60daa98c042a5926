package broker

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Lent is how much a broker does for a process. A process can have less done, for
// good, and with it all that it starts: then its own rules of Landlock hold, which do
// not bind the broker. It says so by a limit that nobody in a sandbox can raise and
// that is worth nothing there, the hard one on message queues.
type Lent uint64

const (
	// LentNoFile: files are made and written by the kernel, or not at all.
	LentNoFile Lent = iota
	// LentNoTerminal: of terminals it opens only those again that are streams of the
	// caller.
	LentNoTerminal
	lentAll
)

// GiveUp leaves the calling process no more than that.
func GiveUp(to Lent) error {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_MSGQUEUE, &old); err != nil {
		return err
	}
	limit := min(uint64(to), old.Max)
	return syscall.Setrlimit(unix.RLIMIT_MSGQUEUE, &syscall.Rlimit{Cur: limit, Max: limit})
}

// hardLimit returns the one that tells how much is lent to a process.
func hardLimit(pid int) (uint64, error) {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, nil, &limit)
	return limit.Max, err
}

// asksLimits says whether the limits of callers mean anything: not if they cannot be
// read, nor if whoever started the sandbox had as low a one. Nobody in it is then told
// that less is lent, and who relies on it must try.
func (b *Broker) asksLimits() bool {
	limit, err := hardLimit(b.pid)
	return err == nil && limit >= uint64(lentAll)
}

// lent is what is lent to the caller. It can only become less while the call waits.
func (w *worker) lent(n *notification) Lent {
	if !w.limited {
		return lentAll
	}
	limit, err := hardLimit(int(n.pid))
	if err != nil {
		return LentNoFile
	}
	return min(Lent(limit), lentAll)
}
