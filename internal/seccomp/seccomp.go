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
	Notify      Action = 0x7fc00000 // ask the broker
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
	Arg   int // argument number, from 0
	Test  Test
	Mask  uint32 // bits looked at
	Value uint32 // what they are compared with
	// And, if not nil, must hold as well; its own And and Then mean nothing.
	And  *Check
	Then Action
}

// Test is what must be true of an argument's bits for a check to hold.
type Test uint8

const (
	Equal Test = iota
	NotEqual
	AnySet
	NoneSet
)

const all = ^uint32(0)

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
	// Writes lets the broker decide about calls that make or write files by
	// name, and Reads about those that open them for reading as well.
	Writes, Reads bool
	// Removes lets it decide about calls that remove files or change their
	// attributes.
	Removes bool
	// Sockets lets it decide which sockets are connected to. Unix sockets for
	// datagrams do not exist then, since nobody would see where they send to,
	// unless Datagrams lets it decide that too.
	Sockets bool
	// Datagrams asks it about whatever is sent with a destination, and about every
	// sendmsg but that of the listener itself: see HandOut.
	Datagrams bool
	// Execs lets it decide which programs are executed.
	Execs bool
	// Observe tells it about every call that names a file, whatever it does.
	Observe bool
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
	rules := make([]Rule, 0, 160) // more than there are
	rules = answer(rules, Fail(eperm), refused, archRefused)
	rules = answer(rules, Fail(enosys), absent)
	rules = append(rules, cloneRule(), ioctlRule(o), socketRule(o), socketpairRule(o))
	for _, calls := range [...][]modeCall{modeCalls, archModeCalls} {
		for _, c := range calls {
			rules = append(rules, modeRule(c, o))
		}
	}
	if o.Writes || o.Observe {
		rules = answer(rules, Notify, nameCalls, archNameCalls)
	}
	if o.Sockets {
		rules = append(rules, Rule{Nr: nrConnect, Else: Notify})
	}
	if o.Datagrams {
		rules = append(rules, sendtoRule(), sendmsgRule(Allow, Notify), Rule{Nr: nrSendmmsg, Else: Notify})
	}
	if o.Removes {
		rules = answer(rules, Notify, removeCalls, archRemoveCalls)
	}
	if o.Observe {
		rules = observe(rules, o.Removes)
	}
	if o.Execs || o.Observe {
		rules = append(rules, Rule{Nr: nrExecve, Else: Notify}, Rule{Nr: nrExecveat, Else: Notify})
	}
	slices.SortFunc(rules, func(a, b Rule) int { return int(a.Nr) - int(b.Nr) })
	return Profile{Arch: auditArch, X32: hasX32, MaxNr: maxNr, Rules: rules}
}

// answer adds a rule for every call of the lists.
func answer(rules []Rule, with Action, lists ...[]uint32) []Rule {
	for _, list := range lists {
		for _, nr := range list {
			rules = append(rules, Rule{Nr: nr, Else: with})
		}
	}
	return rules
}

// observe adds rules for calls that look, remove or change attributes, unless they
// have one already because the latter are decided about.
func observe(rules []Rule, removes bool) []Rule {
	for _, list := range [...][]uint32{lookCalls, archLookCalls} {
		for _, nr := range list {
			if removes && (slices.Contains(removeCalls, nr) || slices.Contains(archRemoveCalls, nr)) {
				continue
			}
			rules = append(rules, Rule{Nr: nr, Else: Notify})
		}
	}
	return rules
}

// cloneRule refuses new namespaces. clone3 hides its flags in memory, so it is
// absent, and the C library falls back to clone. CLONE_NEWTIME shares its bit
// with the exit signal in this call and cannot be asked for here.
func cloneRule() Rule {
	const namespaces = 0x7e020000 // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
	return Rule{
		Nr:     nrClone,
		Checks: []Check{{Arg: 0, Test: AnySet, Mask: namespaces, Then: Fail(eperm)}},
		Else:   Allow,
	}
}

// ioctlRule keeps the sandbox from typing into a terminal (TIOCSTI), from the
// console's selection buffer (TIOCLINUX), from redirecting console output
// (TIOCCONS), from loading line disciplines (TIOCSETD), and from making a btrfs
// subvolume or a snapshot of one, which would show what mounts hide in it.
//
// Two set attributes of a file.
func ioctlRule(o Options) Rule {
	var checks []Check
	for _, cmd := range []uint32{0x5412, 0x541c, 0x541d, 0x5423, 0x50009401, 0x50009417, 0x5000940e, 0x50009418} {
		checks = append(checks, Check{Arg: 1, Mask: all, Value: cmd, Then: Fail(eperm)})
	}
	if o.Removes {
		for _, cmd := range []uint32{0x40086602, 0x401c5820} { // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
			checks = append(checks, Check{Arg: 1, Mask: all, Value: cmd, Then: Notify})
		}
	}
	return Rule{Nr: nrIoctl, Checks: checks, Else: Allow}
}

// socketRule allows the given families; of netlink only the routing protocol,
// which resolvers and language run-times ask for the machine's addresses.
func socketRule(o Options) Rule {
	families := o.Families
	var checks []Check
	if o.Sockets && !o.Datagrams {
		checks = unixDatagrams(checks)
	}
	for _, f := range families {
		if f != FamilyNetlink {
			checks = append(checks, Check{Arg: 0, Mask: all, Value: f, Then: Allow})
		}
	}
	if !slices.Contains(families, FamilyNetlink) {
		return Rule{Nr: nrSocket, Checks: checks, Else: Fail(eafnosupport)}
	}
	checks = append(checks,
		Check{Arg: 0, Test: NotEqual, Mask: all, Value: FamilyNetlink, Then: Fail(eafnosupport)},
		Check{Arg: 2, Mask: all, Value: 0, Then: Allow})
	return Rule{Nr: nrSocket, Checks: checks, Else: Fail(eprotonosupp)}
}

