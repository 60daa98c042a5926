package keeper

import (
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/limits"
)

// count takes what a control group has counted, where there is one: other than
// the processes that run, it knows those that have ended, and files in memory.
func (b *Box) count(u limits.Usage) {
	if u.Memory >= 0 {
		b.Memory, b.CPU = u.Memory, u.User+u.System
	}
}

// tellLimits tells a client which limits the sandbox has met while its command
// ran. Whose processes those were nobody knows.
func (b *box) tellLimits(c *conn, before limits.Usage) {
	now, ok := b.resident.Used()
	if !ok {
		return
	}
	met := now.Since(before)
	for _, h := range met.Hits(b.spec.Limits) {
		_ = c.send(tellNote, Note{h.Text}) // it may be gone
		e := event.New(event.Limit)
		e.Sandbox, e.Limit, e.Count, e.Fix = b.name, h.Name, h.Count, "--"+h.Name
		b.keeper.audit.Emit(e)
	}
}
