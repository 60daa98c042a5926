package spec

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// A path is only as safe as its other names. Two kinds are looked for: hard
// links, which the file counts itself, and bind mounts, which the mount table
// lists.

// maxLinkChecks bounds how many files inside protected directories are looked
// at for other names.
const maxLinkChecks = 8192

// checkHardLinks refuses a protected or denied file that has another name which
// may be within reach.
func (c *compiler) checkHardLinks() {
	writable := c.writableDevices()
	for _, list := range [][]protection{c.protected, c.inside} {
		for _, q := range list {
			c.checkHardLink(q.path, q.name, q.info, writable)
		}
	}
	for _, l := range c.layers {
		for i := range l.rules {
			r := &l.rules[i]
			switch {
			// Another name of what cannot be read cannot be read either.
			case !r.kind.denies(), r.closed, r.kind == denyRead && c.unreadable(r.path, r.info):
			case r.info.Type != TypeDirectory:
				c.checkHardLink(r.path, r.reason(), r.info, writable)
			case c.granted(path.Dir(r.path)) == AccessWrite:
				c.walk(r.path, func(p string, info FileInfo) { c.checkHardLink(p, r.reason(), info, writable) })
			}
		}
	}
	c.refuseIf(c.unvisited < 0, "protected path", "", "protected directories hold too many files to check all of them for hard links", "make them smaller")
}

func (c *compiler) checkHardLink(p, name string, info FileInfo, writable []uint64) {
	if info.Type != TypeRegular || info.Nlink < 2 {
		return
	}
	onDevice := false
	for _, dev := range writable {
		onDevice = onDevice || dev == info.Dev
	}
	if !onDevice && c.granted(path.Dir(p)) != AccessWrite {
		return
	}
	c.refuse("protected path", p, "has another hard link, through which the sandbox may reach it ("+name+")",
		"give it a copy of its own: cp -p "+p+" "+p+".new && mv "+p+".new "+p)
}

// walk visits what lies below a directory, as far as unvisited allows.
func (c *compiler) walk(dir string, visit func(string, FileInfo)) {
	names, err := c.facts.ReadDir(dir, max(c.unvisited, 0))
	if errors.Is(err, fs.ErrPermission) {
		c.refuse("protected path", dir, "cannot be looked into, so what it holds cannot be checked for hard links", "chmod u+rx "+dir)
		return
	}
	if err != nil {
		c.unvisited = -1
		return
	}
	for _, n := range names {
		// Git ships these; it never runs them.
		if strings.HasSuffix(n, ".sample") {
			continue
		}
		if c.unvisited--; c.unvisited < 0 {
			return
		}
		p := join(dir, n)
		info, ok := c.facts.lstat(p)
		if !ok {
			continue
		}
		visit(p, info)
		if info.Type == TypeDirectory {
			c.walk(p, visit)
		}
	}
}

// writableDevices lists the file systems that writable grants are on.
func (c *compiler) writableDevices() []uint64 {
	var out []uint64
	for i := range c.layers[0].rules {
		r := &c.layers[0].rules[i]
		if r.kind == allowWrite && c.granted(r.path) == AccessWrite {
			out = append(out, r.info.Dev)
		}
	}
	return out
}

// view is a directory that can be seen inside, with where it really is: a path
// in a file system.
type view struct {
	target string
	dev    string
	root   string
}

// checkAliases refuses a mount table that shows something denied or protected
// under a second name with more access.
func (c *compiler) checkAliases() {
	restricted := c.restricted()
	table, err := c.facts.Mounts()
	if err != nil {
		c.refuse("mount table", "", err.Error(), "mount /proc")
		return
	}
	c.hideKernelMounts(table)
	if len(restricted) == 0 || !hasTwins(table) {
		return
	}
	views := c.views(table)
	for _, p := range restricted {
		r, ok := locate(table, p)
		if !ok {
			continue
		}
		for _, v := range views {
			c.checkAlias(p, r, v)
		}
	}
}

