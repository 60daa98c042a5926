package native

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// The table that stands in the program and the plan that is built must be the
// same but for addresses and descriptors, and for the moments, which a plan has
// only with a trace.
func TestTheEarlyBirthIsABirth(t *testing.T) {
	b := builder{plan: newPlan(24)}
	b.birth(&pipes{}, spec.NetworkNone)
	early := plan{steps: earlySteps[:]}
	for i, o := range earlyPlan {
		if o.nr != unix.SYS_CLOCK_GETTIME {
			early.ops, early.of = append(early.ops, o), append(early.of, earlyOf[i])
		}
	}
	if len(early.ops) != len(b.ops) {
		t.Fatalf("%d calls, a birth has %d", len(early.ops), len(b.ops))
	}
	for i, want := range b.ops {
		got := early.ops[i]
		for n := range want.arg {
			if want.ref&(1<<n|1<<(addressBits+n)) == 0 && got.arg[n] != want.arg[n] {
				t.Errorf("call %d: argument %d is %#x, want %#x", i, n, got.arg[n], want.arg[n])
			}
		}
		if mask := uintptr(1<<addressBits - 1); got.nr != want.nr || got.ref&mask != want.ref&mask || got.tolerate != want.tolerate {
			t.Errorf("call %d: %+v, want %+v", i, got, want)
		}
		if g, w := early.steps[early.of[i]], b.steps[b.of[i]]; g != w {
			t.Errorf("call %d is told as %q (%s), want %q (%s)", i, g, g.wall, w, w.wall)
		}
	}
}

// The kernel and the assembler code take these for whole words, and for a stack.
func TestTheInfantIsAligned(t *testing.T) {
	for name, at := range map[string]unsafe.Pointer{
		"fd": unsafe.Pointer(&born.fd), "answer": unsafe.Pointer(&born.answer), "next": unsafe.Pointer(&born.next),
		"top of the stack": unsafe.Add(unsafe.Pointer(&born.stack), len(born.stack)),
	} {
		if uintptr(at)%8 != 0 {
			t.Errorf("%s is at %p", name, at)
		}
	}
}
