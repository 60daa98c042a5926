package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// A workspace on a codebase lies on layers, and is applied to the directory that
// they were imported from. What was never applied is a change of the layers, and
// others have changed the directory where it is not what the layers are. What was
// applied once, or undone, is compared with the directory from then on, as in a
// workspace that lies on it.

// isImported says whether a workspace is such a one.
func isImported(d *delta.Delta) bool { return d.Live() == "" && d.Source() != "" }

// shownBy are the directories in which everything that counts for what was applied
// is: of a workspace on a directory only what it wrote.
func shownBy(d *delta.Delta) []string {
	s := StackOf(d)
	if isImported(d) && !s.Whole {
		return slices.Concat(s.Tops, s.Bottoms)
	}
	return s.Tops
}

// again compares what was applied or undone before with the directory, which is
// one more of the bottoms then. If the directory is not there, it is left what it
// is a change of.
func (c *Comparison) again(d *delta.Delta, b *base) error {
	source, err := openRoot(d.Source())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c.bottoms = append(c.bottoms, source)
	below, err := openAll(shownBy(d)[len(c.tops):])
	c.tops = append(c.tops, below...)
	if err != nil {
		return err
	}
	c.Changes = slices.DeleteFunc(c.Changes, func(ch Change) bool { return b.entries[ch.Path] != nil })
	w := walker{Comparison: c}
	for name := range b.entries {
		if err := w.at(name, levelOf(c.tops), c.directoryOf(d)); err != nil {
			return err
		}
	}
	order(c.Changes)
	return nil
}

// imported is the directory among the bottoms.
func (c *Comparison) imported(d *delta.Delta) (root, error) {
	if i := len(d.Record.Base); i < len(c.bottoms) {
		return c.bottoms[i], nil
	}
	return root{}, fmt.Errorf("workspace %s: the directory that its codebase was imported from is gone: %w; put it back in its place, or see: bailey ws export",
		d.Record.Name, &fs.PathError{Op: "open", Path: d.Source(), Err: fs.ErrNotExist})
}

func (c *Comparison) directoryOf(d *delta.Delta) level {
	i := len(d.Record.Base)
	return level{{int(c.bottoms[i].Fd()), i}}
}

// at compares what is at a path, and nothing below it.
func (w *walker) at(name string, top, bottom level) error {
	t, done, err := top.find(name)
	defer done()
	if err != nil {
		return err
	}
	b, done, err := bottom.find(name)
	defer done()
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch {
	case !t.there && !b.there:
		return nil
	case !t.there:
		return w.add(name, base, Deleted, &b, nil)
	case !b.there:
		return w.add(name, base, Added, nil, &t)
	}
	kind, err := w.differ(base, &t, &b)
	if err != nil {
		return failed("compare", name, err)
	}
	if kind == "" {
		return nil
	}
	return w.add(name, base, kind, &b, &t)
}

// sinceImport says what others did in the directory to a path that was not applied
// before; empty if that is nothing, and isAlike if it is the same as the workspace did.
func (a *applying) sinceImport(c *Change) (string, error) {
	if gone, err := a.isWayGone(c); err != nil || gone {
		return "lies in a directory that was removed", err
	}
	theirs, done, err := a.directoryOf(a.delta).find(c.Path)
	defer done()
	if err != nil {
		return "", err
	}
	if theirs.there && os.Geteuid() != 0 && int(theirs.st.Uid) != os.Geteuid() {
		return "belongs to another user", nil
	}
	if same, err := a.isThere(c.Path, &theirs, levelOf(a.bottoms[:len(a.delta.Record.Base)])); err != nil || same {
		return "", err
	}
	if same, err := a.isThere(c.Path, &theirs, levelOf(a.tops)); err != nil || same {
		return isAlike, err
	}
	switch {
	case !theirs.there:
		return wasRemoved, nil
	case c.Old == nil:
		return wasMade, nil
	}
	return wasChanged, nil
}

// isThere says whether what the directory has at a path is what layers have there.
// An ordinary user's layers do not know owners.
func (a *applying) isThere(name string, theirs *found, side level) (bool, error) {
	f, done, err := side.find(name)
	defer done()
	if err != nil || !f.there || !theirs.there {
		return !f.there && !theirs.there, err
	}
	if os.Geteuid() != 0 {
		f.st.Uid, f.st.Gid = theirs.st.Uid, theirs.st.Gid
	}
	kind, err := new(walker).differ(path.Base(name), theirs, &f)
	if err != nil {
		return false, failed("compare", name, err)
	}
	return kind == "", nil
}

// isWayGone says whether others removed the directory that a file is to be put in.
func (a *applying) isWayGone(c *Change) (bool, error) {
	parent := path.Dir(c.Path)
	if up := a.selected[parent]; c.New == nil || parent == "." || up != nil && up.New != nil && up.New.Type == Dir {
		return false, nil
	}
	p, err := printOf(a.source, parent)
	return p.Type != Dir, err
}

// findBuried finds what others made in directories that the changes remove.
func (a *applying) findBuried() error {
	for _, c := range a.selected {
		if c.Old == nil || c.Old.Type != Dir || c.New != nil && c.New.Type == Dir {
			continue
		}
		if err := a.findIn(c.Path); err != nil {
			return err
		}
	}
	slices.SortFunc(a.clashes, func(x, y Clash) int { return strings.Compare(x.Path, y.Path) })
	return nil
}

func (a *applying) findIn(dir string) error {
	f, done, err := a.directoryOf(a.delta).find(dir)
	defer done()
	if err != nil {
		return err
	}
	names, err := f.dirs.names()
	if err != nil {
		return failed("read", dir, err)
	}
	for _, name := range names {
		if a.selected[join(dir, name)] == nil {
			a.clashes = append(a.clashes, Clash{Path: join(dir, name), Why: "was made in a directory that is to be removed"})
		}
	}
	return nil
}

// theirs is a change with the version of others as the old one.
func (a *applying) theirs(c *Change) *Change {
	if a.base.entries[c.Path] != nil || !isImported(a.delta) {
		return c
	}
	return &Change{Path: c.Path, Old: &Entry{Type: File, layer: len(a.delta.Record.Base)}}
}