// hideKernelMounts covers file systems of the kernel that the host has mounted
// below a granted directory, as in a tree that images are built in: they would
// come along with it, and tell about the whole machine or, as root, command it.
func (c *compiler) hideKernelMounts(table []MountPoint) {
	shown := len(c.spec.Mounts)
	for _, t := range table {
		if !isKernelType(t.Type) {
			continue
		}
		if _, m := c.spec.Access(t.Target); m != nil && m.Kind == Bind && below(m.Target, t.Target) {
			b := builder{c: c, mounts: []Mount{*m}, open: []int{0}}
			info, ok := c.facts.lstat(t.Target)
			if !ok {
				info.Type = TypeDirectory // as most are; a namespace is a file
			}
			b.add(hide(t.Target, info, t.Type+" of the host"))
			c.spec.Mounts = append(c.spec.Mounts, b.mounts[1:]...)
		}
	}
	if len(c.spec.Mounts) > shown {
		c.spec.Mounts = sortMounts(c.spec.Mounts)
	}
}

func isKernelType(t string) bool {
	switch t {
	case "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "binfmt_misc",
		"efivarfs", "pstore", "devtmpfs", "devpts", "mqueue", "nsfs", "fusectl", "selinuxfs", "rpc_pipefs", "nfsd":
		return true
	}
	return false
}

// hasTwins says whether any part of a file system is mounted twice, which few
// machines have.
func hasTwins(table []MountPoint) bool {
	for i := range table {
		for j := range table[:i] {
			a, b := &table[i], &table[j]
			if a.Dev == b.Dev && (Covers(a.Root, b.Root) || Covers(b.Root, a.Root)) {
				return true
			}
		}
	}
	return false
}

// restricted lists paths with less access than the mount around them gives.
func (c *compiler) restricted() []string {
	var out []string
	for _, q := range c.protected {
		out = append(out, q.path)
	}
	for _, l := range c.layers {
		for i := range l.rules {
			if l.rules[i].kind.denies() {
				out = append(out, l.rules[i].path)
			}
		}
	}
	return out
}

// views lists what the sandbox shows of the host: each bind, and each mount of
// the host below one, which comes along.
func (c *compiler) views(table []MountPoint) []view {
	var out []view
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if !m.showsHost() || m.Devices {
			continue
		}
		if v, ok := locate(table, m.Target); ok {
			out = append(out, v)
		}
	}
	for _, t := range table {
		if a, m := c.spec.Access(t.Target); m.showsHost() && a != AccessNone && m.Target != t.Target {
			out = append(out, view{t.Target, t.Dev, t.Root})
		}
	}
	return out
}

// locate says where a path really is. The last mount that covers it counts,
// since later ones lie over earlier ones.
func locate(table []MountPoint, p string) (view, bool) {
	best := -1
	for i, t := range table {
		if Covers(t.Target, p) && (best < 0 || len(t.Target) >= len(table[best].Target)) {
			best = i
		}
	}
	if best < 0 {
		return view{}, false
	}
	t := table[best]
	rest := strings.TrimPrefix(p[len(t.Target):], "/")
	return view{p, t.Dev, path.Join(t.Root, rest)}, true
}

// checkAlias compares the access of a restricted path with that of the name a
// view gives it.
func (c *compiler) checkAlias(p string, r, v view) {
	if r.dev != v.dev {
		return
	}
	var alias string
	switch {
	case Covers(v.root, r.root): // the view holds it
		alias = path.Join(v.target, strings.TrimPrefix(r.root, v.root))
	case Covers(r.root, v.root): // it holds the view
		alias = v.target
	default:
		return
	}
	if Covers(p, alias) {
		return
	}
	if shown, m := c.spec.Access(alias); m.showsHost() && shown > c.access(p) {
		c.refuse("protected path", p, "is also visible as "+alias+", where the sandbox has more access", "unmount that, or deny it too")
	}
}
