package native

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A launch takes the Go runtime's start and the namespaces, one after the other,
// and both about as long. So entry begins with the child's birth before it lets
// the runtime start, if the arguments look like those of a command to run, and
// the child makes its namespaces meanwhile. If it turns out that nothing is to be
// launched, or not like this, the child is let go: see Discard.
//
// What it is told is this table, which stands in the program's data: nothing is
// there yet that could build one. It is the plan of birth, with addresses and
// descriptors that entry fills in.

// infant is a child that was begun by entry. The assembler code knows its layout.
type infant struct {
	pid     int64 // 0: there is none
	pidfd   int64
	status  [2]int32
	proceed [2]int32
	socket  [2]int32
	init    int64
	mask    [2]uint64 // every signal, and those that were blocked before
	next    [2]uintptr
	fail    failure
	at      [2]unix.Timespec
	lo      [40]byte // struct ifreq
	fd      uintptr
	answer  uintptr
	stack   [256]byte // which it never touches
}

var born = infant{
	mask: [2]uint64{^uint64(0)},
	lo:   [40]byte{'l', 'o', 16: unix.IFF_UP | unix.IFF_RUNNING},
}

// Calls of the birth that entry fills something into.
const (
	earlyClone      = 0
	earlyClose      = 2
	earlySocket     = 10
	earlyUp         = 11
	earlyDown       = 12
	earlyNamespaces = 13
	earlyWait       = 14
	earlyGoOn       = 15
)

var earlyPlan = [...]op{
	earlyClone:      {nr: unix.SYS_CLOCK_GETTIME, arg: [6]uintptr{unix.CLOCK_MONOTONIC}},
	1:               {nr: unix.SYS_PRCTL, arg: [6]uintptr{unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)}},
	earlyClose:      {nr: unix.SYS_CLOSE},
	3:               {nr: unix.SYS_CLOSE},
	4:               {nr: unix.SYS_CLOSE},
	5:               {nr: unix.SYS_UNSHARE, arg: [6]uintptr{unix.CLONE_NEWNS}},
	6:               {nr: unix.SYS_UNSHARE, arg: [6]uintptr{unix.CLONE_NEWIPC}},
	7:               {nr: unix.SYS_UNSHARE, arg: [6]uintptr{unix.CLONE_NEWUTS}},
	8:               {nr: unix.SYS_UNSHARE, arg: [6]uintptr{unix.CLONE_NEWCGROUP}},
	9:               {nr: unix.SYS_UNSHARE, arg: [6]uintptr{unix.CLONE_NEWNET}},
	earlySocket:     {nr: unix.SYS_SOCKET, arg: [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}},
	earlyUp:         {nr: unix.SYS_IOCTL, arg: [6]uintptr{1: unix.SIOCSIFFLAGS}, ref: 1},
	earlyDown:       {nr: unix.SYS_CLOSE, ref: 1},
	earlyNamespaces: {nr: unix.SYS_CLOCK_GETTIME, arg: [6]uintptr{unix.CLOCK_MONOTONIC}},
	earlyWait:       {nr: unix.SYS_READ, arg: [6]uintptr{2: 1}},
	earlyGoOn:       {nr: goOn, ref: 3},
}

// earlySteps say what they are for.
var earlySteps = [...]step{
	0: {wall: WallInit, verb: "die with the launcher"},
	1: {wall: WallInit, verb: "close the launcher's descriptors"},
	2: {wall: WallMount, verb: "enter a new", a: string(WallMount)},
	3: {wall: WallIPC, verb: "enter a new", a: string(WallIPC)},
	4: {wall: WallUTS, verb: "enter a new", a: string(WallUTS)},
	5: {wall: WallCgroup, verb: "enter a new", a: string(WallCgroup)},
	6: {wall: WallNetwork, verb: "enter a new", a: string(WallNetwork)},
	7: {wall: WallNetwork, verb: "bring up loopback"},
	8: {wall: WallInit, verb: "wait for the prelude"},
}

var earlyOf = [len(earlyPlan)]uint16{0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8}

// adopt makes an Embryo of the child that entry began, or returns nil if there is
// none for these options.
func adopt(o Options, id spec.Identity, network spec.Network) *Embryo {
	if born.pid == 0 {
		return nil
	}
	if o.resident || !network.IsOwn() || !areStandard(o.Streams) {
		Discard()
		return nil
	}
	p := born.pipes()
	e := &Embryo{
		o: o, id: id, network: network, pipes: p, fail: &born.fail, next: &born.next,
		proc: &Process{Pid: int(born.pid), pidfd: int(born.pidfd), status: p.status, trace: o.Trace},
		birth: builder{
			plan:  &plan{ops: earlyPlan[:], of: earlyOf[:], steps: earlySteps[:]},
			trace: o.Trace,
		},
	}
	if o.Trace != nil {
		e.birth.marks = []mark{{"clone", &born.at[0]}, {"namespaces", &born.at[1]}}
	}
	born.pid = 0
	o.Trace.Mark("prepare")
	return e
}

func areStandard(streams [3]*os.File) bool {
	for i, f := range streams {
		if f == nil || int(f.Fd()) != i {
			return false
		}
	}
	return true
}

func (b *infant) pipes() *pipes {
	return &pipes{
		in: inherited{
			stdio: [3]int{0, 1, 2}, status: int(b.status[1]), init: int(b.init), socket: int(b.socket[1]), proceed: int(b.proceed[0]),
		},
		status: int(b.status[0]), release: int(b.proceed[1]), socket: int(b.socket[0]),
	}
}

// Discard lets go what entry has begun, if anything: for when nothing is launched
// and this process goes on for longer.
func Discard() {
	if born.pid == 0 {
		return
	}
	p := born.pipes()
	proc := &Process{Pid: int(born.pid), pidfd: int(born.pidfd), status: p.status}
	born.pid = 0
	(&Embryo{proc: proc, pipes: p}).Abandon()
}
