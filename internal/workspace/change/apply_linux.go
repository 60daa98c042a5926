package change

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// MergeMode says what Apply does where others changed a file as well.
type MergeMode int

const (
	// Refuse applies nothing.
	Refuse MergeMode = iota
	// Clean puts both changes together where they are of different lines, and
	// applies nothing where they are not.
	Clean
	// Markers writes both versions of such lines, with marks around them.
	Markers
)

// Options say what Apply does.
type Options struct {
	Paths []string // what is applied; empty for everything
	Merge MergeMode
	// Guard says why nothing of a sandbox's may come to a path of the directory, or "".
	// A workspace on a codebase was written where other paths are protected.
	Guard func(path string, isDir bool) string
}

// Result is what Apply did.
type Result struct {
	Applied []Change
	Merged  []string // paths where others' changes were kept as well
	Marked  []string // of these, those that have marks in them
	Left    []string // what cannot be carried over: sockets, devices
	Parted  []string // names that shared a file with others, and have one of their own now
}

// Clash is a path that others changed as well.
type Clash struct {
	Path string
	Why  string
	// Mergeable says that the version that both have changed is known, and is text.
	Mergeable bool
}

// Conflict is the error of Apply and Undo where others changed what they would
// change. Nothing was done.
type Conflict struct {
	Dir     string
	Clashes []Clash
}

func (c *Conflict) Error() string {
	var b strings.Builder
	b.WriteString("nothing was done, since files in " + plain.Text(c.Dir) + " were changed meanwhile:")
	for _, k := range c.Clashes {
		b.WriteString("\n  " + plain.Word(k.Path) + " " + k.Why)
	}
	return b.String()
}

// Apply carries the changes of a workspace, which must be open for writing, over
// to the directory that it lies on, or that its codebase was imported from: all of
// them, or if anything is in the way, none. Each file is replaced as a whole, and nothing outside of the directory is
// touched, whatever links are in it.
func Apply(d *delta.Delta, o Options) (*Result, error) {
	if d.Source() == "" {
		return nil, errors.New("workspace " + d.Record.Name + " lies on layers that were not imported from a directory, so there is none that it could be applied to; see: bailey ws export, or: bailey ws diff --patch")
	}
	if _, err := Recover(d); err != nil {
		return nil, err
	}
	c, b, err := compareWorkspace(d)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	source := c.bottoms[0]
	if isImported(d) {
		if source, err = c.imported(d); err != nil {
			return nil, err
		}
	}
	if err := checkPlace(d, source); err != nil {
		return nil, err
	}
	a := &applying{Comparison: c, base: b, delta: d, options: o, source: source, result: &Result{}, selected: make(map[string]*Change)}
	if err := a.run(); err != nil {
		return nil, err
	}
	return a.result, nil
}

type applying struct {
	*Comparison
	base    *base
	delta   *delta.Delta
	options Options
	source  root
	result  *Result
	// selected are the changes by their paths, of a workspace on a codebase.
	selected map[string]*Change
	wishes   []wish
	clashes  []Clash
	guarded  []string
	alike    []*record // what the directory has already
}

func (a *applying) run() error {
	defer func() {
		for i := range a.wishes {
			a.wishes[i].close()
		}
	}()
	selected := Select(a.Changes, a.options.Paths)
	if isImported(a.delta) {
		for i := range selected {
			a.selected[selected[i].Path] = &selected[i]
		}
		if err := a.findBuried(); err != nil {
			return err
		}
	}
	for i := range selected {
		if err := a.consider(&selected[i]); err != nil {
			return err
		}
	}
	if len(a.guarded) > 0 {
		return fmt.Errorf("nothing was done, since no sandbox can write these in %s:\n%s", plain.Text(a.source.Name()), strings.Join(a.guarded, "\n"))
	}
	if len(a.clashes) > 0 {
		return &Conflict{a.source.Name(), a.clashes}
	}
	if len(a.wishes) > 0 {
		p, err := journalOf(a.delta, a.source).transact(a.wishes)
		if err != nil {
			return err
		}
		a.result.Parted = p.parted(a.wishes)
	}
	if len(a.alike) == 0 {
		return nil
	}
	return settle(a.delta, a.source, a.alike)
}

