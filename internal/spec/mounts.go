package spec

import (
	"cmp"
	"slices"
	"strings"
)

// point is a path where what is visible may change.
type point struct {
	path string
	info FileInfo
	// base is what stands here if the policy shows nothing of the host.
	base *Mount
	// pin asks for a mount of its own even if nothing changes.
	pin    bool
	access Access
}

// mounts builds the root directory. A grant, a denial and a protected path are
// the same here: a point where the access differs from what the mount around it
// shows.
func (c *compiler) mounts() {
	points := c.points()
	for i := range points {
		points[i].access = c.access(points[i].path)
	}
	b := builder{c: c, mounts: make([]Mount, 0, 64)}
	for i := range points {
		b.place(&points[i], points[i+1:])
	}
	c.spec.Mounts = b.mounts
	c.placeLinks()
	c.placeDevices()
	c.placeHidden()
	c.spec.Mounts = sortMounts(c.spec.Mounts)
}

// points lists every path that matters, parents first, each once.
func (c *compiler) points() []point {
	points := make([]point, 0, 64)
	points = c.basePoints(points)
	for _, l := range c.layers {
		for i := range l.rules {
			points = append(points, point{path: l.rules[i].path, info: l.rules[i].info})
		}
	}
	if c.access("/") != AccessNone {
		points = c.rootPoints(points)
	}
	for _, q := range c.protected {
		points = append(points, point{path: q.path, info: q.info})
	}
	for _, p := range c.pins {
		points = append(points, point{path: p, info: c.info(p), pin: true})
	}
	slices.SortFunc(points, func(a, b point) int { return comparePaths(a.path, b.path) })
	return mergePoints(points)
}

func (c *compiler) info(p string) FileInfo {
	info, _ := c.facts.lstat(p)
	return info
}

func mergePoints(points []point) []point {
	out := points[:0]
	for _, p := range points {
		if n := len(out); n > 0 && out[n-1].path == p.path {
			out[n-1].pin = out[n-1].pin || p.pin
			if p.base != nil {
				out[n-1].base = p.base
			}
			continue
		}
		out = append(out, p)
	}
	return out
}

// basePoints are what every sandbox has, whatever the policy says.
func (c *compiler) basePoints(points []point) []point {
	points = append(points,
		point{path: "/proc", base: &Mount{Kind: Proc, Target: "/proc"}},
		point{path: "/dev", base: &Mount{Kind: Dev, Target: "/dev"}})
	scratch := func(p string, m Mount, why string) {
		r, err := c.facts.resolve(p)
		if err != nil || r.path == "/" {
			return
		}
		c.links = append(c.links, r.links...)
		if r.missing {
			r.info = FileInfo{} // that of the directory it would be in
		}
		m.Target, m.Why = r.path, why
		points = append(points, point{path: r.path, info: r.info, base: &m})
	}
	scratch("/tmp", Mount{Kind: Tmpfs, Mode: 0o1777}, "private /tmp")
	scratch("/var/tmp", Mount{Kind: Tmpfs, Mode: 0o1777}, "private /var/tmp")
	scratch("/run", Mount{Kind: Dir}, "empty /run")
	if c.host.Home != "" {
		scratch(clean(c.host.Home), Mount{Kind: Tmpfs, Mode: 0o700}, PrivateHome)
	}
	return points
}

// rootPoints stand for the root directory itself, which is never mounted: the
// sandbox's own must not depend on what else the host keeps there.
func (c *compiler) rootPoints(points []point) []point {
	names, err := c.facts.ReadDir("/", 1<<16)
	if err != nil {
		c.refuse("filesystem.allowRead", "/", err.Error(), "name the directories below it")
	}
	for _, name := range names {
		p := "/" + name
		info, ok := c.facts.lstat(p)
		if !ok || p == "/proc" || p == "/dev" {
			continue
		}
		if info.Type == TypeLink {
			if r, err := c.facts.resolve(p); err == nil {
				c.links = append(c.links, r.links...)
			}
			continue
		}
		points = append(points, point{path: p, info: info})
	}
	return points
}

// builder turns points into mounts, parents first. open holds the mounts around
// the current point, as indices, the innermost last.
type builder struct {
	c      *compiler
	mounts []Mount
	open   []int
}

