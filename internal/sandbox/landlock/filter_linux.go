package landlock

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// filter is that of every sandbox, and what namespaces would do otherwise: it
// closes the ways to processes outside that Landlock does not judge.
func (c *check) filter() seccomp.Profile {
	p := seccomp.New(seccomp.Options{Families: c.families()})
	p.Rules = c.isolate(p.Rules)
	if c.brokered && c.restrictsFiles() {
		p.Rules = withoutBroker(p.Rules)
	}
	return p
}

// isolate adds what namespaces would do otherwise.
func (c *check) isolate(rules []seccomp.Rule) []seccomp.Rule {
	for _, nr := range ipcCalls {
		rules = put(rules, seccomp.Rule{Nr: nr, Else: seccomp.Fail(uint16(unix.ENOSYS))})
	}
	for _, c := range ownCalls {
		rules = put(rules, c.rule())
	}
	if !c.allowsUnix() {
		rules = put(rules, pairRule())
	}
	return rules
}

// restrictsFiles says whether something is kept from the command that lies in the
// file tree.
func (c *check) restrictsFiles() bool {
	read, write := c.restricted()
	return len(write) > 0 || slices.ContainsFunc(read, func(p *point) bool { return !spec.Covers("/dev", p.path) })
}

// withoutBroker refuses what a broker around this sandbox performs where it writes
// no files, too. It cuts a file everywhere; and one that is to be read, and made if
// it is missing, it opens below every directory in which it writes some, though
// what is mounted there be read-only.
func withoutBroker(rules []seccomp.Rule) []seccomp.Rule {
	refused := seccomp.Fail(uint16(unix.EACCES))
	rules = put(rules, seccomp.Rule{Nr: unix.SYS_TRUNCATE, Else: refused})
	for _, c := range openCalls {
		r := seccomp.Rule{Nr: c.nr, Else: seccomp.Allow}
		if i, found := find(rules, c.nr); found {
			r = rules[i]
		}
		r.Checks = append([]seccomp.Check{{
			Arg: c.flags, Mask: unix.O_ACCMODE | unix.O_CREAT, Value: unix.O_RDONLY | unix.O_CREAT, Then: refused,
		}}, r.Checks...)
		rules = put(rules, r)
	}
	return rules
}

// openCall says which argument of a call has the flags of open. Of openat2 they
// are in memory, and every filter of ours refuses it.
type openCall struct {
	nr    uint32
	flags int
}

// families are the socket families that may be created. Without a broker nothing
// tells one unix socket from another, so there are none unless the policy allows
// all; pairs, which programs use as pipes, are something else. Without a network
// namespace, or with one that is open, nothing else closes the network.
func (c *check) families() []uint32 {
	families := native.Families(c.spec.Seccomp.Families)
	return slices.DeleteFunc(families, func(f uint32) bool {
		switch f {
		case seccomp.FamilyUnix:
			return !c.allowsUnix()
		case seccomp.FamilyInet, seccomp.FamilyInet6:
			return c.spec.Network != spec.NetworkHost && !c.closed
		}
		return false
	})
}

func (c *check) allowsUnix() bool { return c.spec.Broker == nil || c.spec.Broker.Sockets.All }

// ipcCalls are about objects that all processes of an ipc namespace share. The
// queues of POSIX are files to Landlock, which no rule grants.
var ipcCalls = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
}

const all = ^uint32(0)

// ownCall is a call that changes how a process is run: its limits, its priority, its
// processors. With a limit on its time a process is as good as killed, and so is one
// that gets no time; Landlock knows only of signals. So a command may say it of nobody
// but the thread that calls: another thread's number could be that of any process.
type ownCall struct {
	nr  uint32
	who int // the argument that says whom it is about; 0 is the caller
	// kind, if not nil, is what the argument before must be: numbers mean processes,
	// not groups or all of a user.
	kind *uint32
}

var ownCalls = []ownCall{
	{nr: unix.SYS_PRLIMIT64},
	{nr: unix.SYS_SETPRIORITY, who: 1, kind: new(uint32(unix.PRIO_PROCESS))},
	{nr: unix.SYS_IOPRIO_SET, who: 1, kind: new(uint32(1))}, // IOPRIO_WHO_PROCESS
	{nr: unix.SYS_SCHED_SETAFFINITY},
	{nr: unix.SYS_SCHED_SETSCHEDULER},
	{nr: unix.SYS_SCHED_SETPARAM},
	{nr: unix.SYS_SCHED_SETATTR},
}

func (c ownCall) rule() seccomp.Rule {
	refused := seccomp.Fail(uint16(unix.EPERM))
	r := seccomp.Rule{Nr: c.nr, Else: seccomp.Allow}
	if c.kind != nil {
		r.Checks = append(r.Checks, seccomp.Check{Arg: c.who - 1, Test: seccomp.NotEqual, Mask: all, Value: *c.kind, Then: refused})
	}
	r.Checks = append(r.Checks, seccomp.Check{Arg: c.who, Test: seccomp.NotEqual, Mask: all, Value: 0, Then: refused})
	return r
}

// pairRule allows pairs of unix sockets that are connected for good. A datagram
// socket, which the kernel also makes of a raw one, could be connected to another
// later.
func pairRule() seccomp.Rule {
	refused := seccomp.Fail(uint16(unix.EPROTONOSUPPORT))
	return seccomp.Rule{
		Nr: unix.SYS_SOCKETPAIR,
		Checks: []seccomp.Check{
			{Arg: 1, Mask: 0xf, Value: unix.SOCK_DGRAM, Then: refused}, // the other bits are flags
			{Arg: 1, Mask: 0xf, Value: unix.SOCK_RAW, Then: refused},
			{Arg: 0, Mask: all, Value: seccomp.FamilyUnix, Then: seccomp.Allow},
		},
		Else: seccomp.Fail(uint16(unix.EAFNOSUPPORT)),
	}
}

// put adds a rule, or replaces the one about the same call. The list stays
// sorted.
func put(rules []seccomp.Rule, r seccomp.Rule) []seccomp.Rule {
	i, found := find(rules, r.Nr)
	if found {
		rules[i] = r
		return rules
	}
	return slices.Insert(rules, i, r)
}

// find returns where the rule about a call is, or would be.
func find(rules []seccomp.Rule, nr uint32) (int, bool) {
	return slices.BinarySearchFunc(rules, nr, func(r seccomp.Rule, nr uint32) int { return int(r.Nr) - int(nr) })
}
