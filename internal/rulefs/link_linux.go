package rulefs

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// A file is permitted the least that any of its names in the view is. A file says
// how many names it has, and not which, so what restricts it is looked for: once,
// when the first file with several names is met by a name that grants more than
// rules may take away. Only names are read for that, and attributes only where
// rules take something away, so files that share their content with a store or a
// cache outside cost no more than this.
//
// Nothing in a sandbox makes it untrue. A link can be made only of a file that may
// be written, under a name that may, and nothing gets another permission by being
// renamed. What the host links is found when it is met, since it changes the file.

// links are the files of a view that are permitted less than some name says.
// They are guarded by FS.mu.
type links struct {
	rules *pathrule.Set // by which they were found; nil before the first search
	least map[fileID]pathrule.Permission
	// whole says that all names were seen.
	whole bool
	begun time.Time // and names that are older were seen
	ended time.Time
	took  time.Duration
}

// searchPause is how long after a search the next one begins at the earliest,
// where the host goes on linking, by how long it took.
var searchPause = 20

// clockStep is by how much the times of files may be behind the clock.
const clockStep = 50 * time.Millisecond

// isShared says whether a file may have names that are not known.
func isShared(st *unix.Stat_t) bool { return st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR }

// floor is the least that another name leaves of a file. The name by which it was
// met is no secret, so there it is a file that cannot be read, instead of none.
func floor(p pathrule.Permission) pathrule.Permission { return max(p, pathrule.View) }

// covers says whether all names of a file were there when they were looked for, by
// the rules that hold: another name changes the file.
func (l *links) covers(rules *pathrule.Set, st *unix.Stat_t) bool {
	return l.rules == rules && l.whole && time.Unix(st.Ctim.Unix()).Before(l.begun)
}

// limit is what is left to a file with several names. Where those were not looked
// for under the rules that hold, it is as little as they leave to anything.
func (l *links) limit(rules *pathrule.Set, id fileID, permission pathrule.Permission) pathrule.Permission {
	if l.rules != rules || !l.whole {
		return min(permission, floor(rules.Least()))
	}
	if least, ok := l.least[id]; ok {
		return min(permission, floor(least))
	}
	return permission
}

// judged finds a node of a file that was judged when it had all the names that it
// has, or but for those that were made in the sandbox. FS.mu is held.
func (fs *FS) judged(v *view, st *unix.Stat_t) *node {
	return fs.find(idOf(st), func(n *node) bool { return n.view == v && n.names >= uint64(st.Nlink) })
}

// left is what is left to a file with several names that is met by one which grants
// this. FS.mu is held.
func (fs *FS) left(v *view, rules *pathrule.Set, st *unix.Stat_t, permission pathrule.Permission) pathrule.Permission {
	if n := fs.judged(v, st); n != nil && !v.links.covers(rules, st) {
		return min(permission, floor(n.allows()))
	}
	return v.links.limit(rules, idOf(st), permission)
}

// knows says whether nothing is to be found by another search, or it is too early
// for one. FS.mu is held.
func (fs *FS) knows(v *view, rules *pathrule.Set, st *unix.Stat_t) bool {
	if v.links.covers(rules, st) {
		return true
	}
	early := time.Since(v.links.ended) < time.Duration(searchPause)*v.links.took
	return v.links.rules == rules && (early || v.links.whole && fs.judged(v, st) != nil)
}

// findLinks sees to it that it is known by which names a file can be reached,
// before it is entered by one that grants this. No lock is held.
func (fs *FS) findLinks(v *view, rules *pathrule.Set, st *unix.Stat_t, permission pathrule.Permission) {
	if !isShared(st) || permission <= floor(rules.Least()) {
		return
	}
	known := func() bool {
		fs.mu.RLock()
		defer fs.mu.RUnlock()
		return fs.knows(v, rules, st)
	}
	if known() {
		return
	}
	v.searching.Lock()
	defer v.searching.Unlock()
	if known() { // since somebody else has searched
		return
	}
	found := fs.search(v, rules)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if v.rules.Load() == rules {
		v.links = found
	}
}

// search looks for restricted names of files with several. Nothing is renamed
// meanwhile: it could be moved from where was not looked yet to where was.
func (fs *FS) search(v *view, rules *pathrule.Set) links {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	begun := time.Now()
	s := search{rules: rules, links: links{
		rules: rules, least: make(map[fileID]pathrule.Permission), whole: true, begun: begun.Add(-clockStep),
	}}
	if h, err := fs.directory(v.root); err == nil {
		s.below(unix.AT_FDCWD, h.link(), 0, "/", 0)
		h.release()
	} else {
		s.links.whole = false
	}
	s.links.ended, s.links.took = time.Now(), time.Since(begun)
	return s.links
}

type search struct {
	rules *pathrule.Set
	links links
}

// maxDeep is how many directories below each other are looked at. Each is held
// open, and who nests deeper means no good.
const maxDeep = 1000

// below looks at everything in a directory.
func (s *search) below(dir int, name string, flags int, path string, depth int) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err == nil {
		defer unix.Close(fd)
		err = eachEntry(fd, func(e *entry) error { s.entry(fd, e, path, depth); return nil })
	}
	if err != nil && !isClosed(dir, name, err) || depth == maxDeep {
		s.links.whole = false
	}
}

// isClosed says whether a directory that could not be looked into is closed to the
// sandbox as well, by somebody else, or gone. Its own user could have closed it to
// hide what is in there.
func isClosed(dir int, name string, err error) bool {
	if !errors.Is(err, unix.EACCES) {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	}
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && int(st.Uid) != os.Geteuid()
}

func (s *search) entry(fd int, e *entry, path string, depth int) {
	if e.name == "." || e.name == ".." {
		return
	}
	e.learnKind(fd)
	path = join(path, e.name)
	if e.kind == unix.DT_DIR && depth < maxDeep {
		s.below(fd, e.name, unix.O_NOFOLLOW, path, depth+1)
	}
	if e.kind == unix.DT_DIR {
		return
	}
	permission := s.rules.Permission(path)
	var st unix.Stat_t
	if permission == pathrule.Write || unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !isShared(&st) {
		return
	}
	if least, ok := s.links.least[idOf(&st)]; !ok || permission < least {
		s.links.least[idOf(&st)] = permission
	}
}
