package change

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// base is what is remembered of the directory that a workspace lies on: the state
// of each file when the workspace changed it. By that, later changes of others
// are seen and can be merged with.
type base struct {
	dir     string
	entries map[string]*baseEntry
	serial  int
	copies  []string // made and not waited for
}

type baseEntry struct {
	Path  []byte
	Print Print // of the directory's file
	// Late says that the file was changed by others while the command ran: nobody
	// knows which version it began with.
	Late bool `json:",omitempty"`
	// Saved names a copy of the file beside the index.
	Saved string `json:",omitempty"`
	// Settled is the print of the workspace's file when it was applied. As long as
	// it is that, there is nothing to apply.
	Settled *Print `json:",omitempty"`
}

// maxSaved is the size up to which a file is copied to be merged with.
const maxSaved = maxText

func loadBase(d *delta.Delta) (*base, error) {
	b := &base{dir: d.Dir() + "/base", entries: make(map[string]*baseEntry)}
	data, err := os.ReadFile(b.dir + "/index")
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	var list []*baseEntry
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, failed("read", b.dir+"/index", err)
	}
	for _, e := range list {
		b.entries[string(e.Path)] = e
		if n, err := strconv.Atoi(e.Saved); err == nil {
			b.serial = max(b.serial, n)
		}
	}
	return b, nil
}

// save writes the index down, and then removes copies that it does not name. Those
// that it names are on the disk first: another text would be merged with otherwise.
func (b *base) save() error {
	list := make([]*baseEntry, 0, len(b.entries))
	named := map[string]bool{"index": true}
	for _, e := range b.entries {
		list = append(list, e)
		named[e.Saved] = true
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := b.make(); err != nil {
		return err
	}
	if err := b.sync(); err != nil {
		return err
	}
	if err := replaceFile(b.dir, "index", data); err != nil {
		return err
	}
	fault.Step("base: index written")
	files, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !named[f.Name()] {
			_ = os.Remove(b.dir + "/" + f.Name())
		}
	}
	return nil
}

// make makes the directory, if there is none. Its name is on the disk then.
func (b *base) make() error {
	err := os.Mkdir(b.dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(b.dir))
}

// fewCopies is up to how many copies each is waited for: this is done after every
// command.
const fewCopies = 10

// sync waits until the copies that were made are on the disk.
func (b *base) sync() error {
	if len(b.copies) > fewCopies {
		b.copies = nil
		return syncAll(b.dir)
	}
	for _, name := range b.copies {
		if err := syncDir(b.dir + "/" + name); err != nil {
			return err
		}
	}
	b.copies = nil
	return nil
}

