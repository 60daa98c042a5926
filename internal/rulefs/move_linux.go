package rulefs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// maxMoved is how much is looked at below a directory before it is moved.
const maxMoved = 10000

// mayMove says whether everything below a name keeps its permission under another
// path.
func (fs *FS) mayMove(dir *node, fd int, name, from, to string) error {
	rules := dir.view.rules.Load()
	if rules.SameBelow(from, to) {
		return nil
	}
	left := maxMoved
	return sameBelow(rules, fd, name, from, to, &left)
}

// sameBelow compares what is there, name by name.
func sameBelow(rules *pathrule.Set, dir int, name, from, to string, left *int) error {
	if *left--; *left < 0 {
		return unix.EXDEV
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return unix.EXDEV // what cannot be looked at could be anything
	}
	defer unix.Close(fd)
	return eachEntry(fd, func(e *entry) error {
		if e.name == "." || e.name == ".." {
			return nil
		}
		a, b := join(from, e.name), join(to, e.name)
		if rules.Permission(a) != rules.Permission(b) {
			return unix.EXDEV
		}
		if e.kind != unix.DT_DIR && e.kind != unix.DT_UNKNOWN {
			return nil
		}
		return sameBelow(rules, fd, e.name, a, b, left)
	})
}