// consider turns a change into a wish, unless others were faster.
func (a *applying) consider(c *Change) error {
	if c.New != nil && (c.New.Type == Socket || c.New.Type == Device) {
		a.result.Left = append(a.result.Left, c.Path)
		return nil
	}
	if a.options.Guard != nil {
		if why := a.options.Guard(c.Path, c.New != nil && c.New.Type == Dir); why != "" {
			a.guarded = append(a.guarded, "  "+plain.Word(c.Path)+": "+why)
			return nil
		}
	}
	before, err := printOf(a.source, c.Path)
	if errors.Is(err, unix.EXDEV) {
		a.clashes = append(a.clashes, Clash{Path: c.Path, Why: "is on a mount of its own, which the workspace did not show"})
		return nil
	}
	if err != nil {
		return err
	}
	w := wish{path: c.Path, before: before, new: c.New}
	why, err := a.clash(c, &before)
	if err != nil {
		return err
	}
	if why == isAlike {
		a.alike = append(a.alike, &record{Path: []byte(c.Path)})
		return nil
	}
	if why == "" || a.options.Merge == Refuse {
		if why != "" {
			old, err := a.common(c, &before)
			a.clashes = append(a.clashes, Clash{Path: c.Path, Why: why, Mergeable: old != nil && isText(old)})
			return err
		}
		err = a.fill(&w, c)
	} else {
		err = a.merge(&w, c, why)
	}
	if err != nil {
		return err
	}
	a.wishes = append(a.wishes, w)
	a.result.Applied = append(a.result.Applied, *c)
	return nil
}

// clash says why a file is not what the workspace changed; empty if it is.
func (a *applying) clash(c *Change, now *Print) (string, error) {
	e := a.base.entries[c.Path]
	switch {
	case e == nil && isImported(a.delta):
		return a.sinceImport(c)
	case e == nil && now.isLate(a.delta.Record.Started):
		return wasChanged, nil
	case e == nil:
		return "", nil
	case e.Late:
		return "was changed while the command ran", nil
	case *now == e.Print:
		return "", nil
	case now.Type == "":
		return wasRemoved, nil
	case e.Print.Type == "":
		return wasMade, nil
	}
	return wasChanged, nil
}

// What others did to a file.
const (
	wasChanged = "was changed"
	wasRemoved = "was removed"
	wasMade    = "was made"
	isAlike    = "is what the workspace has" // so that there is nothing to do
)

// fill opens the workspace's version.
func (s *Comparison) fill(w *wish, c *Change) error {
	if c.New == nil {
		return nil
	}
	r := s.tops[c.New.layer]
	st, found, err := r.lstat(c.Path)
	if err == nil && !found {
		err = failed("open", c.Path, unix.ENOENT)
	}
	if err != nil {
		return err
	}
	var attrs []tree.Attr
	if c.New.Type == File || c.New.Type == Dir {
		if attrs, err = attrsOf(r, c.Path); err != nil {
			return err
		}
	}
	w.meta = tree.MetaOf(&st, attrs)
	if c.New.Type != File {
		return nil
	}
	if c.Old == nil || c.Old.Type != File {
		w.meta.Mode &= 0o777 // nobody but a person makes programs that run as their owner
	} else {
		w.meta.Mode &= 0o777 | c.Old.Mode
	}
	w.open = func() (*os.File, error) { return r.open(c.Path) }
	if st.Nlink > 1 {
		w.inode = inode{st.Dev, st.Ino}
	}
	return nil
}