// around returns the mount that a path lies in, nil for the bare root.
func (b *builder) around(p string) *Mount {
	for len(b.open) > 0 {
		m := &b.mounts[b.open[len(b.open)-1]]
		if Covers(m.Target, p) {
			return m
		}
		b.open = b.open[:len(b.open)-1]
	}
	return nil
}

// showsHost says whether a mount shows files of the host, so that the targets
// of mounts in it must exist there.
func (m *Mount) showsHost() bool { return m != nil && (m.Kind == Bind || m.Kind == Private) }

// place mounts one point if that changes anything; later are the points after
// it.
func (b *builder) place(p *point, later []point) {
	around := b.around(p.path)
	shown := AccessNone
	if around.showsHost() {
		shown = around.access()
	}
	switch {
	case p.path == "/" || around != nil && around.Kind == Hide:
	case p.base != nil && (p.base.Kind == Proc || p.base.Kind == Dev):
		b.add(*p.base)
	case p.access == AccessNone && p.base != nil:
		if around.showsHost() && p.info.Type != TypeDirectory {
			return // no directory to mount on, so nothing to cover either
		}
		if p.base.Kind == Dir && around.showsHost() {
			p.base.Kind = Tmpfs
		}
		b.add(*p.base)
	case p.access == AccessNone && shown != AccessNone:
		b.conceal(p, later)
	case p.access == shown:
		if p.pin && shown == AccessWrite {
			b.add(Mount{Kind: Bind, Target: p.path, Source: p.path, Write: true, Why: "pin"})
		}
	case p.access == AccessPrivate && p.info.Type == TypeDirectory:
		b.add(Mount{Kind: Private, Target: p.path, Source: p.path, Why: b.c.why(p)})
	case p.access != AccessNone:
		// A single file cannot have private writes; where it is granted apart
		// from its directory it is shown read-only.
		b.add(Mount{
			Kind: Bind, Target: p.path, Source: p.path, Write: p.access == AccessWrite,
			File: p.info.Type != TypeDirectory, Link: p.info.Type == TypeLink, Why: b.c.why(p),
		})
	}
}

// conceal hides a path that the mount around it shows.
func (b *builder) conceal(p *point, later []point) {
	m := hide(p.path, p.info, b.c.why(p))
	if b.c.unreadable(p.path, p.info) {
		return
	}
	for _, q := range later {
		if !Covers(p.path, q.path) {
			break
		}
		if q.access != AccessNone || q.base != nil {
			// Something below it is granted, which needs a directory to stand in.
			m = Mount{Kind: Tmpfs, Target: p.path, Way: true, Why: m.Why}
			break
		}
	}
	b.add(m)
}

// unreadable says whether the caller, and so the command, cannot read a path
// anyway. Its owner could change that, and root is not bound by it.
func (c *compiler) unreadable(p string, info FileInfo) bool {
	return c.host.UID != 0 && info.UID != c.host.UID && !c.facts.Readable(p)
}

func hide(p string, info FileInfo, why string) Mount {
	m := Mount{Kind: Hide, Target: p, Source: "dir", Why: why}
	if info.Type != TypeDirectory {
		m.Source, m.File = "file", true
	}
	return m
}

// add appends a mount and, if it lies in a writable one, pins: a mountpoint
// cannot be renamed, but a directory that holds one can, and a copy put in its
// place would not have the mount.
func (b *builder) add(m Mount) {
	if around := b.around(m.Target); around != nil && around.Kind == Bind && around.Write {
		rest := strings.TrimPrefix(m.Target[len(around.Target):], "/")
		dir := around.Target
		for {
			i := strings.IndexByte(rest, '/')
			if i < 0 {
				break
			}
			dir, rest = join(dir, rest[:i]), rest[i+1:]
			b.push(Mount{Kind: Bind, Target: dir, Source: dir, Write: true, Why: "pin"})
		}
	}
	b.push(m)
}

func (b *builder) push(m Mount) {
	b.open = append(b.open, len(b.mounts))
	b.mounts = append(b.mounts, m)
}

