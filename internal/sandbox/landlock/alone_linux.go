package landlock

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Alone is a Spec that can be carried out on a host that makes no namespaces and
// is no sandbox itself: in a container, or where they are switched off.
//
// Nothing around it holds a part of the policy. What mounts would do is done by
// Landlock, which only knows what exists at the start, and by a broker, through
// which the command makes, writes, moves and removes everything in the
// directories it may write, and changes modes, owners and dates anywhere. Private
// directories are not shown but replaced by new ones, which the environment
// names. So the command gets less than the policy grants, never more, but for
// what Shared lists.
type Alone struct {
	// Warnings and Shared are those of a Plan.
	Warnings []string
	Shared   []string

	spec    *spec.Spec  // flattened
	home    string      // the real one, if it is private
	private []string    // directories that start empty, below home
	moved   [][2]string // paths inside, and where what they name is here
	streams [3]*os.File
	begun   func(pidfd int)
	check   *check
}

// PrepareAlone decides whether a Spec can be carried out without namespaces and
// without a sandbox around it. It changes nothing. If a part cannot be held the
// error is a *spec.Refused with every such part.
func PrepareAlone(s *spec.Spec, o Options) (*Alone, error) {
	if u := s.Overlay.Refused(spec.RuntimeLandlock); u != nil {
		return nil, &spec.Refused{Reasons: []*spec.Unsupported{u}}
	}
	if u := s.Rules.Refused(spec.RuntimeLandlock); u != nil {
		return nil, &spec.Refused{Reasons: []*spec.Unsupported{u}}
	}
	abi, err := interfaceFor(s)
	if err != nil {
		return nil, err
	}
	if err := refuseBroker(); err != nil {
		return nil, err
	}
	w, err := look()
	if err != nil {
		return nil, err
	}
	a := &Alone{streams: o.Streams, begun: o.Begun}
	a.check = &check{spec: s, world: w, abi: abi, terminal: hasTerminal(o.Streams), alone: true}
	a.check.refuseAlone()
	a.check.refuseSockets(o.Streams)
	a.flatten(s)
	if len(a.check.reasons) == 0 {
		a.check.findPoints()
		a.check.grant()
	}
	if len(a.check.reasons) > 0 {
		return nil, &spec.Refused{Reasons: a.check.reasons}
	}
	a.Warnings = append(a.Warnings, a.check.warnings...)
	a.Shared = append(a.Shared, "the names and arguments of the processes in /proc")
	if s.Network == spec.NetworkHost {
		a.Shared = append(a.Shared, "the network")
	}
	return a, nil
}

// refuseBroker refuses to be the second broker of a process, which the kernel would
// not allow either.
func refuseBroker() error {
	brokered, err := onOwnThread(func() (bool, error) {
		if err := noNewPrivileges(); err != nil {
			return false, err
		}
		return hasListener()
	})
	if err == nil && brokered {
		err = &spec.Refused{Reasons: []*spec.Unsupported{{
			Key: "runtime", Value: "landlock", Reason: "already in a sandbox that has a broker, and a process can have only one",
			Fix: "run the command itself: it is confined already",
		}}}
	}
	return err
}

// interfaceFor asks the kernel for its Landlock, and refuses one that is too old
// for a Spec.
func interfaceFor(s *spec.Spec) (int, error) {
	abi, errno := native.LandlockABI()
	need := max(minABI, s.Landlock.MinABI)
	if abi >= need {
		return abi, nil
	}
	if errno == 0 {
		errno = unix.ENOSYS
	}
	return 0, &native.LaunchError{
		Step:  fmt.Sprintf("landlock interface %d is needed, this kernel has %d", need, abi),
		Errno: errno, Wall: native.WallLandlock,
	}
}

// Elsewhere is the part of a fix that is meant for hosts without namespaces. Who
// chose this runtime where there are some has an easier one.
const Elsewhere = "start bailey where it can make namespaces (see: bailey doctor)"

