package native

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// ahead is what the child was told to do before the Spec was whole.
type ahead struct {
	network *launcher // or nil
	mounts  *builder  // or nil
	made    []spec.Mount
	over    *spec.Overlay
}

// Foresee has the child make the sandbox's network while the caller compiles the
// Spec, of which it says as much as is known: the Network, the Gate without what
// it is told, and Expose. Should the Spec say something else, Start begins anew.
func (e *Embryo) Foresee(s *spec.Spec) {
	if !s.NeedsGate() || s.Network.IsOwn() != e.network.IsOwn() || e.helped != nil {
		return
	}
	l := &launcher{builder: e.builder(128), spec: s, sockets: e.o.gateSocketsFor(s)}
	l.mark("wait for policy")
	l.gateway()
	l.mark("network")
	e.ahead.network = l
	e.goAhead(&l.builder)
}

// Draft has the child make the mounts of a Spec while the caller compiles the
// rest of it. Should the Spec have others in the end, Start begins anew.
func (e *Embryo) Draft(s *spec.Spec) {
	if e.helped != nil {
		e.helped.draft(s)
		return
	}
	if !e.mayDraft(s) {
		return
	}
	b := e.builder(384)
	e.ahead.mounts, e.ahead.made, e.ahead.over = &b, slices.Clone(s.Mounts), s.Overlay
	b.mark("wait for mounts")
	b.mounts(e.ahead.made, s.Overlay)
	b.mark("mounts")
	e.goAhead(&b)
}

// mayDraft says whether nothing has to be done before the mounts that is done
// only once the Spec is whole.
func (e *Embryo) mayDraft(s *spec.Spec) bool {
	return (s.Runtime == "" || s.Runtime == spec.RuntimeNative) && s.Identity == e.id && s.Network.IsOwn() == e.network.IsOwn() &&
		s.Limits == nil && s.Rules == nil && !e.o.Account && (!s.NeedsGate() || e.ahead.network != nil)
}

// builder adds calls for after all that the child was told so far.
func (e *Embryo) builder(calls int) builder {
	b := builder{plan: newPlan(calls), trace: e.o.Trace, tree: e.prelude.tree}
	if e.ahead.mounts != nil {
		b.tree = e.ahead.mounts.tree
	}
	return b
}

// goAhead lets the child do a part, and wait again.
func (e *Embryo) goAhead(b *builder) {
	// If this fails the child has ended, and Start says why.
	_ = e.proceed(b.plan, b.pause(fdGo, "wait for the spec"))
}

// proceed lets the child go on with a plan, after which it goes on with next.
func (e *Embryo) proceed(p *plan, next *[2]uintptr) error {
	e.next[0], e.next[1] = p.bounds()
	e.next = next
	return e.pipes.proceed()
}

// pause has the child wait at a pipe until it is told where to go on.
func (b *builder) pause(fd int, why string) (next *[2]uintptr) {
	next = new([2]uintptr)
	b.keep = append(b.keep, next)
	b.begin(WallInit, why, "", "")
	b.call(unix.SYS_READ, num(fd), b.ptr(b.alloc(1)), num(1))
	b.call(goOn, from(&next[0]), from(&next[1]))
	return next
}

// foresaw says whether what was done ahead, if anything, is what a Spec wants.
func (e *Embryo) foresaw(s *spec.Spec) bool {
	if e.ahead.mounts != nil && (!slices.Equal(e.ahead.made, s.Mounts) || e.ahead.over != s.Overlay) {
		return false
	}
	if e.ahead.network == nil {
		return true
	}
	a, b := e.ahead.network.spec, s
	if !slices.Equal(a.Expose, b.Expose) || a.Inlet != b.Inlet || (a.Gate == nil) != (b.Gate == nil) {
		return false
	}
	return a.Gate == nil || a.Gate.Transparent == b.Gate.Transparent && a.Gate.Silent == b.Gate.Silent &&
		a.Gate.Socket == b.Gate.Socket && slices.Equal(a.Gate.Local, b.Gate.Local) && slices.Equal(a.Gate.LocalIPv6, b.Gate.LocalIPv6)
}

// parts lists what the child was told, in order. The last may be nil.
func (e *Embryo) parts(last *launcher) []*builder {
	parts := make([]*builder, 0, 5)
	if e.helped == nil {
		parts = append(parts, &e.birth, &e.prelude)
	}
	if e.ahead.network != nil {
		parts = append(parts, &e.ahead.network.builder)
	}
	if e.ahead.mounts != nil {
		parts = append(parts, e.ahead.mounts)
	}
	if last != nil {
		parts = append(parts, &last.builder)
	}
	return parts
}

// failed tells which step the child stopped at.
func (e *Embryo) failed(l *launcher) error {
	for _, part := range e.parts(l) {
		if err := part.failed(e.fail); err != nil {
			return err
		}
	}
	return nil
}