// unixDatagrams refuses unix sockets that can send to any address; the kernel
// makes a raw one to a datagram socket.
func unixDatagrams(checks []Check) []Check {
	for _, kind := range []uint32{2, 3} { // SOCK_DGRAM, SOCK_RAW
		checks = append(checks, Check{
			Arg: 0, Mask: all, Value: FamilyUnix,
			And:  &Check{Arg: 1, Mask: 0xf, Value: kind}, // the rest are flags
			Then: Fail(eprotonosupp),
		})
	}
	return checks
}

func socketpairRule(o Options) Rule {
	var checks []Check
	if o.Sockets && !o.Datagrams {
		checks = unixDatagrams(checks)
	}
	return Rule{
		Nr:     nrSocketpair,
		Checks: append(checks, Check{Arg: 0, Mask: all, Value: FamilyUnix, Then: Allow}),
		Else:   Fail(eafnosupport),
	}
}

// sendtoRule asks about what is sent with a destination. The kernel goes by the
// length of that. The destination of sendmsg and sendmmsg is in memory, out of
// the filter's sight, so they are always asked about.
func sendtoRule() Rule {
	return Rule{Nr: nrSendto, Checks: []Check{{Arg: 5, Mask: all, Value: 0, Then: Allow}}, Else: Notify}
}

// HandOut are the flags of a sendmsg that nobody is asked about: nobody can be
// until the listener has been handed out, by such a call. Once that is done the
// filter HandedOut must be added, before anything else runs. The kernel gives the
// bits no meaning in this call.
const HandOut = 0x1600 // MSG_FIN, MSG_SYN, MSG_RST

// HandedOut is the filter that takes back the exception for HandOut.
func HandedOut() Profile {
	return Profile{Arch: auditArch, X32: hasX32, MaxNr: maxNr, Rules: []Rule{sendmsgRule(Fail(eperm), Allow)}}
}

// Lacking is a filter under which one call does not exist, as in an older kernel. It takes
// nothing else away, and needs no other filter.
func Lacking(nr uint32) Profile {
	return Profile{Arch: auditArch, X32: hasX32, MaxNr: maxNr, Rules: []Rule{{Nr: nr, Else: Fail(enosys)}}}
}

func sendmsgRule(handOut, other Action) Rule {
	return Rule{Nr: nrSendmsg, Checks: []Check{{Arg: 2, Mask: all, Value: HandOut, Then: handOut}}, Else: other}
}

// modeCall is a call that gives a file its mode.
type modeCall struct {
	nr   uint32
	mode int // argument number of the mode
	// flags is the argument that says whether a file is made at all; -1 if it
	// always is.
	flags int
	node  bool // the mode also says what kind of file
	makes bool // it makes a file
	named bool // the file has a name in the call
}

// Bits of the flags of open, the same on every architecture Bailey runs on
// unless a table says otherwise.
const (
	openWrites  = 0x1 | 0x2 | 0x40 | 0x200 | 0x400000 // O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE
	openCreates = 0x40 | 0x400000
	openPath    = 0x200000 // O_PATH: neither reads nor writes
)

// modeRule refuses setuid and setgid bits: inside they mean nothing, but the
// file stays in the project, where whoever runs it would become its owner. It
// also refuses device nodes. One with number 0:0 needs no privilege and is a
// whiteout to an overlay file system.
//
// The broker does the same for a call that it is asked about.
func modeRule(c modeCall, o Options) Rule {
	r := Rule{Nr: c.nr, Else: Allow}
	switch {
	case c.flags >= 0 && (o.Writes || o.Reads || o.Observe):
		return openRule(c, o)
	case c.flags >= 0:
		r.Checks = append(r.Checks, Check{Arg: c.flags, Test: NoneSet, Mask: openCreates, Then: Allow})
	case c.makes && (o.Writes || o.Observe), !c.makes && o.Removes, c.named && o.Observe:
		r.Else = Notify
	}
	r.Checks = append(r.Checks, Check{Arg: c.mode, Test: AnySet, Mask: 0o6000, Then: Fail(eperm)})
	if c.node {
		for _, kind := range []uint32{0o020000, 0o060000} { // character, block
			r.Checks = append(r.Checks, Check{Arg: c.mode, Mask: 0o170000, Value: kind, Then: Fail(eperm)})
		}
	}
	return r
}

// openRule asks about every file that is opened to be written, and about those
// to be read if that is wanted too. A directory cannot be opened to be written,
// and what is opened as one is no file.
func openRule(c modeCall, o Options) Rule {
	r := Rule{Nr: c.nr, Else: Allow, Checks: []Check{
		{Arg: c.flags, Test: AnySet, Mask: openPath, Then: Allow},
		{Arg: c.flags, Test: AnySet, Mask: openWrites, Then: Notify},
	}}
	switch {
	case o.Observe:
		r.Else = Notify
	case o.Reads:
		r.Checks = append(r.Checks, Check{Arg: c.flags, Test: AnySet, Mask: openDirectory, Then: Allow})
		r.Else = Notify
	}
	return r
}