// refuseAlone refuses what neither Landlock nor the broker holds.
func (c *check) refuseAlone() {
	const fix = Elsewhere + ", or remove it"
	if c.spec.Network == spec.NetworkGate {
		c.refuseGate()
	}
	if len(c.spec.Expose) > 0 {
		c.refuse("network.exposePorts", "", "needs a network namespace", fix)
	}
	if n, ok := c.spec.UserPids(); ok {
		c.refuse("resources.pids", fmt.Sprint(n), "without a user namespace every process of this user counts", fix)
	}
	c.spec.Limits.Each(func(key, value string) { c.refuse(key, value, "needs a sandbox with namespaces of its own", fix) })
	b := c.spec.Broker
	if b == nil {
		return
	}
	if b.Observe {
		c.refuse("--monitor", "", "needs namespaces", fix)
	}
	if len(b.Sockets.Allowed) > 0 && !b.Sockets.All {
		c.refuse("network.allowUnixSockets", strings.Join(b.Sockets.Allowed, ", "), "one socket cannot be told from another without namespaces",
			`set "allowAllUnixSockets", or `+Elsewhere)
	}
	for _, layer := range b.Layers {
		for i := range layer {
			if layer[i].Read == spec.Denied && b.Read && !c.isConcealed(layer[i].Pattern) {
				c.refuseWhy(layer[i].Why, "without namespaces only what exists at the start can be kept from being read",
					"name the files or directories themselves, or "+Elsewhere)
			}
		}
	}
}

// isConcealed says whether a pattern is the path of something that a mount of the
// Spec hides.
func (c *check) isConcealed(text string) bool {
	path, ok := pattern.Literal(text)
	return ok && slices.ContainsFunc(c.spec.Mounts, func(m spec.Mount) bool { return m.Kind == spec.Hide && m.Target == path })
}

// flatten translates the mounts to what can be had of them at their own places.
func (a *Alone) flatten(s *spec.Spec) {
	flat := *s
	flat.Mounts = nil
	for i := range s.Mounts {
		m := s.Mounts[i]
		switch m.Kind {
		case spec.Bind:
			if m.Source != m.Target && m.Why == spec.Certificates {
				a.flattenCertificates(&flat, m)
				continue
			}
			if m.Source != m.Target {
				a.check.refuseWhy(m.Why, "cannot be shown at "+m.Target+" without a mount namespace", "")
				continue
			}
		case spec.Tmpfs:
			a.replace(&flat, m)
			continue
		case spec.Private:
			a.flattenPrivate(&flat, m)
			continue
		case spec.Hide:
			if spec.Covers("/proc", m.Target) && m.Why == spec.WholeMachine {
				continue // figures, and which keys there are, not what they hold; see docs/restricted-hosts.md
			}
		case spec.Proc, spec.Dev:
		default: // directories and links only lead to something
			continue
		}
		flat.Mounts = append(flat.Mounts, m)
	}
	a.spec, a.check.spec = &flat, &flat
}

// replace leaves a private directory out. What it stands on inside a granted one
// stays hidden.
func (a *Alone) replace(flat *spec.Spec, m spec.Mount) {
	if m.Why == spec.PrivateHome {
		a.home = m.Target
	}
	flat.Mounts = append(flat.Mounts, spec.Mount{Kind: spec.Hide, Target: m.Target, Source: "dir", Why: m.Why})
}

// flattenPrivate lets a directory whose changes would stay in memory start empty,
// if it is in the home directory and nothing else around it is granted. Elsewhere
// it can be read and not be written.
func (a *Alone) flattenPrivate(flat *spec.Spec, m spec.Mount) {
	_, around := flat.Access(m.Target)
	if a.home != "" && around != nil && around.Target == a.home {
		a.private = append(a.private, m.Target)
		return
	}
	flat.Mounts = append(flat.Mounts, spec.Mount{Kind: spec.Bind, Target: m.Target, Source: m.Target, Why: m.Why})
	a.warn(m.Why + ": changes cannot be kept in memory here, so it cannot be written")
}

// flattenCertificates lets the command read the gate's certificates where they
// are, and the environment name that place. They cannot stand in the place of the
// system's own.
func (a *Alone) flattenCertificates(flat *spec.Spec, m spec.Mount) {
	if !spec.Covers(spec.OwnDir, m.Target) {
		a.warn(m.Target + " has not the gate's certificates, and programs that go by no variable for them fail where TLS is opened")
		return
	}
	a.moved = append(a.moved, [2]string{m.Target, m.Source})
	m.Target = m.Source
	flat.Mounts = append(flat.Mounts, m)
}

// rename has the environment say where things are here.
func (a *Alone) rename(env []string) []string {
	out := slices.Clone(env)
	for i := range out {
		for _, m := range a.moved {
			out[i] = strings.ReplaceAll(out[i], m[0], m[1])
		}
	}
	return out
}

