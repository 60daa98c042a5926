package change

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// WriteLayer makes a layer of changes, in the format of overlayfs, in an empty
// directory that nobody else can write to: on top of what theirs shows, it shows
// the changes as well. theirs is a comparison with what the changes are changes
// of. Where both have changed the same, nothing is to be used of the directory.
func (c *Comparison) WriteLayer(to *os.File, list []Change, theirs *Comparison, mode MergeMode) (*Result, error) {
	l := &layering{
		Comparison: c, theirs: theirs, mode: mode, to: root{to}, result: &Result{},
		others: make(map[string]*Change), dirs: make(map[string]bool), shut: make(map[string]bool),
	}
	for i := range theirs.Changes {
		l.others[theirs.Changes[i].Path] = &theirs.Changes[i]
	}
	l.findBuried(list)
	for i := range list {
		if err := l.consider(&list[i]); err != nil {
			return nil, err
		}
	}
	if len(l.clashes) > 0 {
		return nil, &Conflict{"the codebase", l.clashes}
	}
	return l.result, l.finish()
}

type layering struct {
	*Comparison
	theirs  *Comparison
	mode    MergeMode
	to      root
	others  map[string]*Change
	result  *Result
	clashes []Clash

	dirs  map[string]bool // that were made
	order []string        // in which they were made
	metas []tree.Meta     // which they get once everything is in them
	shut  map[string]bool // where there is something else, or nothing any more
}

// findBuried finds what others have made or changed in directories that the
// changes remove.
func (l *layering) findBuried(list []Change) {
	removed := make(map[string]bool)
	for i := range list {
		c := &list[i]
		if c.Old != nil && c.Old.Type == Dir && (c.New == nil || c.New.Type != Dir) {
			removed[c.Path] = true
		}
	}
	for i := range l.theirs.Changes {
		o := &l.theirs.Changes[i]
		if o.New != nil && o.Old == nil && within(removed, o.Path) {
			l.clashes = append(l.clashes, Clash{Path: o.Path, Why: "was made in a directory that is to be removed"})
		}
	}
}

// within says whether a path lies below one of a set.
func within(set map[string]bool, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if set[dir] {
			return true
		}
	}
	return false
}

// consider puts a change into the layer, unless others were faster.
func (l *layering) consider(c *Change) error {
	if c.New != nil && (c.New.Type == Socket || c.New.Type == Device) {
		l.result.Left = append(l.result.Left, c.Path)
		return nil
	}
	w := wish{path: c.Path, new: c.New}
	why, err := l.clash(c)
	if err == nil && why != "" {
		why, err = l.merge(&w, c, why)
	}
	if err != nil {
		return err
	}
	if why != "" {
		l.clashes = append(l.clashes, Clash{Path: c.Path, Why: why})
		return nil
	}
	l.result.Applied = append(l.result.Applied, *c)
	if len(l.clashes) > 0 {
		return nil // it is in vain
	}
	return l.put(&w, c)
}

// clash says what others did to the same path; empty if that is nothing, or the
// same.
func (l *layering) clash(c *Change) (string, error) {
	if c.New != nil && l.isBuried(c.Path) {
		return "lies in a directory that was removed", nil
	}
	o := l.others[c.Path]
	if o == nil {
		return "", nil
	}
	same, err := l.same(c, o)
	switch {
	case err != nil || same:
		return "", err
	case o.New == nil:
		return "was removed", nil
	case o.Old == nil:
		return "was made", nil
	}
	return "was changed", nil
}

// isBuried says whether others have removed a directory that a path lies in.
func (l *layering) isBuried(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if o := l.others[dir]; o != nil && (o.New == nil || o.New.Type != Dir) {
			return true
		}
	}
	return false
}

// same says whether two changes of a path come to the same.
func (l *layering) same(c, o *Change) (bool, error) {
	if c.New == nil || o.New == nil {
		return c.New == nil && o.New == nil, nil
	}
	if c.New.Type != o.New.Type || c.New.Mode != o.New.Mode || c.New.Size != o.New.Size || c.New.Target != o.New.Target {
		return false, nil
	}
	if c.New.Type != File {
		return true, nil
	}
	ours, err := l.Open(c, c.New)
	if err != nil {
		return false, err
	}
	defer ours.Close()
	theirs, err := l.theirs.Open(o, o.New)
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	return sameContent(ours, theirs, c.New.Size)
}

