package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Overlay is a private layer over a directory. Every mount whose Source lies in
// that directory is taken from the layers together and not from the host, and
// what is written there goes to Upper. A runtime that does not do so must refuse
// the Spec: all its other mounts are the same with an overlay and without.
type Overlay struct {
	// Name is what people call the workspace that holds it; empty if it goes
	// with the command.
	Name string `json:"name,omitempty"`
	// Source is the directory, which is seen under its own name.
	Source string `json:"source"`
	// Lowers are what is read, the topmost first; none of them is written. The
	// last is Source itself, unless the workspace lies on something else.
	Lowers []string `json:"lowers"`
	// Upper gets the changes. Work, on the same file system, is overlayfs's own.
	Upper string `json:"upper"`
	Work  string `json:"work"`
	// Volatile says that nothing need be on the disk when the overlay ends, or
	// when a program inside asks for that. Otherwise its end waits until the whole
	// file system that Upper is on has been written.
	Volatile bool `json:"volatile,omitempty"`
	// Held says that who makes the sandbox, which stays, holds the workspace for as
	// long as it stands.
	Held bool `json:"held,omitempty"`
	// Used is how many bytes of Limits.Disk what is in Upper takes already.
	Used int64 `json:"used,omitempty"`
	// InMemory says that Upper is only read, as the topmost of Lowers, and the
	// changes go to the memory file system, whose size the kernel keeps. Who runs
	// the command carries them over to Upper once it has ended.
	InMemory bool `json:"inMemory,omitempty"`
}

// Covers says whether a path of the host is seen through the overlay. It may be
// called on nil.
func (o *Overlay) Covers(p string) bool { return o != nil && Covers(o.Source, p) }

// HeldInMemory says whether there is an overlay whose changes go to memory. It may
// be called on nil.
func (o *Overlay) HeldInMemory() bool { return o != nil && o.InMemory }

// Reads are the directories that are only read, the topmost first.
func (o *Overlay) Reads() []string {
	if !o.InMemory {
		return o.Lowers
	}
	return append([]string{o.Upper}, o.Lowers...)
}

// Refused is the answer of a runtime that cannot hold an overlay; nil if there is
// none to hold.
func (o *Overlay) Refused(runtime string) *Unsupported {
	if o == nil {
		return nil
	}
	return &Unsupported{
		Key: keyOverlay, Value: "overlay", Reason: "the " + runtime + " runtime cannot keep changes apart from the files themselves",
		Fix: "run it without, or use --runtime native",
	}
}

const keyOverlay = "workspace.mode"

// Project is the directory that an overlay lies over, for a caller as Compile
// finds it; empty if there is none that could be granted.
func Project(f Facts) string {
	c := &compiler{host: f.Host(), facts: newLookups(f), command: Command{Later: true}, spec: &Spec{}}
	if !c.locateCaller() || c.wide(c.project) {
		return ""
	}
	return c.project
}

// hideWorkspaces denies what other commands have written to look at, or where
// there is nothing yet, to be there first.
func (c *compiler) hideWorkspaces() {
	if c.host.DataDir == "" {
		return
	}
	const name = "bailey's workspaces"
	r, err := c.facts.resolve(clean(c.host.DataDir))
	switch {
	case err != nil:
		c.refuse(name, c.host.DataDir, err.Error(), "")
	case r.missing && c.granted(r.path) == AccessWrite:
		c.absent = append(c.absent, protection{path: r.path, name: name, always: true})
	case !r.missing && c.granted(r.path) != AccessNone:
		c.layers[0].rules = append(c.layers[0].rules, rule{resolved: r, kind: denyRead, why: name})
	}
}

// hideOwn denies what nobody sees who is in a sandbox.
func (c *compiler) hideOwn() {
	for _, p := range c.shown(c.host.Hidden) {
		r, err := c.facts.resolve(p)
		if err != nil || r.missing {
			reason := "does not exist, so that it cannot be hidden"
			if err != nil {
				reason = err.Error()
			}
			c.refuse("hidden path", p, reason, "put it back where it was")
			continue
		}
		c.layers[0].rules = append(c.layers[0].rules, rule{resolved: r, kind: denyRead, why: "not for sandboxes", strict: true})
	}
	for _, p := range c.shown(c.host.Closed) {
		if r, err := c.facts.resolve(p); err == nil && !r.missing {
			c.layers[0].rules = append(c.layers[0].rules, rule{resolved: r, kind: denyRead, why: "other users cannot read it", strict: true, closed: true})
		}
	}
}