func attrsOf(r root, name string) ([]tree.Attr, error) {
	fd, err := openAt(int(r.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, failed("open", name, err)
	}
	defer unix.Close(fd)
	return tree.Attrs(fd, tree.Kept)
}

// version is one side of a change, to be merged.
type version struct {
	of     *Comparison
	change *Change
	side   *Entry
}

const notText = ", and is not text that could be merged"

// readTexts reads versions of a text. Where they cannot be merged it says why.
func readTexts(list ...version) (texts [][]byte, not string, err error) {
	for _, v := range list {
		data, err := v.of.read(v.change, v.side, maxText)
		switch {
		case errors.Is(err, errLarge):
			return nil, ", and is too large to be merged", nil
		case err != nil:
			return nil, "", err
		case !isText(data):
			return nil, notText, nil
		}
		texts = append(texts, data)
	}
	return texts, "", nil
}

// common is the version of a file that both have changed; nil if it is not known.
func (a *applying) common(c *Change, now *Print) ([]byte, error) {
	if c.Kind != Changed || now.Type != File {
		return nil, nil
	}
	if a.base.entries[c.Path] != nil || !isImported(a.delta) {
		return a.base.content(c.Path)
	}
	data, err := a.read(c, c.Old, maxText)
	if errors.Is(err, errLarge) {
		return nil, nil
	}
	return data, err
}

// merge puts the workspace's change and that of others together.
func (a *applying) merge(w *wish, c *Change, why string) error {
	clash := func(more string) {
		a.clashes = append(a.clashes, Clash{Path: c.Path, Why: why + more})
	}
	old, err := a.common(c, &w.before)
	if err != nil {
		return err
	}
	if old == nil {
		clash(", and there is no common version to merge from")
		return nil
	}
	theirs := a.theirs(c)
	texts, not, err := readTexts(version{a.Comparison, c, c.New}, version{a.Comparison, theirs, theirs.Old})
	if err != nil {
		return err
	}
	if not == "" && !isText(old) {
		not = notText
	}
	if not != "" {
		clash(not)
		return nil
	}
	merged, conflict := Merge(old, texts[0], texts[1])
	if conflict && a.options.Merge != Markers {
		clash(" in the same lines")
		return nil
	}
	if err := a.fill(w, c); err != nil {
		return err
	}
	w.open, w.content, w.inode = nil, bytes.NewReader(merged), inode{}
	a.result.Merged = append(a.result.Merged, c.Path)
	if conflict {
		a.result.Marked = append(a.result.Marked, c.Path)
	}
	return nil
}

// checkPlace makes sure that a workspace's directory is where it was: its path has
// no links in it.
func checkPlace(d *delta.Delta, source root) error {
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(source.Fd())))
	if err == nil && real != d.Source() {
		err = errors.New("workspace " + d.Record.Name + ": " + plain.Text(d.Source()) + " leads to " + plain.Text(real) + " now; put the directory back in its place")
	}
	return err
}

// settle takes down that what was applied is no change any more.
func settle(d *delta.Delta, source root, records []*record) error {
	tops, err := openAll(shownBy(d))
	defer closeAll(tops)
	if err != nil {
		return err
	}
	b, err := loadBase(d)
	if err != nil {
		return err
	}
	for _, r := range records {
		name := string(r.Path)
		e := &baseEntry{Path: r.Path}
		if e.Print, err = printOf(source, name); err != nil {
			return err
		}
		f, done, err := levelOf(tops).find(name)
		done()
		if err != nil {
			return err
		}
		if f.there {
			now := printStat(&f.st)
			e.Settled = &now
			if now.Type == File {
				if err := b.keep(e, tops[f.layer], name); err != nil {
					return err
				}
			}
		}
		b.entries[name] = e
	}
	if err := b.refresh(source, records); err != nil {
		return err
	}
	return b.save()
}

// topmost finds the layer that shows a path.
func topmost(tops []root, name string) *root {
	for i := range tops {
		st, found, err := tops[i].lstat(name)
		if err == nil && found {
			if isWhiteout(&st) {
				return nil
			}
			return &tops[i]
		}
	}
	return nil
}

// wish is a path and what shall be there.
type wish struct {
	path   string
	before Print
	new    *Entry // nil: nothing
	meta   tree.Meta
	// Of a regular file, one of these.
	open    func() (*os.File, error)
	content io.Reader
	inode   inode // of a file with several names
}

type inode struct{ dev, ino uint64 }

func (w *wish) close() {
	if f, ok := w.content.(io.Closer); ok {
		_ = f.Close()
	}
}

// make makes what is wished for under a name in a directory, complete, and if sync
// is set on the disk.
func (w *wish) make(dir int, name string, sync bool) error {
	switch w.new.Type {
	case Link:
		if err := unix.Symlinkat(w.new.Target, dir, name); err != nil {
			return failed("symlink", w.path, err)
		}
		return w.meta.SetLink(dir, name, true)
	case Fifo:
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return failed("mkfifo", w.path, err)
		}
		return w.meta.SetLink(dir, name, false)
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return failed("create", w.path, err)
	}
	to := os.NewFile(uintptr(fd), w.path)
	defer to.Close()
	if err := w.copyTo(to); err != nil {
		return failed("copy", w.path, err)
	}
	if err := w.meta.Set(fd); err != nil {
		return failed("copy", w.path, err)
	}
	if !sync {
		return nil
	}
	return to.Sync()
}