// merge puts two changes of a text together, if it can, and says why not.
func (l *layering) merge(w *wish, c *Change, why string) (string, error) {
	o := l.others[c.Path]
	if l.mode == Refuse || o == nil || c.Kind != Changed || o.Kind != Changed {
		return why, nil
	}
	texts, not, err := readTexts(version{l.Comparison, c, c.Old}, version{l.Comparison, c, c.New}, version{l.theirs, o, o.New})
	if err != nil {
		return "", err
	}
	if not != "" {
		return why + not, nil
	}
	merged, conflict := Merge(texts[0], texts[1], texts[2])
	if conflict && l.mode != Markers {
		return why + " in the same lines", nil
	}
	w.content = bytes.NewReader(merged)
	l.result.Merged = append(l.result.Merged, c.Path)
	if conflict {
		l.result.Marked = append(l.result.Marked, c.Path)
	}
	return "", nil
}

// put makes what a change comes to.
func (l *layering) put(w *wish, c *Change) error {
	if c.New == nil {
		return l.remove(c.Path)
	}
	merged := w.content
	if err := l.fill(w, c); err != nil {
		return err
	}
	if merged != nil {
		w.open = nil
	}
	if c.New.Type == Dir {
		return l.mkdir(c.Path, w.meta)
	}
	l.shut[c.Path] = true
	if err := l.enter(path.Dir(c.Path)); err != nil {
		return err
	}
	return l.to.in(c.Path, func(dir int, base string) error { return w.make(dir, base, false) })
}

// remove makes the sign of something removed, unless it is gone with more.
func (l *layering) remove(name string) error {
	o := l.others[name]
	if o != nil && o.New == nil || within(l.shut, name) || l.isBuried(name) {
		return nil
	}
	l.shut[name] = true
	if err := l.enter(path.Dir(name)); err != nil {
		return err
	}
	return l.to.in(name, func(dir int, base string) error {
		if err := unix.Mknodat(dir, base, unix.S_IFCHR, 0); err != nil {
			return failed("mknod", name, err)
		}
		return nil
	})
}

// enter makes a directory that no change is about, and those above it, as the
// others have it.
func (l *layering) enter(name string) error {
	if name == "." || l.dirs[name] {
		return nil
	}
	m, err := l.metaOf(name)
	if err != nil {
		return err
	}
	return l.mkdir(name, m)
}

// metaOf is what the others have of a directory.
func (l *layering) metaOf(name string) (m tree.Meta, err error) {
	top := topmost(slices.Concat(l.theirs.tops, l.theirs.bottoms), name)
	if top == nil {
		return m, failed("open", name, unix.ENOENT)
	}
	st, _, err := top.lstat(name)
	if err != nil {
		return m, err
	}
	attrs, err := attrsOf(*top, name)
	return tree.MetaOf(&st, attrs), err
}

func (l *layering) mkdir(name string, m tree.Meta) error {
	if err := l.enter(path.Dir(name)); err != nil {
		return err
	}
	l.dirs[name] = true
	l.order, l.metas = append(l.order, name), append(l.metas, m)
	return l.to.in(name, func(dir int, base string) error {
		if err := unix.Mkdirat(dir, base, 0o700); err != nil {
			return failed("mkdir", name, err)
		}
		return nil
	})
}

// finish gives directories their metadata, inner ones first: outer ones may be
// shut, and their times are those of before.
func (l *layering) finish() error {
	m, err := l.metaOf("")
	if err != nil {
		return err
	}
	for i, name := range slices.Backward(l.order) {
		if err := l.set(name, l.metas[i]); err != nil {
			return err
		}
	}
	return l.set("", m)
}

func (l *layering) set(name string, m tree.Meta) error {
	fd, err := openAt(int(l.to.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return failed("open", name, err)
	}
	defer unix.Close(fd)
	return m.Set(fd)
}

// IsBinary says whether a change is of a file that is not text.
func (c *Comparison) IsBinary(ch *Change) (bool, error) {
	e := ch.entry()
	if e.Type != File {
		return false, nil
	}
	f, err := c.Open(ch, e)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, sniffed)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, failed("read", ch.Path, err)
	}
	return !isText(head[:n]), nil
}
