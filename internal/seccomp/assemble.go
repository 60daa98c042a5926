package seccomp

// Instruction is one BPF instruction, laid out as the kernel's sock_filter.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}

// BPF operation codes used here.
const (
	opLoad = 0x20 // BPF_LD | BPF_W | BPF_ABS
	opAnd  = 0x54 // BPF_ALU | BPF_AND | BPF_K
	opJump = 0x05 // BPF_JMP | BPF_JA
	opJEq  = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	opJGE  = 0x35 // BPF_JMP | BPF_JGE | BPF_K
	opJSet = 0x45 // BPF_JMP | BPF_JSET | BPF_K
	opRet  = 0x06 // BPF_RET | BPF_K
)

// Offsets in the kernel's struct seccomp_data.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const x32Bit = 0x40000000

// Assemble returns the program for p. It is a binary search over the call's
// number: about seven comparisons for any call, and short enough for the
// kernel to precompute which calls are always allowed.
func Assemble(p Profile) []Instruction {
	a := assembler{out: make([]Instruction, 0, 512)}
	a.emit(opLoad, 0, 0, offArch)
	a.emit(opJEq, 1, 0, p.Arch)
	a.ret(KillProcess)
	a.emit(opLoad, 0, 0, offNr)
	limit := p.MaxNr + 1
	if p.X32 && limit > x32Bit {
		limit = x32Bit
	}
	a.emit(opJGE, 0, 1, limit)
	a.ret(Fail(enosys))
	a.search(segments(p))
	a.answers()
	return a.out
}

// segment is a run of call numbers from lo up to the next segment's lo that
// share one rule.
type segment struct {
	lo   uint32
	rule *Rule // nil: allowed
}

func segments(p Profile) []segment {
	segs := make([]segment, 0, 2*len(p.Rules)+1)
	next := uint32(0) // first number not covered yet
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Nr > next || len(segs) == 0 && r.Nr > 0 {
			segs = append(segs, segment{lo: next})
		}
		// Neighbours with the same plain answer share a leaf.
		if n := len(segs); n > 0 && segs[n-1].rule != nil && r.Nr == next &&
			len(r.Checks) == 0 && len(segs[n-1].rule.Checks) == 0 && r.Else == segs[n-1].rule.Else {
			next = r.Nr + 1
			continue
		}
		segs = append(segs, segment{lo: r.Nr, rule: r})
		next = r.Nr + 1
	}
	return append(segs, segment{lo: next})
}

type assembler struct {
	out []Instruction
	// jumps are branches to a plain answer, which stands once further down.
	jumps []jump
}

// jump is a branch of out[at]: taken if the comparison holds, or if not.
type jump struct {
	at    int
	holds bool
	to    Action
}

func (a *assembler) emit(code uint16, jt, jf uint8, k uint32) {
	a.out = append(a.out, Instruction{Code: code, JT: jt, JF: jf, K: k})
}

func (a *assembler) ret(act Action) { a.emit(opRet, 0, 0, uint32(act)) }

// search emits the decision over segs, which are at least one.
func (a *assembler) search(segs []segment) {
	if len(segs) == 1 {
		a.leaf(segs[0].rule)
		return
	}
	mid := len(segs) / 2
	test := len(a.out)
	if atMost(segs[:mid]) > reach {
		a.far(segs[:mid], segs[mid:])
		return
	}
	a.emit(opJGE, 0, 0, segs[mid].lo)
	a.branch(test, false, segs[:mid])
	a.branch(test, true, segs[mid:])
}

// far is search where the second half stands too far away for a comparison to lead
// there: an unconditional jump does.
func (a *assembler) far(first, second []segment) {
	a.emit(opJGE, 0, 1, second[0].lo)
	jump := len(a.out)
	a.emit(opJump, 0, 0, 0)
	a.search(first)
	a.answers() // nothing falls through to here
	a.out[jump].K = uint32(len(a.out) - jump - 1)
	a.search(second)
}

// reach is how many instructions a comparison can skip, less some for plain answers
// that may come to stand between.
const reach = 255 - 55

// atMost is a number of instructions that the decision over segs does not exceed, plain
// answers aside.
func atMost(segs []segment) int {
	n := 2 * len(segs)
	for _, s := range segs {
		if s.rule == nil {
			continue
		}
		for i := range s.rule.Checks {
			n += 4
			if s.rule.Checks[i].And != nil {
				n += 3
			}
		}
	}
	return n
}

// branch sets where a test goes to: to a plain answer further down, or to what
// follows here.
func (a *assembler) branch(test int, holds bool, segs []segment) {
	if r := segs[0].rule; len(segs) == 1 && (r == nil || len(r.Checks) == 0) {
		to := Allow
		if r != nil {
			to = r.Else
		}
		a.jumps = append(a.jumps, jump{test, holds, to})
		return
	}
	// Nothing falls through to here, so the answers can stand here if the first
	// branch to one is about to be out of reach.
	if len(a.jumps) > 0 && len(a.out)-a.jumps[0].at > 128 {
		a.answers()
	}
	a.aim(test, holds)
	a.search(segs)
}

// aim lets a branch of an instruction lead to the next one emitted.
func (a *assembler) aim(at int, holds bool) {
	distance := len(a.out) - at - 1
	if distance > 255 {
		panic("seccomp: filter too long for a short jump")
	}
	if holds {
		a.out[at].JT = uint8(distance)
	} else {
		a.out[at].JF = uint8(distance)
	}
}

// answers emits the plain answers that are waited for, each once.
func (a *assembler) answers() {
	for len(a.jumps) > 0 {
		to := a.jumps[0].to
		rest := a.jumps[:0]
		for _, j := range a.jumps {
			if j.to != to {
				rest = append(rest, j)
				continue
			}
			a.aim(j.at, j.holds)
		}
		a.ret(to)
		a.jumps = rest
	}
}

func (a *assembler) leaf(r *Rule) {
	if r == nil {
		a.ret(Allow)
		return
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		misses := []miss{a.check(c)}
		if c.And != nil {
			misses = append(misses, a.check(c.And))
		}
		a.ret(c.Then)
		for _, m := range misses {
			a.aim(m.at, m.holds)
		}
	}
	a.ret(r.Else)
}

// miss is the branch of an instruction that is taken if a check does not hold.
type miss struct {
	at    int
	holds bool
}

// check emits the test of an argument. If it holds the next instruction
// follows; the other branch is the caller's to aim.
func (a *assembler) check(c *Check) miss {
	a.emit(opLoad, 0, 0, uint32(offArgs+8*c.Arg)) // low half, little-endian
	code, k := uint16(opJEq), c.Value
	switch {
	case c.Test == AnySet || c.Test == NoneSet:
		code, k = opJSet, c.Mask
	case c.Mask != all:
		a.emit(opAnd, 0, 0, c.Mask)
	}
	m := miss{at: len(a.out), holds: c.Test == NotEqual || c.Test == NoneSet}
	a.emit(code, 0, 0, k)
	return m
}