// overlay takes over where the changes go, if that can be held.
func (c *compiler) overlay() {
	o := c.command.Overlay
	if o == nil {
		return
	}
	c.spec.Overlay = o
	c.boundOverlay(o)
	// Those that make sandboxes that stay say by themselves what they cannot hold.
	if c.spec.Runtime != "" && c.spec.Runtime != RuntimeNative && !c.command.Later {
		c.reasons = append(c.reasons, o.Refused(c.spec.Runtime))
	}
	c.refuseIf(o.Source != c.project, keyOverlay, "overlay",
		"the workspace is that of "+o.Source+", and the command runs in "+c.project, "cd "+o.Source)
	c.refuseIf(Covers(o.Source, o.Upper), keyOverlay, "overlay", "the changes would be kept in "+o.Upper+", inside the project itself",
		"set BAILEY_DATA to a directory elsewhere")
	c.warnBesideOverlay(o)
	c.warnBelowOverlay(o)
	c.warnOfOwners(o)
}

// boundOverlay has a limit on files hold for what is written to an overlay: the
// kernel counts that in memory, and nobody does on a disk.
func (c *compiler) boundOverlay(o *Overlay) {
	l := c.spec.Limits
	if l == nil || l.Disk == 0 {
		return
	}
	size := policy.Size(l.Disk).String()
	c.refuseIf(c.command.Later || o.Held, keyDisk, size, "in a sandbox that stays, changes are kept on the disk, where nobody counts them, and not in memory until an end that may never come",
		"run it by: bailey --overlay -- CMD; or leave the limit out")
	c.refuseIf(l.Disk-o.Used < minDisk, keyDisk, size, "the workspace "+o.Name+" takes "+policy.Size(o.Used).String()+" already, which counts",
		"apply or discard it, or give more")
	bounded := *o
	bounded.InMemory = true
	c.spec.Overlay = &bounded
}

// warnBesideOverlay names what is written all the same.
func (c *compiler) warnBesideOverlay(o *Overlay) {
	var beside []string
	writable := false
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if m.Kind != Bind || !m.Write || m.Devices {
			continue
		}
		if writable = writable || o.Covers(m.Source); !o.Covers(m.Source) {
			beside = append(beside, plain.Text(m.Target))
		}
	}
	if len(beside) > 0 {
		c.warn("not part of the overlay, and changed by what the command writes there: " + strings.Join(beside, ", "))
	}
	if !writable {
		c.warn("nothing in " + plain.Text(o.Source) + " can be written, so there will be no changes to keep")
	}
}

// warnBelowOverlay names what an overlay does not show: it is made of
// directories, not of what is mounted below them.
func (c *compiler) warnBelowOverlay(o *Overlay) {
	mounts, _ := c.facts.Mounts() // checkAliases refuses to go on without
	for _, m := range mounts {
		if below(o.Source, m.Target) {
			c.warn(plain.Text(m.Target) + " is a mount of its own, and not shown in the overlay")
		}
	}
}

// maxOwners is how many files of a project are asked for their owner before a
// command starts, the outermost first.
const maxOwners = 200

// warnOfOwners names the first file found that the command could write without an
// overlay, and cannot write in it: the kernel copies a file, and the directories
// that it is in, only for owners and groups that exist inside.
func (c *compiler) warnOfOwners(o *Overlay) {
	if c.spec.Identity.Full {
		return
	}
	// via is the first directory on the way that cannot be copied.
	type dir struct{ path, via string }
	left := maxOwners
	for queue := []dir{{path: o.Source}}; len(queue) > 0; queue = queue[1:] {
		names, err := c.facts.ReadDir(queue[0].path, 5*maxOwners)
		if err != nil {
			continue // too many, or closed
		}
		for _, name := range names {
			if left--; left < 0 {
				return
			}
			p, via := join(queue[0].path, name), queue[0].via
			info, err := c.facts.Lstat(p)
			if err != nil || info.Type != TypeRegular && info.Type != TypeDirectory {
				continue
			}
			if via == "" && c.isForeign(&info) {
				via = p
			}
			if via != "" && c.couldWrite(&info) && c.granted(p) == AccessWrite {
				c.warnOfOwner(via)
				return
			}
			if info.Type == TypeDirectory {
				queue = append(queue, dir{p, via})
			}
		}
	}
}

func (c *compiler) isForeign(info *FileInfo) bool {
	return info.UID != c.spec.Identity.UID || info.GID != c.spec.Identity.GID
}

// couldWrite says whether a file's mode lets the caller write to it, whose further
// groups are not known.
func (c *compiler) couldWrite(info *FileInfo) bool {
	if info.UID == c.spec.Identity.UID {
		return info.Mode&0o200 != 0
	}
	return info.Mode&0o022 != 0
}

func (c *compiler) warnOfOwner(p string) {
	info, _ := c.facts.Lstat(p) // it was there just now
	id := c.spec.Identity
	fix := "chgrp -R " + strconv.Itoa(id.GID)
	if info.UID != id.UID {
		fix = "sudo chown -R " + strconv.Itoa(id.UID) + ":" + strconv.Itoa(id.GID)
	}
	c.warn(fmt.Sprintf("%s belongs to user %d and group %d, and only %d and %d exist inside, so that it cannot be changed in the overlay "+
		"(\"value too large for defined data type\"), and there may be more of its kind; %s %s, or run it without the overlay",
		plain.Text(p), info.UID, info.GID, id.UID, id.GID, fix, plain.Word(p)))
}
