package native

import (
	"strconv"
	"strings"

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
	lowers := make([]string, len(over.Lowers))
	for i, dir := range over.Lowers {
		lowers[i] = open(dir)
	}
	options := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + open(over.Upper) + ",workdir=" + open(over.Work) + ",userxattr"
	if over.Volatile {
		options += ",volatile"
	}
	at := "/proc/self/fd/" + strconv.Itoa(fdScratch) + "/" + b.overAt
	b.call(unix.SYS_MOUNT, b.str("overlay"), b.str(at), b.str("overlay"), num(unix.MS_NOSUID|unix.MS_NODEV), b.str(options))
	b.call(unix.SYS_CLOSE_RANGE, num(fdSpare), num(fd-1), num(0))
}

// openSource opens what a mount shows: a path of the host, or of the overlay or
// the view if it lies in one.
func (b *builder) openSource(source string) cell {
	if !b.isBorrowed(source) {
		return b.open(fdOld, source)
	}
	return b.open(fdScratch, b.borrowedFrom(source))
}