// why names the rule behind a point. Of what could be written but for a denial,
// that is the denial, and not what lets it be read.
func (c *compiler) why(p *point) string {
	for _, q := range c.protected {
		if q.path == p.path && p.access == AccessRead {
			return "protected " + q.name
		}
	}
	best := ""
	for _, l := range c.layers {
		for i := range l.rules {
			r := &l.rules[i]
			if r.path != p.path {
				continue
			}
			if r.kind.explains(p.access) && (r.kind != allowRead || !l.grantsWriting(p.path)) {
				return r.reason()
			}
			if best == "" {
				best = r.reason()
			}
		}
	}
	if best == "" {
		best = "filesystem.defaultDenyRead false"
	}
	return best
}

// grantsWriting says whether a rule would let a path be written.
func (l *layer) grantsWriting(p string) bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool {
		return (r.kind == allowWrite || r.kind == privateWrite) && Covers(r.path, p)
	})
}

// explains says whether a rule of this kind can be the reason for an access.
func (k ruleKind) explains(a Access) bool {
	switch a {
	case AccessNone:
		return k == denyRead
	case AccessRead:
		return k == allowRead || k == denyWrite
	case AccessPrivate:
		return k == privateWrite
	}
	return k == allowWrite
}

// placeLinks makes the symbolic links through which granted paths were named,
// where no mount shows them already.
func (c *compiler) placeLinks() {
	for i := range c.layers[0].rules {
		r := &c.layers[0].rules[i]
		if !r.kind.denies() && len(r.links) > 0 && c.access(r.path) != AccessNone {
			c.links = append(c.links, r.links...)
		}
	}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"} {
		if info, ok := c.facts.lstat(p); !ok || info.Type != TypeLink {
			continue
		}
		if r, err := c.facts.resolve(p); err == nil && c.access(r.path) != AccessNone {
			c.links = append(c.links, r.links...)
		}
	}
	slices.SortFunc(c.links, func(a, b link) int { return comparePaths(a.path, b.path) })
	for _, l := range slices.Compact(c.links) {
		_, m := c.spec.Access(l.path)
		if m == nil || m.Kind == Tmpfs || m.Kind == Dir {
			c.spec.Mounts = append(c.spec.Mounts, Mount{Kind: Symlink, Target: l.path, Source: l.text, Why: "link"})
		}
	}
}

// placeDevices shows the device nodes of the host that the policy names.
func (c *compiler) placeDevices() {
	const key = "devices.allow"
	for _, entry := range c.policy.Devices.Allow {
		r, ok := c.resolveEntry(key, entry)
		switch {
		case !ok || IsStandardDevice(r.path):
		case !below("/dev", r.path):
			c.refuse(key, entry, "is not in /dev", "remove it")
		case r.missing:
			c.refuseHere(key, entry, "does not exist", "remove it")
		default:
			c.spec.Mounts = append(c.spec.Mounts, Mount{
				Kind: Bind, Target: r.path, Source: r.path, Write: true,
				File: r.info.Type != TypeDirectory, Devices: true, Why: key + " " + entry,
			})
			for _, l := range r.links {
				if below("/dev", l.path) {
					c.spec.Mounts = append(c.spec.Mounts, Mount{Kind: Symlink, Target: l.path, Source: l.text, Why: "link"})
				}
			}
		}
	}
}

// placeHidden hides what the policy denies in /proc, the keys of the caller's
// keyrings, and what /proc would tell root about the whole machine. Other files of
// that kind ask for a capability when they are opened, or tell nothing that could be
// used.
func (c *compiler) placeHidden() {
	c.spec.Mounts = append(c.spec.Mounts, c.hidden...)
	names := []string{"key-users", "keys"}
	if c.host.UID == 0 {
		names = append(names, "kpagecgroup", "kpagecount", "kpageflags", "slabinfo", "timer_list", "vmallocinfo")
	}
	for _, name := range names {
		if info, ok := c.facts.lstat("/proc/" + name); ok {
			c.spec.Mounts = append(c.spec.Mounts, hide("/proc/"+name, info, WholeMachine))
		}
	}
}

// sortMounts puts parents before children and keeps one mount a target.
func sortMounts(mounts []Mount) []Mount {
	slices.SortFunc(mounts, func(a, b Mount) int {
		return cmp.Or(comparePaths(a.Target, b.Target), strings.Compare(a.Why, b.Why))
	})
	return slices.CompactFunc(mounts, func(a, b Mount) bool { return a.Target == b.Target })
}
