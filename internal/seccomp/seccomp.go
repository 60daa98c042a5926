// Package seccomp holds the system call filter of a sandbox and assembles it
// to the kernel's BPF.
//
// The filter is a second line: what it refuses is mostly impossible anyway for
// a process without capabilities in namespaces of its own. It exists so that a
// bug in a rarely used part of the kernel is not within reach, and for the few
// things no other wall holds: io_uring, terminal injection, exotic sockets.
//
// Everything not named is allowed up to the newest call this package knows;
// newer ones do not exist for the sandbox (ENOSYS), so a kernel update never
// widens it.
package seccomp

import "slices"

// Action is what the kernel does with a call.
type Action uint32

// The values are the kernel's; an errno stands in the low half of Errno.
const (
	KillProcess Action = 0x80000000
	Errno       Action = 0x00050000
	Allow       Action = 0x7fff0000
)

// Fail returns the action that makes a call fail with errno.
func Fail(errno uint16) Action { return Errno | Action(errno) }

// Errnos the filter answers with. They are part of the Linux ABI and the same
// on every architecture Bailey runs on; spelling them out keeps this package
// free of build tags.
const (
	eperm        = 1
	enosys       = 38
	eafnosupport = 97
	eprotonosupp = 93
)

// Check looks at one argument of a call, as the kernel sees it: all arguments
// examined here are 32 bits wide in the kernel, so the upper half, which a
// caller may fill with anything, is not compared.
type Check struct {
	Arg   int    // argument number, from 0
	Mask  uint32 // bits looked at
	Value uint32 // what they must equal
	Any   bool   // instead: holds if any of them is set
	Then  Action
}

// Rule is what happens to one call: the first check that holds decides,
// otherwise Else.
type Rule struct {
	Nr     uint32
	Checks []Check
	Else   Action
}

// Profile is a whole filter for one architecture.
type Profile struct {
	Arch uint32 // AUDIT_ARCH_*; any other architecture kills the process
	// X32 refuses numbers with the x32 bit, which reach the same calls of
	// amd64 under other numbers.
	X32   bool
	MaxNr uint32 // newest call known
	Rules []Rule // sorted by Nr, without duplicates
}

// Options are the variations a Spec asks for.
type Options struct {
	// Families are the socket families that may be created.
	Families []uint32
}

// Socket families, by number.
const (
	FamilyUnix    = 1
	FamilyInet    = 2
	FamilyInet6   = 10
	FamilyNetlink = 16
)

// New returns the profile for this architecture.
func New(o Options) Profile {
	rules := make([]Rule, 0, len(refused)+len(absent)+8)
	for _, nr := range refused {
		rules = append(rules, Rule{Nr: nr, Else: Fail(eperm)})
	}
	for _, nr := range absent {
		rules = append(rules, Rule{Nr: nr, Else: Fail(enosys)})
	}
	rules = append(rules, cloneRule(), ioctlRule(), socketRule(o.Families), socketpairRule())
	rules = append(rules, mknodRules()...)
	slices.SortFunc(rules, func(a, b Rule) int { return int(a.Nr) - int(b.Nr) })
	return Profile{Arch: auditArch, X32: hasX32, MaxNr: maxNr, Rules: rules}
}

// cloneRule refuses new namespaces. clone3 hides its flags in memory, so it is
// absent, and the C library falls back to clone. CLONE_NEWTIME shares its bit
// with the exit signal in this call and cannot be asked for here.
func cloneRule() Rule {
	const namespaces = 0x7e020000 // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
	return Rule{
		Nr:     nrClone,
		Checks: []Check{{Arg: 0, Mask: namespaces, Any: true, Then: Fail(eperm)}},
		Else:   Allow,
	}
}

// ioctlRule keeps the sandbox from typing into a terminal (TIOCSTI), from the
// console's selection buffer (TIOCLINUX), from redirecting console output
// (TIOCCONS), and from loading line disciplines (TIOCSETD).
func ioctlRule() Rule {
	var checks []Check
	for _, cmd := range []uint32{0x5412, 0x541c, 0x541d, 0x5423} {
		checks = append(checks, Check{Arg: 1, Mask: ^uint32(0), Value: cmd, Then: Fail(eperm)})
	}
	return Rule{Nr: nrIoctl, Checks: checks, Else: Allow}
}

// socketRule allows the given families; of netlink only the routing protocol,
// which resolvers and language run-times ask for the machine's addresses.
func socketRule(families []uint32) Rule {
	var checks []Check
	for _, f := range families {
		if f == FamilyNetlink {
			continue
		}
		checks = append(checks, Check{Arg: 0, Mask: ^uint32(0), Value: f, Then: Allow})
	}
	if slices.Contains(families, FamilyNetlink) {
		// First every other family is turned away, so that the protocol check
		// below it sees netlink alone.
		checks = append(checks,
			Check{Arg: 0, Mask: ^uint32(0), Value: FamilyNetlink, Then: ContinueIf},
			Check{Arg: 2, Mask: ^uint32(0), Value: 0, Then: Allow})
		return Rule{Nr: nrSocket, Checks: checks, Else: Fail(eprotonosupp)}
	}
	return Rule{Nr: nrSocket, Checks: checks, Else: Fail(eafnosupport)}
}

// ContinueIf makes a check a condition: if it does not hold the call fails with
// EAFNOSUPPORT, if it holds the next check is looked at.
const ContinueIf Action = 1

func socketpairRule() Rule {
	return Rule{
		Nr:     nrSocketpair,
		Checks: []Check{{Arg: 0, Mask: ^uint32(0), Value: FamilyUnix, Then: Allow}},
		Else:   Fail(eafnosupport),
	}
}

// mknodRules refuse device nodes. One with number 0:0 needs no privilege and
// is a whiteout to an overlay file system.
func mknodRules() []Rule {
	var rules []Rule
	for _, m := range mknodCalls {
		rules = append(rules, Rule{Nr: m.nr, Else: Allow, Checks: []Check{
			{Arg: m.modeArg, Mask: 0o170000, Value: 0o020000, Then: Fail(eperm)},
			{Arg: m.modeArg, Mask: 0o170000, Value: 0o060000, Then: Fail(eperm)},
		}})
	}
	return rules
}

type mknodCall struct {
	nr      uint32
	modeArg int
}