// keep copies a file beside the index, if it is one that can be merged with.
func (b *base) keep(e *baseEntry, from root, name string) error {
	e.Saved = ""
	f, err := from.open(name)
	if err != nil {
		return nil // it cannot be merged with then
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxSaved {
		return err
	}
	if err := b.make(); err != nil {
		return err
	}
	b.serial++
	to, err := os.OpenFile(b.dir+"/"+strconv.Itoa(b.serial), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := new(tree.Copier).Copy(to, f, info.Size()); err != nil {
		return err
	}
	e.Saved = strconv.Itoa(b.serial)
	b.copies = append(b.copies, e.Saved)
	return nil
}

// content is the copy of a file; nil if there is none.
func (b *base) content(path string) ([]byte, error) {
	e := b.entries[path]
	if e == nil || e.Saved == "" {
		return nil, nil
	}
	f, err := os.Open(b.dir + "/" + e.Saved)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readUpTo(f, maxSaved)
}

// StackOf says what of a workspace is compared with what: with the directory of
// the host that it lies on, or if it lies on none, with the layers that it began
// with.
func StackOf(d *delta.Delta) Stack {
	lowers, base := d.Lowers(), d.Bases()
	switch {
	case d.Live() != "":
		base = lowers[len(lowers)-1:]
	case len(base) == 0:
		base = lowers
	}
	s := Between(lowers, base)
	s.Tops = slices.Insert(slices.Clone(s.Tops), 0, d.Upper())
	return s
}

// Between is the comparison of layers with others, which they lie on as a rule.
func Between(layers, base []string) Stack {
	above := len(layers) - len(base)
	if above < 0 || !slices.Equal(layers[above:], base) {
		return Stack{Tops: layers, Bottoms: base, Whole: true}
	}
	return Stack{Tops: layers[:above], Bottoms: base}
}

// Of finds what a workspace has changed and was not applied yet.
func Of(d *delta.Delta) (*Comparison, error) {
	c, _, err := compareWorkspace(d)
	return c, err
}

func compareWorkspace(d *delta.Delta) (*Comparison, *base, error) {
	b, err := loadBase(d)
	if err != nil {
		return nil, nil, err
	}
	c, err := Compare(StackOf(d))
	if err != nil {
		return nil, nil, err
	}
	if isImported(d) {
		if err := c.again(d, b); err != nil {
			c.Close()
			return nil, nil, err
		}
	}
	var list []Change
	for i := range c.Changes {
		settled, err := c.isSettled(&c.Changes[i], b)
		if err != nil {
			c.Close()
			return nil, nil, err
		}
		if !settled {
			list = append(list, c.Changes[i])
		}
	}
	c.Changes = list
	return c, b, nil
}

func (c *Comparison) isSettled(ch *Change, b *base) (bool, error) {
	e := b.entries[ch.Path]
	if e == nil || e.Settled == nil || ch.New == nil {
		return false, nil
	}
	p, err := printOf(c.tops[ch.New.layer], ch.Path)
	return p == *e.Settled, err
}

// Remember takes down the state of what a workspace changed, in the directory
// that it lies on, unless that was done before. It is called after each run.
func Remember(d *delta.Delta) (*Comparison, error) {
	c, b, err := compareWorkspace(d)
	if err != nil || d.Live() == "" {
		return c, err
	}
	if err := c.remember(b, d); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Comparison) remember(b *base, d *delta.Delta) error {
	source := c.bottoms[0]
	now := make(map[string]bool, len(c.Changes))
	for i := range c.Changes {
		ch := &c.Changes[i]
		now[ch.Path] = true
		if b.entries[ch.Path] != nil {
			continue
		}
		p, err := printOf(source, ch.Path)
		if err != nil && !errors.Is(err, unix.EXDEV) {
			return err
		}
		e := &baseEntry{Path: []byte(ch.Path), Print: p, Late: p.isLate(d.Record.Started)}
		if ch.Kind == Changed && !e.Late {
			if err := b.keep(e, source, ch.Path); err != nil {
				return err
			}
		}
		b.entries[ch.Path] = e
	}
	for path, e := range b.entries {
		if !now[path] && e.Settled == nil {
			delete(b.entries, path)
		}
	}
	return b.save()
}

// Inherit lets a workspace that was forked from another know what that one knows
// of the directory that both lie on.
func Inherit(to, from *delta.Delta) error {
	b, err := loadBase(from)
	if err != nil || len(b.entries) == 0 {
		return err
	}
	old, err := os.Open(b.dir)
	if err != nil {
		return err
	}
	defer old.Close()
	dir := to.Dir() + "/base"
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	now, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer now.Close()
	return tree.Copy(now, old, tree.CopyOptions{})
}

// CanUndo says whether an apply can be undone.
func CanUndo(d *delta.Delta) bool { return journalOf(d, root{}).has("done") }

// passing marks a workspace that nobody gave a name to go on with.
const passing = "/passing"

// SetPassing says whether a workspace may go once everything in it was applied.
func SetPassing(d *delta.Delta, is bool) error {
	if is {
		return os.WriteFile(d.Dir()+passing, nil, 0o600)
	}
	if err := os.Remove(d.Dir() + passing); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IsSpent says whether a passing workspace is only kept so that its apply can be
// undone.
func IsSpent(d *delta.Delta) bool {
	if _, err := os.Lstat(d.Dir() + passing); err != nil || !CanUndo(d) {
		return false
	}
	c, err := Of(d)
	if err != nil {
		return false
	}
	defer c.Close()
	return len(c.Changes) == 0
}

// replaceFile writes a file that is there as a whole or not at all, also after a
// crash of the machine.
func replaceFile(dir, name string, data []byte) error {
	temporary := dir + "/" + name + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, dir+"/"+name); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncAll waits until everything of a directory's file system is on the disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// syncDir waits until a file, or the names in a directory, are on the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
