package native

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// op is one system call of a plan. The assembler code knows its layout.
type op struct {
	nr       uintptr
	arg      [6]uintptr
	out      uintptr // where the result goes, or 0
	ref      uintptr // bit i: arg[i] is the address of the value; bit i+addressBits: it is an address
	tolerate uintptr // an errno that is no failure, or 0
}

// addressBits is where those bits begin. The assembler code does not look at them:
// they are for who moves a plan to other memory.
const addressBits = 8

// failure is where the child says which call failed.
type failure struct {
	op    uintptr
	errno uintptr
}

// arg is an argument of a call: a value, or the address of a result.
type arg struct {
	v       uintptr
	ref     bool
	address bool // v is one, of memory of the plan
}

func num[T ~int | ~uint32 | ~uint64 | ~uintptr](v T) arg { return arg{v: uintptr(v)} }

// cell holds a result that later calls use, such as a descriptor.
type cell *uintptr

func from(c cell) arg { return arg{v: uintptr(unsafe.Pointer(c)), ref: true} }

// step says what a call is for, in the words of an error message.
type step struct {
	wall Wall
	verb string
	a, b string
}

func (s step) String() string {
	out := s.verb
	if s.a != "" {
		out += " " + s.a
	}
	if s.b != "" && s.b != s.a {
		out += " on " + s.b
	}
	return out
}

// plan is a list of calls and the memory they point to.
type plan struct {
	ops   []op
	steps []step   // in order
	of    []uint16 // the step ops[i] belongs to
	keep  []any    // memory the ops point to; Go must not free it
	arena []byte   // free rest of the current block of text

	blocks [][]byte   // all that alloc takes from
	inner  []*uintptr // addresses of the plan's memory in the plan's memory
}

func newPlan(calls int) *plan {
	return &plan{ops: make([]op, 0, calls), of: make([]uint16, 0, calls), steps: make([]step, 0, calls/4)}
}

// begin names the step that the following calls belong to.
func (p *plan) begin(w Wall, verb, a, b string) { p.steps = append(p.steps, step{w, verb, a, b}) }

// call adds a system call and returns it, to say where its result goes or
// which error is none. The pointer is good until the next call is added.
func (p *plan) call(nr uintptr, args ...arg) *op {
	o := op{nr: nr}
	for i, a := range args {
		o.arg[i] = a.v
		if a.ref {
			o.ref |= 1 << i
		}
		if a.address {
			o.ref |= 1 << (addressBits + i)
		}
	}
	p.ops = append(p.ops, o)
	p.of = append(p.of, uint16(len(p.steps)-1))
	return &p.ops[len(p.ops)-1]
}

// result makes what the call returns available to later calls.
func (p *plan) result(o *op) cell {
	v := (*uintptr)(p.alloc(8))
	o.out = uintptr(unsafe.Pointer(v))
	return v
}

// ptr is an argument that points to memory of the launcher.
func (p *plan) ptr(v unsafe.Pointer) arg {
	p.keep = append(p.keep, v)
	return arg{v: uintptr(v), address: true}
}

// place copies a value into the plan's memory.
func place[T any](p *plan, v T) *T {
	at := (*T)(p.alloc(int(unsafe.Sizeof(v))))
	*at = v
	return at
}

// bytes is an argument that points to a copy of b.
func (p *plan) bytes(b []byte) arg {
	at := p.alloc(len(b))
	copy(unsafe.Slice((*byte)(at), len(b)), b)
	return arg{v: uintptr(at), address: true}
}

// str is an argument that points to a NUL-terminated copy of s.
func (p *plan) str(s string) arg { return arg{v: p.text(s), address: true} }

func (p *plan) text(s string) uintptr {
	at := p.alloc(len(s) + 1)
	copy(unsafe.Slice((*byte)(at), len(s)), s)
	return uintptr(at)
}

// vector points to a NULL-terminated array of strings.
func (p *plan) vector(list []string) arg {
	at := p.alloc(8 * (len(list) + 1))
	v := unsafe.Slice((*uintptr)(at), len(list)+1)
	for i, s := range list {
		v[i] = p.text(s)
		p.inner = append(p.inner, &v[i])
	}
	return arg{v: uintptr(at), address: true}
}

// alloc returns n bytes of zeroed memory, aligned for any use, that live as
// long as the plan.
func (p *plan) alloc(n int) unsafe.Pointer {
	n = (n + 7) &^ 7
	if n > len(p.arena) {
		p.arena = make([]byte, max(n, 16<<10))
		p.keep = append(p.keep, p.arena)
		p.blocks = append(p.blocks, p.arena)
	}
	at := unsafe.Pointer(&p.arena[0])
	p.arena = p.arena[n:]
	return at
}

// bounds returns the first call and the end of the plan, which must not grow
// any more.
func (p *plan) bounds() (first, end uintptr) {
	first = uintptr(unsafe.Pointer(unsafe.SliceData(p.ops)))
	return first, first + uintptr(len(p.ops))*unsafe.Sizeof(op{})
}

// failed tells which step the child stopped at, and why, or nil if it was none
// of this plan's.
func (p *plan) failed(f *failure) error {
	first, end := p.bounds()
	if f.op < first || f.op >= end {
		return nil
	}
	i := (f.op - first) / unsafe.Sizeof(op{})
	s, errno := p.steps[p.of[i]], unix.Errno(f.errno)
	if p.ops[i].nr == unix.SYS_FUTEX {
		errno = refusal(p.ops[i].arg[0]) // see launcher.netlink
	}
	return &LaunchError{Step: s.String(), Errno: errno, Wall: s.wall}
}