func (a *Alone) warn(text string) { a.Warnings = append(a.Warnings, text) }

// admit grants the command its own directories, which lie in one.
func (a *Alone) admit(dir string) {
	rights := toRead | toWrite
	if a.check.isExecutable("/tmp") {
		rights |= toExecute
	}
	a.check.rules = append(a.check.rules, rule{dir, rights})
	a.spec.Mounts = append(a.spec.Mounts, spec.Mount{Kind: spec.Bind, Target: dir, Source: dir, Write: true, Why: "private directories"})
	a.addBroker(dir)
}

// addBroker gives the flattened Spec the rules that stand in the place of its
// mounts: one more layer, in which the innermost grant or denial decides.
func (a *Alone) addBroker(haven string) {
	b := spec.Broker{Sockets: spec.Sockets{All: true}} // or there would be one already
	if a.spec.Broker != nil {
		b = *a.spec.Broker
	}
	b.Areas, b.Strict, b.Read = nil, true, false
	var layer []spec.PathRule
	for i := range a.spec.Mounts {
		m := &a.spec.Mounts[i]
		rule := spec.PathRule{Pattern: pattern.Quote(m.Target), Read: spec.Allowed, Write: spec.Denied, Why: m.Why}
		switch {
		case m.Kind == spec.Bind && m.Write:
			rule.Write = spec.Allowed
			if !m.File && m.Target != haven && !slices.ContainsFunc(b.Areas, func(d string) bool { return spec.Covers(d, m.Target) }) {
				b.Areas = append(b.Areas, m.Target)
			}
		case m.Kind == spec.Hide:
			rule.Read = spec.Denied
		case m.Kind == spec.Dev:
			rule.Write = spec.Allowed
		}
		layer = append(layer, rule)
	}
	slices.SortStableFunc(layer, func(x, y spec.PathRule) int { return len(y.Pattern) - len(x.Pattern) })
	layer = append(layer, spec.PathRule{Pattern: "/**", Write: spec.Denied, Why: "not granted"})
	b.Layers = append(slices.Clone(b.Layers), layer)
	a.spec.Broker = &b
}

// filterAlone is the filter of a sandbox without namespaces. What changes
// extended attributes and flags of files is refused: Landlock knows nothing of
// it, and nothing else would keep it to the files that may be written. Modes,
// owners and dates are changed by the broker.
func (c *check) filterAlone() seccomp.Profile {
	p := seccomp.New(seccomp.Options{
		Families: c.familiesAlone(), Writes: true, Removes: true, Execs: c.spec.Broker.Commands != nil,
	})
	p.Rules = c.isolate(p.Rules)
	switch {
	case c.spec.Network == spec.NetworkGate:
		p.Rules = gateRules(p.Rules)
	case c.spec.Network == spec.NetworkNone && !c.allowsUnix():
		// No socket can be made. One that was inherited is connected already.
		p.Rules = put(p.Rules, seccomp.Rule{Nr: unix.SYS_CONNECT, Else: seccomp.Fail(uint16(unix.EACCES))})
	}
	for _, nr := range attributeCalls {
		p.Rules = put(p.Rules, seccomp.Rule{Nr: nr, Else: seccomp.Fail(uint16(unix.EPERM))})
	}
	for _, nr := range oldDateCalls {
		p.Rules = put(p.Rules, seccomp.Rule{Nr: nr, Else: seccomp.Fail(uint16(unix.ENOSYS))})
	}
	if i, found := find(p.Rules, unix.SYS_IOCTL); found {
		p.Rules[i].Checks = slices.Clone(p.Rules[i].Checks)
		for j := range p.Rules[i].Checks {
			p.Rules[i].Checks[j].Then = seccomp.Fail(uint16(unix.EPERM))
		}
	}
	return p
}

// familiesAlone are the socket families that may be created. What is closed has
// none: loopback is that of everybody here. Those of the gate have a rule of their
// own; see gateRules.
func (c *check) familiesAlone() []uint32 {
	return slices.DeleteFunc(native.Families(c.spec.Seccomp.Families), func(f uint32) bool {
		if f == seccomp.FamilyUnix {
			return !c.allowsUnix()
		}
		return c.spec.Network != spec.NetworkHost
	})
}

// attributeCalls change more about a file than its mode, owner and dates.
var attributeCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR,
}