func (w *wish) copyTo(to *os.File) error {
	if w.open == nil {
		_, err := io.Copy(to, w.content)
		return err
	}
	from, err := w.open()
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return new(tree.Copier).Copy(to, from, info.Size())
}

func journalOf(d *delta.Delta, source root) *journal {
	return &journal{delta: d, dir: d.Dir() + "/journal", source: source, stage: ".bailey-apply-" + d.Record.Name}
}

// transact grants wishes: all or none.
func (j *journal) transact(wishes []wish) (*plan, error) {
	if err := j.begin(); err != nil {
		return nil, err
	}
	p, err := j.prepare(wishes)
	if err == nil {
		err = j.commit(p)
	}
	if err != nil {
		return nil, errors.Join(err, j.remove("plan"), j.clear())
	}
	if _, err := j.forward(p, true); err != nil {
		return nil, j.giveUp(p, err)
	}
	return p, j.finish(p)
}

// giveUp undoes the part of a plan that was done.
func (j *journal) giveUp(p *plan, cause error) error {
	if err := j.write("back", true); err != nil {
		return errors.Join(cause, err)
	}
	left, err := j.back(p)
	if err != nil {
		return errors.Join(cause, err)
	}
	if len(left) > 0 {
		cause = fmt.Errorf("%w; and changed by somebody, so that they could not be put back: %s", cause, names(left))
	}
	if err := j.sync(p); err != nil {
		return errors.Join(cause, err)
	}
	return errors.Join(cause, j.end(p))
}

// end forgets a plan that was undone: what it changed are changes again. What
// says in which direction it goes is the last to go.
func (j *journal) end(p *plan) error {
	if err := unsettle(j.delta, j.source, p); err != nil {
		return err
	}
	for _, name := range []string{"done", "plan", "back"} {
		if err := j.remove(name); err != nil {
			return err
		}
		fault.Step("undo: removed " + name)
	}
	if err := j.unstage(); err != nil {
		return err
	}
	return j.remove("undo")
}

// finish takes down what is there now, for Undo.
func (j *journal) finish(p *plan) error {
	for _, r := range p.Records {
		var err error
		if r.After, err = printOf(j.source, string(r.Path)); err != nil {
			return err
		}
	}
	if err := j.sync(p); err != nil {
		return err
	}
	if err := j.write("done", p); err != nil {
		return err
	}
	fault.Step("apply: done")
	return j.close(p)
}

// close forgets that a plan is under way.
func (j *journal) close(p *plan) error {
	if err := settle(j.delta, j.source, p.Records); err != nil {
		return err
	}
	if err := j.remove("plan"); err != nil {
		return err
	}
	fault.Step("apply: plan removed")
	return j.unstage()
}

