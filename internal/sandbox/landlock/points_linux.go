package landlock

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// point is a path where what may be done changes: by the Spec, or by what is
// mounted here.
type point struct {
	path string
	file bool
	link bool
	// want are the rights that the Spec grants, of a directory's even for a file:
	// to remove a file, or put another in its place, is a right of writing too.
	want uint64
	// offered are those that the command would have if Landlock did nothing.
	offered uint64
	// why names the rule of the policy; empty if none is about this path.
	why string
}

// toList is the right to read a directory.
const toList = unix.LANDLOCK_ACCESS_FS_READ_DIR

var (
	toRead    = native.Rights(&spec.LandlockRule{Read: true})
	toWrite   = native.Rights(&spec.LandlockRule{Write: true})
	toExecute = native.Rights(&spec.LandlockRule{Execute: true})
	toControl = native.Rights(&spec.LandlockRule{Device: true})
	ofFile    = native.Rights(&spec.LandlockRule{File: true, Read: true, Write: true, Execute: true, Device: true})
)

// lacks are the rights that only Landlock keeps from the command here.
func (p *point) lacks() uint64 { return p.offered &^ p.want }

// findPoints lists every path that matters, each once, parents first.
func (c *check) findPoints() {
	for i := range c.spec.Mounts {
		if m := &c.spec.Mounts[i]; m.Kind != spec.Symlink {
			c.addPoint(m.Target, m.Why)
		}
		if c.spec.Mounts[i].Kind == spec.Dev {
			for _, name := range devices {
				c.addPoint(name, "")
			}
		}
	}
	for _, r := range c.spec.Landlock.Rules {
		if r.Execute {
			c.addPoint(r.Path, "filesystem.allowExecute")
		}
	}
	for _, d := range c.denied {
		c.addPoint(d.Path, d.Why)
	}
	for i := range c.world.places {
		c.addPoint(c.world.places[i].target, "")
	}
	slices.SortFunc(c.points, func(a, b point) int { return strings.Compare(a.path, b.path) })
	c.points = slices.CompactFunc(c.points, func(a, b point) bool { return a.path == b.path })
}

// addPoint adds a path unless there is nothing: then nothing can be done with it
// until somebody else makes it, and it is not granted then. Of two for the same
// path the first stays.
func (c *check) addPoint(name, why string) {
	var st unix.Stat_t
	if slices.ContainsFunc(c.points, func(p point) bool { return p.path == name }) || unix.Lstat(name, &st) != nil {
		return
	}
	kind := st.Mode & unix.S_IFMT
	p := point{path: name, why: why, file: kind != unix.S_IFDIR, link: kind == unix.S_IFLNK}
	p.want, p.offered = c.want(name), c.world.offers(name)
	if p.file {
		p.offered &^= toList
	}
	c.points = append(c.points, p)
}

// offers are the rights that what is mounted leaves to everybody here.
func (w *world) offers(name string) uint64 {
	p := w.at(name)
	switch {
	case p == nil:
		return 0
	case p.kind == skeleton:
		return toList
	case p.writable:
		return toRead | toExecute | toWrite
	case !mayAccess(name, unix.R_OK) && !mayAccess(name, unix.X_OK):
		return 0 // and where nothing can be written nobody can change that
	}
	return toRead | toExecute
}

// want are the rights that the Spec grants at a path. Private directories are
// those of the sandbox around this one: they are shared with it, and with nobody
// further out.
func (c *check) want(name string) (rights uint64) {
	p := c.world.at(name)
	if c.alone {
		return c.wantAlone(name, p)
	}
	if p != nil && p.kind == skeleton {
		rights = toList // it leads to what is granted, and holds no files
	}
	_, m := c.spec.Access(name)
	if m == nil || p == nil {
		return rights
	}
	switch m.Kind {
	case spec.Bind:
		rights |= toRead
		if m.Write || c.isShared(m, p) {
			rights |= toWrite
		}
		if m.Devices {
			rights |= toControl
		}
	case spec.Tmpfs:
		if m.Mode != 0 && isScratch(p) {
			rights |= toRead | toWrite
		}
	case spec.Private:
		if isScratch(p) || p.kind == layered && p.target == m.Target {
			rights |= toRead | toWrite
		}
	case spec.Proc:
		return rights | toRead
	case spec.Dev:
		return rights | c.wantDevice(name, p)
	}
	if rights&toRead == toRead && c.isExecutable(name) {
		rights |= toExecute
	}
	return rights & c.undenied(name, m)
}

// wantAlone is want where there is no sandbox around this one. In directories the
// broker writes, so only single files can be written without it.
func (c *check) wantAlone(name string, p *place) (rights uint64) {
	_, m := c.spec.Access(name)
	if m == nil || p == nil {
		return 0
	}
	switch m.Kind {
	case spec.Bind:
		rights = toRead
		if m.Write && m.File {
			rights |= toWrite
		}
		if m.Devices {
			rights |= toControl
		}
	case spec.Proc:
		return toRead
	case spec.Dev:
		return c.wantDevice(name, p)
	}
	if rights != 0 && c.isExecutable(name) {
		rights |= toExecute
	}
	return rights
}

// undenied are the rights that no denial takes away. One above the mount that
// decides about a path was a part of that decision.
func (c *check) undenied(name string, m *spec.Mount) uint64 {
	rights := ^uint64(0)
	for _, d := range c.denied {
		switch {
		case !spec.Covers(d.Path, name) || len(d.Path) < len(m.Target):
		case d.Read:
			rights &^= toWrite
		default:
			return 0
		}
	}
	return rights
}

func isScratch(p *place) bool { return p.kind == scratch && p.writable }

// isShared says whether a grant to read shows something that the sandbox around
// this one has in a private directory. That is as writable as the rest of it.
func (c *check) isShared(m *spec.Mount, p *place) bool {
	_, around := c.spec.Access(path.Dir(m.Target))
	return isScratch(p) && around != nil && around.Kind == spec.Tmpfs && around.Mode != 0
}

func (c *check) isExecutable(name string) bool {
	return slices.ContainsFunc(c.spec.Landlock.Rules, func(r spec.LandlockRule) bool {
		return r.Execute && spec.Covers(r.Path, name)
	})
}

// devices are what every program may expect.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// wantDevice grants of /dev what is nobody's. The terminals are those of the
// sandbox around this one, so the command gets the one that it is started on, by
// its streams, and no other.
func (c *check) wantDevice(name string, p *place) uint64 {
	switch {
	case name == "/dev/tty" && !c.terminal:
		return 0
	case slices.Contains(devices, name):
		return toRead | toWrite | toControl
	case spec.Covers("/dev/shm", name) && isScratch(p):
		return toRead | toWrite
	case name == "/dev/pts":
		return toList
	}
	return 0
}
