package spec

import (
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Access is what a sandbox may do with a path of the host. The values are
// ordered: the lesser of two is what both allow.
type Access uint8

const (
	AccessNone    Access = iota
	AccessRead           // content and listing
	AccessPrivate        // read; writes are kept in memory
	AccessWrite          // read and write
)

func (a Access) String() string {
	switch a {
	case AccessNone:
		return "none"
	case AccessRead:
		return "read"
	case AccessPrivate:
		return "private"
	case AccessWrite:
		return "write"
	}
	return fmt.Sprintf("access %d", uint8(a))
}

type ruleKind uint8

const (
	allowRead ruleKind = iota
	denyRead
	allowWrite
	denyWrite
	privateWrite
)

func (k ruleKind) String() string {
	switch k {
	case allowRead:
		return "filesystem.allowRead"
	case denyRead:
		return "filesystem.denyRead"
	case allowWrite:
		return "filesystem.allowWrite"
	case denyWrite:
		return "filesystem.denyWrite"
	}
	return "filesystem.privateWrite"
}

func (k ruleKind) denies() bool { return k == denyRead || k == denyWrite }

// rule is one path entry of a Filesystem, resolved.
type rule struct {
	resolved
	kind ruleKind
	// entry is what the policy says, for messages; empty for a rule Bailey adds,
	// which then says why.
	entry string
	why   string
	// strict says that the denial wins over grants inside it, too.
	strict bool
	// closed says that it is one of Host.Closed.
	closed bool
}

func (r rule) reason() string {
	if r.why != "" {
		return r.why
	}
	return r.kind.String() + " " + r.entry
}

// layer is one Filesystem with its paths resolved. The policy's own is the
// first; the others are its bounds.
type layer struct {
	rules    []rule
	fallback Access // of a path no rule covers
	strict   bool
	patterns []patternRule
	narrow   []narrowed
	// execute is nil if programs may be executed from everywhere.
	execute []rule
}

func newLayer(fs policy.Filesystem) *layer {
	l := &layer{strict: isTrue(fs.StrictDenyRead)}
	if fs.DefaultDenyRead != nil && !*fs.DefaultDenyRead {
		l.fallback = AccessRead
	}
	return l
}

// access decides one path by the rules documented at policy.Filesystem.
// Reading: the most specific rule wins, a denial wins a tie or, if strict,
// always. Writing: a denial always wins; between direct and private the more
// specific wins, private a tie.
func (l *layer) access(p string) Access {
	edge := len(barrier(p))
	read, readLen := l.fallback, 0
	if edge > 0 {
		read = AccessNone
	}
	write, writeLen, sealed := AccessNone, 0, false
	for i := range l.rules {
		r := &l.rules[i]
		if !Covers(r.path, p) {
			continue
		}
		n := len(r.path)
		if n < edge && !r.kind.denies() {
			continue
		}
		switch r.kind {
		case denyRead:
			if l.strict || r.strict {
				return AccessNone
			}
			if n >= readLen {
				read, readLen = AccessNone, n
			}
			continue
		case denyWrite:
			sealed = true
			continue
		case allowWrite:
			if n > writeLen {
				write, writeLen = AccessWrite, n
			}
		case privateWrite:
			if n >= writeLen {
				write, writeLen = AccessPrivate, n
			}
		}
		if n > readLen {
			read, readLen = AccessRead, n
		}
	}
	if read == AccessNone || sealed || write == AccessNone {
		return read
	}
	return write
}

// barrier returns the directory above p, or p itself, into which a grant of a
// directory above it does not reach: places the sandbox has its own of, and
// /run, whose sockets lead to the host's daemons. It is empty for other paths.
func barrier(p string) string {
	// Most paths are decided by their first letter.
	if len(p) < 2 || strings.IndexByte("trdpv", p[1]) < 0 {
		return ""
	}
	for _, b := range barriers {
		if Covers(b, p) {
			return b
		}
	}
	return ""
}

var barriers = []string{"/tmp", "/run", "/dev", "/proc", "/var/tmp", "/var/run"}

func isTrue(b *bool) bool { return b != nil && *b }

func isFalse(b *bool) bool { return b != nil && !*b }

// access is what the whole policy allows: the least of all layers, and nothing
// better than reading for what is protected.
func (c *compiler) access(p string) Access {
	a := c.granted(p)
	if a == AccessWrite && c.isProtected(p) {
		return AccessRead
	}
	return a
}

// granted is access without regard to protected paths.
func (c *compiler) granted(p string) Access {
	a := AccessWrite
	for _, l := range c.layers {
		if a = min(a, l.access(p)); a == AccessNone {
			break
		}
	}
	return a
}

func (c *compiler) isProtected(p string) bool {
	for i := range c.protected {
		q := &c.protected[i]
		if Covers(q.path, p) && (q.always || !c.insisted(q.path, p)) {
			return true
		}
	}
	return false
}

// insisted says whether the policy grants writing to p by an entry that names a
// protected path, or something in it. A person who writes that means it.
func (c *compiler) insisted(protected, p string) bool {
	for i := range c.layers[0].rules {
		r := &c.layers[0].rules[i]
		if r.kind == allowWrite && Covers(protected, r.path) && Covers(r.path, p) {
			return true
		}
	}
	return false
}

// Access says what a path is inside the sandbox, and which mount decides it;
// nil if nothing is mounted there. A path in a Tmpfs is Private: it can be
// written, and shows nothing of the host. In one that is only a way there is
// nothing.
func (s *Spec) Access(p string) (Access, *Mount) {
	var best *Mount
	for i := range s.Mounts {
		m := &s.Mounts[i]
		if Covers(m.Target, p) && (best == nil || len(m.Target) >= len(best.Target)) {
			best = m
		}
	}
	if best == nil {
		return AccessNone, nil
	}
	return best.access(), best
}

func (m *Mount) access() Access {
	switch m.Kind {
	case Bind:
		if m.Write {
			return AccessWrite
		}
		return AccessRead
	case Private:
		return AccessPrivate
	case Tmpfs:
		if !m.Way {
			return AccessPrivate
		}
	case Proc:
		return AccessRead
	case Dev:
		return AccessWrite
	}
	return AccessNone
}