// sync waits until the names that were changed are on the disk.
func (j *journal) sync(p *plan) error {
	dirs := make(map[string]bool)
	for _, r := range p.Records {
		dirs[path.Dir(string(r.Path))] = true
	}
	for dir := range dirs {
		if err := j.syncNames(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncNames waits until the names in a directory of the source are on the disk.
func (j *journal) syncNames(dir string) error {
	fd, err := openAt(int(j.source.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) {
		return nil // it was removed, or may not be read
	}
	if err != nil {
		return failed("open", dir, err)
	}
	err = unix.Fsync(fd)
	_ = unix.Close(fd)
	if err != nil {
		return failed("fsync", dir, err)
	}
	return nil
}

// prepare saves what will be replaced, stages what replaces it, and writes down
// the steps. It changes nothing that anybody sees but the staging directory.
func (j *journal) prepare(wishes []wish) (*plan, error) {
	p := &plan{Source: j.source.Name(), Stage: j.stage}
	if err := j.saveAll(p, wishes); err != nil {
		return nil, err
	}
	fault.Step("apply: saved")
	staged, err := j.stageAll(wishes)
	if err != nil {
		return nil, err
	}
	fault.Step("apply: staged")
	p.plan(wishes, staged)
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Op == opPut {
			if s.Put, err = printOf(j.source, j.stage+"/"+s.Staged); err != nil {
				return nil, err
			}
		}
	}
	for _, dir := range []string{j.dir + "/undo.new", j.source.Name() + "/" + j.stage} {
		if err := flush(dir, len(wishes) > fewFiles); err != nil {
			return nil, err
		}
	}
	return p, j.syncNames(".") // of the staging directory
}

// fewFiles is up to how many files it is quicker to wait for each to be on the
// disk than for everything that the file system has still to write.
const fewFiles = 100

// flush waits until a directory is on the disk, or all of its file system.
func flush(dir string, all bool) error {
	if all {
		return syncAll(dir)
	}
	return syncDir(dir)
}

func (j *journal) saveAll(p *plan, wishes []wish) error {
	for i := range wishes {
		w := &wishes[i]
		r := &record{Path: []byte(w.path), Before: w.before}
		p.Records = append(p.Records, r)
		if r.Before.Type == "" {
			continue
		}
		if err := j.save(r, strconv.Itoa(i), len(wishes) <= fewFiles); err != nil {
			return err
		}
	}
	j.findTwins(p)
	return nil
}

// save copies what is there, and makes sure that it is what was judged.
func (j *journal) save(r *record, name string, sync bool) error {
	file := string(r.Path)
	st, _, err := j.source.lstat(file)
	if err != nil {
		return err
	}
	var attrs []tree.Attr
	switch r.Before.Type {
	case Link:
		text, err := j.source.readlink(file)
		if err != nil {
			return err
		}
		r.Target = []byte(text)
	case Dir, File:
		if attrs, err = attrsOf(j.source, file); err != nil {
			return err
		}
	}
	meta := tree.MetaOf(&st, attrs)
	r.Meta = &meta
	if r.Before.Type == File {
		if err := j.copyOld(file, name, st.Size, sync); err != nil {
			return err
		}
		r.Saved = name
		if st.Nlink > 1 {
			r.Links = uint64(st.Nlink)
		}
	}
	if now, err := printOf(j.source, file); err != nil || now != r.Before {
		return errors.Join(err, failed("save", file, errors.New("it was changed just now")))
	}
	return nil
}

func (j *journal) copyOld(file, name string, size int64, sync bool) error {
	from, err := j.source.open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(j.dir+"/undo.new/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := new(tree.Copier).Copy(to, from, size); err != nil {
		return failed("copy", file, err)
	}
	if !sync {
		return nil
	}
	return to.Sync()
}

// stageAll makes the new files, and returns their names in the staging directory.
func (j *journal) stageAll(wishes []wish) (staged []string, err error) {
	dir, err := openAt(int(j.source.Fd()), j.stage, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	staged = make([]string, len(wishes))
	first := make(map[inode]string)
	for i := range wishes {
		w := &wishes[i]
		if w.new == nil || w.new.Type == Dir || w.keepsContent() {
			continue
		}
		staged[i] = strconv.Itoa(i)
		if other := first[w.inode]; other != "" && w.inode != (inode{}) {
			if err := unix.Linkat(dir, other, dir, staged[i], 0); err != nil {
				return nil, failed("link", w.path, err)
			}
			continue
		}
		if err := w.make(dir, staged[i], len(wishes) <= fewFiles); err != nil {
			return nil, err
		}
		first[w.inode] = staged[i]
	}
	return staged, nil
}

// keepsContent says whether only the mode, owner or attributes of a file change.
func (w *wish) keepsContent() bool { return w.metaOnly() && w.new.Type != Link }

func (w *wish) metaOnly() bool {
	return w.new != nil && w.before.Type == w.new.Type && w.open == nil && w.content == nil
}

// plan orders the steps: what is removed, the deepest first; what is made, a
// directory before what is in it; and last the modes of directories, which may
// keep their owner out.
func (p *plan) plan(wishes []wish, staged []string) {
	add := func(o op, i int, m *tree.Meta) {
		p.Steps = append(p.Steps, step{Op: o, Record: i, Staged: staged[i], Meta: m})
	}
	for i := len(wishes) - 1; i >= 0; i-- {
		w := &wishes[i]
		wasDir, isDir := w.before.Type == Dir, w.new != nil && w.new.Type == Dir
		switch {
		case wasDir && !isDir:
			add(opRmdir, i, nil)
		case w.before.Type != "" && !wasDir && (w.new == nil || isDir):
			add(opRemove, i, nil)
		}
	}
	for i := range wishes {
		w := &wishes[i]
		switch {
		case w.new == nil:
		case staged[i] != "":
			add(opPut, i, nil)
		case w.new.Type == Dir && w.before.Type != Dir:
			add(opMkdir, i, nil)
		case w.new.Type != Dir:
			add(opMeta, i, &w.meta)
		}
	}
	for i := len(wishes) - 1; i >= 0; i-- {
		if w := &wishes[i]; w.new != nil && w.new.Type == Dir {
			add(opMeta, i, &w.meta)
		}
	}
}

// Recover finishes an apply or undo of a workspace that was cut short, and returns
// the files that somebody changed since, which it left alone.
func Recover(d *delta.Delta) (left []string, err error) {
	j := journalOf(d, root{})
	if !j.has("plan") && !j.has("begun") && !j.has("back") {
		return nil, nil
	}
	if j.source, err = openRoot(d.Source()); err != nil {
		return nil, err
	}
	defer j.source.Close()
	var p plan
	there, err := j.read("plan", &p)
	switch {
	case err != nil:
		return nil, err
	case !there && j.has("back"):
		return nil, j.end(&p)
	case !there:
		return nil, j.clear()
	}
	if err := j.adopt(); err != nil {
		return nil, err
	}
	if j.has("back") {
		if left, err = j.back(&p); err == nil {
			err = j.end(&p)
		}
		return left, err
	}
	if j.has("done") { // only the plan was still to be removed
		return nil, j.close(&p)
	}
	if left, err = j.forward(&p, false); err != nil {
		return left, j.giveUp(&p, err)
	}
	return left, j.finish(&p)
}

// Undone is what Undo did.
type Undone struct {
	Paths []string
	Alone []string // of these, files that share nothing any more with other names that they had
}

// Undo puts back what the last apply of a workspace, which must be open for
// writing, replaced. Where others changed that since, nothing is done.
func Undo(d *delta.Delta) (u Undone, err error) {
	if d.Source() == "" {
		return u, errNothing
	}
	if _, err := Recover(d); err != nil {
		return u, err
	}
	source, err := openRoot(d.Source())
	if err != nil {
		return u, err
	}
	defer source.Close()
	j := journalOf(d, source)
	var p plan
	if there, err := j.read("done", &p); err != nil || !there {
		return u, errors.Join(err, notThere(there))
	}
	if err := errors.Join(checkPlace(d, source), j.check(&p)); err != nil {
		return u, err
	}
	u.Paths = p.paths()
	if err := j.reverse(&p); err != nil {
		return u, err
	}
	u.Alone, err = j.alone(&p)
	return u, err
}

func (p *plan) paths() []string {
	list := make([]string, len(p.Records))
	for i, r := range p.Records {
		list[i] = string(r.Path)
	}
	return list
}

var errNothing = errors.New("nothing was applied that could be undone")

func notThere(there bool) error {
	if there {
		return nil
	}
	return errNothing
}

// check refuses to undo what is not as it was left.
func (j *journal) check(p *plan) error {
	var clashes []Clash
	for _, r := range p.Records {
		now, err := printOf(j.source, string(r.Path))
		if err != nil {
			return err
		}
		if now != r.After {
			clashes = append(clashes, Clash{Path: string(r.Path), Why: "was changed"})
		}
	}
	if len(clashes) > 0 {
		return &Conflict{j.source.Name(), clashes}
	}
	return nil
}

// reverse undoes a plan that was done. It is under way once there is a plan and
// the direction.
func (j *journal) reverse(p *plan) error {
	for _, v := range []struct {
		name  string
		value any
	}{{"begun", j.stage}, {"plan", p}, {"back", true}} {
		if err := j.write(v.name, v.value); err != nil {
			return err
		}
		fault.Step("undo: wrote " + v.name)
	}
	left, err := j.back(p)
	if err != nil {
		return err
	}
	if err := j.sync(p); err != nil {
		return err
	}
	if len(left) > 0 {
		err = fmt.Errorf("changed by somebody just now, so that they could not be put back: %s", names(left))
	}
	return errors.Join(err, j.end(p))
}

// unsettle makes what was undone changes again.
func unsettle(d *delta.Delta, source root, p *plan) error {
	b, err := loadBase(d)
	if err != nil {
		return err
	}
	for _, name := range p.paths() {
		e := &baseEntry{Path: []byte(name)}
		if e.Print, err = printOf(source, name); err != nil {
			return err
		}
		if e.Print.Type == File {
			if err := b.keep(e, source, name); err != nil {
				return err
			}
		}
		b.entries[name] = e
	}
	if err := b.refresh(source, p.Records); err != nil {
		return err
	}
	return b.save()
}

func names(list []string) string {
	quoted := make([]string, len(list))
	for i, name := range list {
		quoted[i] = plain.Word(name)
	}
	return strings.Join(slices.Compact(quoted), ", ")
}
