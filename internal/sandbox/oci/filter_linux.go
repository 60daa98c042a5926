package oci

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

//go:generate go run ./callgen

// enosys is what calls answer that do not exist for the sandbox.
const enosys = 38

// translate says in the words of the OCI what a filter does, exactly. Those words
// are allow-lists with comparisons that must all hold, so that the first check that
// holds has to be spelled out as sets of arguments that do not overlap; see cube.
//
// Where the filter names a call that the runtime's library does not know, that is
// left out by the runtime and answers as if it did not exist: less is allowed, never
// more.
func translate(p seccomp.Profile) (*specs.LinuxSeccomp, error) {
	missing := uint(enosys)
	out := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &missing,
		Architectures:   []specs.Arch{architecture()},
	}
	ruled := make(map[uint32]*seccomp.Rule, len(p.Rules))
	for i := range p.Rules {
		ruled[p.Rules[i].Nr] = &p.Rules[i]
	}
	always := make(map[seccomp.Action][]string)
	var sometimes []specs.LinuxSyscall
	for _, nr := range slices.Sorted(maps.Keys(callNames)) {
		name, rule := callNames[nr], ruled[nr]
		switch {
		case nr > p.MaxNr:
			continue
		case rule == nil:
			always[seccomp.Allow] = append(always[seccomp.Allow], name)
		case len(rule.Checks) == 0:
			always[rule.Else] = append(always[rule.Else], name)
		default:
			entries, err := conditions(name, rule)
			if err != nil {
				return nil, err
			}
			sometimes = append(sometimes, entries...)
		}
	}
	for _, action := range slices.Sorted(maps.Keys(always)) {
		entry, err := entryOf(always[action], action)
		if err != nil {
			return nil, err
		}
		out.Syscalls = append(out.Syscalls, entry)
	}
	out.Syscalls = append(out.Syscalls, sometimes...)
	return out, nil
}

// filter is a Spec's for a runtime.
//
// GVisor knows one error for everything it refuses, EPERM. The C library gives up at
// that where it would fall back from clone3 to clone, whose flags can be judged, so
// that clone3 is left to a tracer: without one it answers ENOSYS. And a tracer could
// put another call in the place of one that was judged. So there are no tracers.
func filter(s *spec.Spec, runtime string) (*specs.LinuxSeccomp, error) {
	p := profile(s, HasWalls(runtime))
	if runtime != Gvisor {
		return translate(p)
	}
	p.Rules = slices.DeleteFunc(p.Rules, func(r seccomp.Rule) bool { return r.Nr == unix.SYS_CLONE3 || r.Nr == unix.SYS_PTRACE })
	p.Rules = append(p.Rules, seccomp.Rule{Nr: unix.SYS_PTRACE, Else: seccomp.Fail(uint16(unix.EPERM))}, seccomp.Rule{Nr: unix.SYS_CLONE3, Else: trace})
	return translate(p)
}

// trace has a tracer decide, which the native filter never does.
const trace seccomp.Action = 0x7ff00000

func architecture() specs.Arch {
	if runtime.GOARCH == "arm64" {
		return specs.ArchAARCH64
	}
	return specs.ArchX86_64
}

// entryOf is the entry for calls whatever their arguments are.
func entryOf(names []string, action seccomp.Action) (specs.LinuxSyscall, error) {
	switch {
	case action == seccomp.Allow:
		return specs.LinuxSyscall{Names: names, Action: specs.ActAllow}, nil
	case action == trace:
		return specs.LinuxSyscall{Names: names, Action: specs.ActTrace}, nil
	case action&^0xffff == seccomp.Errno:
		errno := uint(action & 0xffff)
		return specs.LinuxSyscall{Names: names, Action: specs.ActErrno, ErrnoRet: &errno}, nil
	}
	return specs.LinuxSyscall{}, fmt.Errorf("the filter asks for action %#x on %s, which a bundle cannot say", uint32(action), names[0])
}

// conditions are the entries for a call that is judged by its arguments.
func conditions(name string, rule *seccomp.Rule) ([]specs.LinuxSyscall, error) {
	var out []specs.LinuxSyscall
	add := func(sets []cube, action seccomp.Action) error {
		for _, set := range sets {
			entry, err := entryOf([]string{name}, action)
			if err != nil {
				return err
			}
			entry.Args = set.args()
			out = append(out, entry)
		}
		return nil
	}
	rest := []cube{{}}
	for i := range rule.Checks {
		holds := cubesOf(&rule.Checks[i])
		if err := add(intersect(rest, holds), rule.Checks[i].Then); err != nil {
			return nil, err
		}
		rest = subtract(rest, holds)
	}
	return out, add(rest, rule.Else)
}

// cube is a set of arguments: those of which every argument has, in the bits of its
// mask, that value. The kernel's own arguments that are judged are 32 bits wide; the
// upper half, which a caller may fill with anything, is in no mask.
type cube [6]struct{ mask, value uint32 }

// cubesOf are the arguments for which a check holds. They do not overlap.
func cubesOf(c *seccomp.Check) []cube {
	var one cube
	one[c.Arg].mask = c.Mask
	if c.Test == seccomp.Equal || c.Test == seccomp.NotEqual {
		one[c.Arg].value = c.Value & c.Mask
	}
	sets := []cube{one}
	if c.Test == seccomp.NotEqual || c.Test == seccomp.AnySet {
		sets = subtract([]cube{{}}, sets)
	}
	if c.And != nil {
		sets = intersect(sets, cubesOf(&seccomp.Check{Arg: c.And.Arg, Test: c.And.Test, Mask: c.And.Mask, Value: c.And.Value}))
	}
	return sets
}

func intersect(a, b []cube) (out []cube) {
	for _, x := range a {
		for _, y := range b {
			if both, ok := x.and(y); ok {
				out = append(out, both)
			}
		}
	}
	return out
}

func subtract(a, b []cube) []cube {
	for _, y := range b {
		var left []cube
		for _, x := range a {
			left = append(left, x.minus(y)...)
		}
		a = left
	}
	return a
}

// and is what is in both, if anything is.
func (c cube) and(d cube) (cube, bool) {
	for i := range c {
		if (c[i].value^d[i].value)&c[i].mask&d[i].mask != 0 {
			return cube{}, false
		}
		c[i].mask |= d[i].mask
		c[i].value |= d[i].value
	}
	return c, true
}

// minus is what is not in d. For each bit that d asks for and c does not, that is
// the part where this bit is the first to differ.
func (c cube) minus(d cube) (out []cube) {
	if _, ok := c.and(d); !ok {
		return []cube{c}
	}
	for i := range d {
		for bit := uint32(1 << 31); bit != 0; bit >>= 1 {
			if d[i].mask&bit == 0 || c[i].mask&bit != 0 {
				continue
			}
			differs := c
			differs[i].mask |= bit
			differs[i].value |= ^d[i].value & bit
			out = append(out, differs)
			c[i].mask |= bit
			c[i].value |= d[i].value & bit
		}
	}
	return out
}

func (c cube) args() (args []specs.LinuxSeccompArg) {
	for i, a := range c {
		if a.mask != 0 {
			args = append(args, specs.LinuxSeccompArg{Index: uint(i), Value: uint64(a.mask), ValueTwo: uint64(a.value), Op: specs.OpMaskedEqual})
		}
	}
	return args
}
