package native

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// layers lays the overlay of a Spec over its lower directories. It stands in the
// memory file system beside the new root, where no path leads, and mounts are
// taken from it as they otherwise are from the host: so what is read-only, hidden
// or pinned in the project is so in the overlay, by the same mounts, and there is
// none through which a write could reach the project itself.
func (b *builder) layers(over *spec.Overlay) {
	b.begin(WallOverlay, "overlay", over.Source, over.Upper)
	b.over, b.overAt = over, b.scratch(0o755)
	// Named through descriptors, the paths need no quoting and follow no link.
	// They get the lowest free numbers: fdSpare and on.
	fd := fdSpare
	open := func(dir string) string {
		b.open(fdOld, dir)
		fd++
		return "/proc/self/fd/" + strconv.Itoa(fd-1)
	}
	var lowers []string
	for _, dir := range over.Reads() {
		lowers = append(lowers, open(dir))
	}
	var upper, work string
	if over.InMemory {
		b.upperAt = b.scratchLike(over.Upper)
		upper, work = inScratch(b.upperAt), inScratch(b.scratch(0o755))
	} else {
		upper, work = open(over.Upper), open(over.Work)
	}
	options := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	if over.Volatile {
		options += ",volatile"
	}
	b.call(unix.SYS_MOUNT, b.str("overlay"), b.str(inScratch(b.overAt)), b.str("overlay"), num(unix.MS_NOSUID|unix.MS_NODEV), b.str(options))
	b.call(unix.SYS_CLOSE_RANGE, num(fdSpare), num(fd-1), num(0))
}

// inScratch names a scratch directory through a descriptor.
func inScratch(name string) string { return "/proc/self/fd/" + strconv.Itoa(fdScratch) + "/" + name }

// scratchLike makes a scratch directory with the mode of one of the host: in an
// overlay it is the upper one's that counts.
func (b *builder) scratchLike(dir string) string {
	name := b.scratch(0o755)
	var st unix.Stat_t
	if unix.Stat(dir, &st) == nil { // otherwise the mount fails, and says so
		b.call(unix.SYS_FCHMODAT, num(fdScratch), b.str(name), num(int(st.Mode&0o7777)))
	}
	return name
}

// handOutChanges gives the launcher the directory that the changes go to, if it is
// in memory: it is all that is left of them when the sandbox has ended.
func (l *launcher) handOutChanges() {
	if !l.spec.Overlay.HeldInMemory() {
		return
	}
	l.handOut(WallOverlay, "the changes", l.upperAt)
}

// handOut gives the launcher a scratch directory, or what is mounted there.
func (l *launcher) handOut(w Wall, what, name string) {
	l.begin(w, "hand out", what, "")
	msg := l.message(1)
	l.call(unix.SYS_OPENAT, num(fdScratch), l.str(name), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0)).out = uintptr(unsafe.Pointer(msg.descriptor(0)))
	l.send(msg, 0)
	l.call(unix.SYS_CLOSE, from(cell(msg.descriptor(0))))
}

// openSource opens what a mount shows: a path of the host, or of the overlay or
// the view if it lies in one.
func (b *builder) openSource(source string) cell {
	if !b.isBorrowed(source) {
		return b.open(fdOld, source)
	}
	return b.open(fdScratch, b.borrowedFrom(source))
}
