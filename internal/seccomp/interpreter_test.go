package seccomp

import "fmt"

// call is what the kernel shows a filter: struct seccomp_data.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// word returns the 32 bits at an offset, on a little-endian machine.
func (c call) word(offset uint32) uint32 {
	switch {
	case offset == 0:
		return c.nr
	case offset == 4:
		return c.arch
	case offset >= 16 && offset < 64 && offset%4 == 0:
		return uint32(c.args[(offset-16)/8] >> (8 * ((offset - 16) % 8)))
	}
	panic(fmt.Sprintf("load from offset %d", offset))
}

// run interprets the part of classic BPF that filters are made of, and panics
// on everything the kernel would not load.
func run(prog []Instruction, c call) Action {
	var a uint32
	for pc := 0; ; pc++ {
		in := prog[pc]
		jump := func(holds bool) {
			if holds {
				pc += int(in.JT)
			} else {
				pc += int(in.JF)
			}
		}
		switch in.Code {
		case 0x20: // load an absolute word
			a = c.word(in.K)
		case 0x54: // and
			a &= in.K
		case 0x05: // jump always
			pc += int(in.K)
		case 0x15:
			jump(a == in.K)
		case 0x25:
			jump(a > in.K)
		case 0x35:
			jump(a >= in.K)
		case 0x45:
			jump(a&in.K != 0)
		case 0x06: // return
			return Action(in.K)
		default:
			panic(fmt.Sprintf("operation %#x at %d", in.Code, pc))
		}
	}
}

// decide evaluates a profile directly, as its documentation reads.
func decide(p Profile, c call) Action {
	if c.arch != p.Arch {
		return KillProcess
	}
	if c.nr > p.MaxNr || p.X32 && c.nr >= x32Bit {
		return Fail(enosys)
	}
	for _, r := range p.Rules {
		if r.Nr == c.nr {
			return decideRule(r, c)
		}
	}
	return Allow
}

func decideRule(r Rule, c call) Action {
	for _, check := range r.Checks {
		v := uint32(c.args[check.Arg]) & check.Mask
		if [...]bool{Equal: v == check.Value, NotEqual: v != check.Value, AnySet: v != 0, NoneSet: v == 0}[check.Test] {
			return check.Then
		}
	}
	return r.Else
}
