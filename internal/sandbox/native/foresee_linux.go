package native

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Foresee has the child make the sandbox's network while the caller compiles the
// Spec, of which it says as much as is known: the Network, the Gate without what
// it is told, and Expose. Should the Spec say something else, Start begins anew.
func (e *Embryo) Foresee(s *spec.Spec) {
	if !s.NeedsGate() || s.Network.IsOwn() != e.network.IsOwn() {
		return
	}
	l := &launcher{
		builder: builder{plan: newPlan(128), trace: e.o.Trace, tree: e.prelude.tree},
		spec:    s, sockets: e.o.gateSocketsFor(s), next: new([2]uintptr),
	}
	l.mark("wait for policy")
	l.gateway()
	l.mark("network")
	l.begin(WallInit, "wait for the spec", "", "")
	l.call(unix.SYS_READ, num(fdGo), l.ptr(l.alloc(1)), num(1))
	l.call(goOn, from(&l.next[0]), from(&l.next[1]))
	e.jump[0], e.jump[1] = l.bounds()
	e.ahead = l
	// If this fails the child has ended, and Start says why.
	_ = e.pipes.proceed()
}

// foresaw says whether what was done ahead, if anything, is what a Spec wants.
func (e *Embryo) foresaw(s *spec.Spec) bool {
	if e.ahead == nil {
		return true
	}
	a, b := e.ahead.spec, s
	if !slices.Equal(a.Expose, b.Expose) || (a.Gate == nil) != (b.Gate == nil) {
		return false
	}
	return a.Gate == nil || a.Gate.Transparent == b.Gate.Transparent && a.Gate.Silent == b.Gate.Silent &&
		a.Gate.Socket == b.Gate.Socket && slices.Equal(a.Gate.Local, b.Gate.Local)
}

// failed tells which step the child stopped at.
func (e *Embryo) failed(l *launcher) error {
	if err := e.prelude.failed(e.fail); err != nil {
		return err
	}
	if e.ahead != nil {
		if err := e.ahead.failed(e.fail); err != nil {
			return err
		}
	}
	return l.failed(e.fail)
}
