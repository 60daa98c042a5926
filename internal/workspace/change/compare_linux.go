package change

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Stack is what there is to compare: directories in the format of overlayfs, the
// topmost first, and what they lie on.
type Stack struct {
	Tops    []string
	Bottoms []string
	// Whole says that the tops are all that is shown: they do not lie on the bottoms,
	// but are compared with them.
	Whole bool
}

// Comparison is a Stack with its directories open.
type Comparison struct {
	tops    []root
	bottoms []root
	// Changes are sorted by path, a directory before what is in it.
	Changes []Change
}

// Compare finds everything that differs between what a Stack shows and what it
// lies on. That a file was copied up, or only its time changed, is no difference.
func Compare(s Stack) (*Comparison, error) {
	c := &Comparison{}
	var err error
	if c.tops, err = openAll(s.Tops); err == nil {
		c.bottoms, err = openAll(s.Bottoms)
	}
	if err == nil {
		w := walker{Comparison: c, whole: s.Whole}
		err = w.levels("", levelOf(c.tops), levelOf(c.bottoms), false)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	order(c.Changes)
	return c, nil
}

// Knows says whether there is anything at a path, on either side, or was in a layer
// between. Where it cannot be seen, there may be.
func (c *Comparison) Knows(path string) bool {
	return slices.ContainsFunc(slices.Concat(c.tops, c.bottoms), func(r root) bool {
		_, found, err := r.lstat(path)
		return found || err != nil
	})
}

// Close closes the directories.
func (c *Comparison) Close() { closeAll(slices.Concat(c.tops, c.bottoms)) }

func closeAll(list []root) {
	for _, r := range list {
		_ = r.Close()
	}
}

func openAll(dirs []string) (list []root, err error) {
	for _, dir := range dirs {
		r, err := openRoot(dir)
		if err != nil {
			return list, err
		}
		list = append(list, r)
	}
	return list, nil
}

// place is a directory of one layer.
type place struct {
	fd    int
	layer int
}

// level are the directories that are seen as one, the topmost first.
type level []place

func levelOf(roots []root) (l level) {
	for i, r := range roots {
		l = append(l, place{int(r.Fd()), i})
	}
	return l
}

// found is what a level has under a name.
type found struct {
	st    unix.Stat_t
	layer int
	at    int  // the directory it is in, open
	there bool // a whiteout is not
	seen  bool // something is said about the name, if only that it is gone
	whole bool // nothing below the level shows through
	dirs  level
}

func (f *found) isDir() bool { return f.there && f.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// look finds a name in a level. The caller closes its directories.
func (l level) look(name string) (f found, err error) {
	for _, p := range l {
		var st unix.Stat_t
		err := unix.Fstatat(p.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return f, failed("stat", name, err)
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if f.seen && !isDir { // it hides what is below, and is itself hidden
			f.whole = true
			return f, nil
		}
		if !f.seen {
			f.seen, f.st, f.layer, f.at = true, st, p.layer, p.fd
			f.there = !isWhiteout(&st)
		}
		if !isDir {
			f.whole = true
			return f, nil
		}
		fd, err := openAt(p.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.EXDEV) {
			return f, nil // a mount, which an overlay does not show
		}
		if err != nil {
			return f, failed("open", name, err)
		}
		f.dirs = append(f.dirs, place{fd, p.layer})
		if isOpaque(fd) {
			f.whole = true
			return f, nil
		}
	}
	return f, nil
}

// find finds a path below a level. What has something else than a directory on the
// way is not there. The caller calls done when it needs nothing of it any more.
func (l level) find(path string) (f found, done func(), err error) {
	var open []level
	done = func() {
		for _, l := range open {
			l.close()
		}
	}
	for rest, more := path, true; more; l = f.dirs {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		f, err = l.look(name)
		open = append(open, f.dirs)
		if err != nil {
			return f, done, err
		}
		if more && !f.isDir() {
			return found{}, done, nil
		}
	}
	return f, done, nil
}

func (l level) close() {
	for _, p := range l {
		_ = unix.Close(p.fd)
	}
}

// names lists what any of the directories has.
func (l level) names() ([]string, error) {
	var all []string
	for _, p := range l {
		fd, err := openAt(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), "")
		names, err := f.Readdirnames(-1)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

func isOpaque(fd int) bool {
	var value [2]byte
	n, err := unix.Fgetxattr(fd, tree.Opaque, value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

// maxDepth is how many directories below each other are compared. Each is held
// open, and who nests deeper means no good.
const maxDepth = 1000

type walker struct {
	*Comparison
	whole bool
	depth int
}

// levels compares two directories. Where nothing shows through from below, the
// names that only the bottom has are gone.
func (w *walker) levels(path string, top, bottom level, replaced bool) error {
	if err := w.directory(path, top, bottom); err != nil || !replaced && !w.whole {
		return err
	}
	return w.missing(path, top, bottom)
}

// directory compares what the top says with what the bottom has.
func (w *walker) directory(path string, top, bottom level) error {
	if w.depth++; w.depth > maxDepth {
		return failed("compare", path, errors.New("too many directories in each other"))
	}
	defer func() { w.depth-- }()
	names, err := top.names()
	if err != nil {
		return failed("read", path, err)
	}
	for _, name := range names {
		if err := w.name(join(path, name), name, top, bottom); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) name(path, name string, top, bottom level) error {
	t, err := top.look(name)
	defer t.dirs.close()
	if err != nil || !t.seen {
		return err
	}
	b, err := bottom.look(name)
	defer b.dirs.close()
	if err != nil {
		return err
	}
	switch {
	case !t.there && !b.there:
		return nil
	case !t.there:
		return w.removed(path, name, &b)
	case !b.there:
		return w.appeared(path, name, &t)
	}
	return w.both(path, name, &t, &b)
}

// both compares what both sides have.
func (w *walker) both(path, name string, t, b *found) error {
	kind, err := w.differ(name, t, b)
	if err != nil {
		return failed("compare", path, err)
	}
	if kind != "" {
		if err := w.add(path, name, kind, b, t); err != nil {
			return err
		}
	}
	switch {
	case t.isDir() && b.isDir():
		return w.levels(path, t.dirs, b.dirs, t.whole)
	case t.isDir():
		return w.directory(path, t.dirs, nil)
	case b.isDir():
		return w.missing(path, nil, b.dirs)
	}
	return nil
}

// missing reports what the bottom has and the top has not, of a directory that
// was replaced.
func (w *walker) missing(path string, top, bottom level) error {
	names, err := bottom.names()
	if err != nil {
		return failed("read", path, err)
	}
	have, err := top.names()
	if err != nil {
		return failed("read", path, err)
	}
	for _, name := range names {
		if _, ok := slices.BinarySearch(have, name); ok {
			continue
		}
		b, err := bottom.look(name)
		if err == nil && b.there {
			err = w.removed(join(path, name), name, &b)
		}
		b.dirs.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) removed(path, name string, b *found) error {
	if err := w.add(path, name, Deleted, b, nil); err != nil {
		return err
	}
	return w.missing(path, nil, b.dirs)
}

func (w *walker) appeared(path, name string, t *found) error {
	if err := w.add(path, name, Added, nil, t); err != nil {
		return err
	}
	return w.directory(path, t.dirs, nil)
}

func (w *walker) add(path, name string, kind Kind, old, now *found) (err error) {
	c := Change{Path: path, Kind: kind}
	if old != nil {
		c.Old, err = entryOf(name, old)
	}
	if now != nil && err == nil {
		c.New, err = entryOf(name, now)
	}
	if err != nil {
		return failed("readlink", path, err)
	}
	w.Changes = append(w.Changes, c)
	return nil
}

func entryOf(name string, f *found) (*Entry, error) {
	e := &Entry{Type: typeOf(f.st.Mode), Mode: f.st.Mode & 0o7777, layer: f.layer}
	var err error
	switch e.Type {
	case File:
		e.Size = f.st.Size
	case Link:
		e.Mode = 0o777
		e.Target, err = readlinkAt(f.at, name)
	}
	return e, err
}

func typeOf(mode uint32) FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Link
	case unix.S_IFIFO:
		return Fifo
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// differ says how two files differ; empty if they do not.
func (w *walker) differ(name string, t, b *found) (Kind, error) {
	if t.st.Mode&unix.S_IFMT != b.st.Mode&unix.S_IFMT {
		return Type, nil
	}
	switch typeOf(t.st.Mode) {
	case Link:
		return differLinks(name, t, b)
	case File:
		return differFiles(name, t, b)
	case Dir:
		return differMeta(t, b, t.dirs, b.dirs)
	}
	return differMeta(t, b, nil, nil)
}

func differLinks(name string, t, b *found) (Kind, error) {
	now, err := readlinkAt(t.at, name)
	if err != nil {
		return "", err
	}
	old, err := readlinkAt(b.at, name)
	if err != nil || now == old {
		return "", err
	}
	return Symlink, nil
}

func differFiles(name string, t, b *found) (Kind, error) {
	if t.st.Size != b.st.Size {
		return Changed, nil
	}
	if t.st.Dev == b.st.Dev && t.st.Ino == b.st.Ino {
		return "", nil // of a layer that both lie on
	}
	now, err := openFile(t.at, name)
	if err != nil {
		return unreadable(err)
	}
	defer now.Close()
	old, err := openFile(b.at, name)
	if err != nil {
		return unreadable(err)
	}
	defer old.Close()
	if same, err := sameContent(now, old, t.st.Size); err != nil || !same {
		return Changed, err
	}
	return differMeta(t, b, level{{fd: int(now.Fd())}}, level{{fd: int(old.Fd())}})
}

// unreadable takes a file that cannot be read for one that was changed: it cannot
// be shown that it was not.
func unreadable(err error) (Kind, error) {
	if errors.Is(err, unix.EACCES) {
		return Changed, nil
	}
	return "", err
}

// differMeta compares modes, owners and attributes of open files.
func differMeta(t, b *found, now, old level) (Kind, error) {
	if t.st.Mode&0o7777 != b.st.Mode&0o7777 || t.st.Uid != b.st.Uid || t.st.Gid != b.st.Gid {
		return Mode, nil
	}
	if len(now) == 0 || len(old) == 0 {
		return "", nil
	}
	x, err := tree.Attrs(now[0].fd, tree.Kept)
	if err != nil {
		return "", err
	}
	y, err := tree.Attrs(old[0].fd, tree.Kept)
	same := func(a, b tree.Attr) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }
	if err != nil || slices.EqualFunc(x, y, same) {
		return "", err
	}
	return Mode, nil
}

// sameContent compares two files of one size. Where both have a hole it reads
// nothing: holes can be longer than anybody waits for.
func sameContent(a, b *os.File, size int64) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		if at = min(nextData(a, at, size), nextData(b, at, size)); at == size {
			break
		}
		n, err := a.ReadAt(x, at)
		if err != nil && err != io.EOF {
			return false, err
		}
		m, err := b.ReadAt(y, at)
		if err != nil && err != io.EOF {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if n == 0 {
			break // both became shorter
		}
		at += int64(n)
	}
	return true, nil
}

// nextData is where the next byte of a file is that is in no hole, from a place
// on; its size if there is none.
func nextData(f *os.File, at, size int64) int64 {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return size
	case err != nil:
		return at // the file system does not know of holes
	}
	return min(data, size)
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Open opens the content of one side of a change, which must be a regular file.
func (c *Comparison) Open(ch *Change, e *Entry) (*os.File, error) {
	side := c.tops
	if e == ch.Old {
		side = c.bottoms
	}
	return side[e.layer].open(ch.Path)
}

// read reads the content of one side of a change, if it is not larger than most.
// What a command made can have any size, and take no room on the disk.
func (c *Comparison) read(ch *Change, e *Entry, most int64) ([]byte, error) {
	f, err := c.Open(ch, e)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readUpTo(f, most)
	if err != nil {
		return nil, failed("read", ch.Path, err)
	}
	return data, nil
}

// readUpTo reads a file that is not larger than most. The others it does not begin
// to read; one that grows meanwhile it leaves off.
func readUpTo(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, errLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = errLarge
	}
	return data, err
}
