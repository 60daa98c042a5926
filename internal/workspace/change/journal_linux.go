package change

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// journal is where a workspace keeps what it takes to finish an apply that was cut
// short, and to undo one that was not.
//
//	begun  the name of the directory in the source in which new files are staged
//	undo/  copies of what is replaced or removed
//	plan   what is done: while it is there, an apply or undo is under way
//	back   beside a plan: it is being undone
//	done   what was done: the plan of the last apply, for Undo
//
// Writing the plan is the moment from which on everything is done, and before
// which nothing is.
type journal struct {
	delta  *delta.Delta
	dir    string
	source root
	stage  string // name in the source
}

// plan is one apply.
type plan struct {
	Source  string
	Stage   string
	Records []*record
	Steps   []step
}

// record is a path that an apply changes: what was there, and once it is done,
// what is there.
type record struct {
	Path   []byte
	Before Print
	Meta   *tree.Meta `json:",omitempty"` // of what was there
	Target []byte     `json:",omitempty"`
	Saved  string     `json:",omitempty"` // the copy of its content
	// Of a file that is replaced or removed and had several names: how many, and one
	// that is not changed, if there is such in the source.
	Links uint64 `json:",omitempty"`
	Twin  []byte `json:",omitempty"`
	After Print
}

// op is one call that changes the source.
type op string

const (
	opRemove op = "remove"
	opRmdir  op = "rmdir"
	opMkdir  op = "mkdir"
	opPut    op = "put" // a staged file, in the place of what is there
	opMeta   op = "meta"
)

type step struct {
	Op     op
	Record int
	Staged string     `json:",omitempty"`
	Put    Print      // of what is staged
	Meta   *tree.Meta `json:",omitempty"`
}

// path of the record that a step is about.
func (p *plan) path(s *step) string { return string(p.Records[s.Record].Path) }

func (j *journal) write(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replaceFile(j.dir, name, data)
}

// read returns false if there is no such file.
func (j *journal) read(name string, v any) (bool, error) {
	data, err := os.ReadFile(j.dir + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return false, failed("read", j.dir+"/"+name, err)
	}
	return true, nil
}

func (j *journal) has(name string) bool {
	_, err := os.Lstat(j.dir + "/" + name)
	return err == nil
}

func (j *journal) remove(name string) error {
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return tree.Remove(dir, name)
}

// begin makes the places that an apply needs. What an earlier one saved is
// forgotten only when there is a new plan.
func (j *journal) begin() error {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(j.dir)); err != nil {
		return err
	}
	if err := j.write("begun", j.stage); err != nil {
		return err
	}
	fault.Step("apply: begun")
	if err := j.remove("undo.new"); err != nil {
		return err
	}
	if err := os.Mkdir(j.dir+"/undo.new", 0o700); err != nil {
		return err
	}
	if err := tree.Remove(j.source.File, j.stage); err != nil {
		return err
	}
	if err := unix.Mkdirat(int(j.source.Fd()), j.stage, 0o700); err != nil {
		return failed("mkdir", j.source.Name()+"/"+j.stage, err)
	}
	return nil
}

// commit makes a plan what will be done.
func (j *journal) commit(p *plan) error {
	if err := j.remove("done"); err != nil {
		return err
	}
	if err := j.write("plan", p); err != nil {
		return err
	}
	fault.Step("apply: committed")
	return j.adopt()
}

// adopt puts the copies of a committed plan in their place.
func (j *journal) adopt() error {
	if !j.has("undo.new") {
		return nil
	}
	if err := j.remove("undo"); err != nil {
		return err
	}
	return os.Rename(j.dir+"/undo.new", j.dir+"/undo")
}

// clear forgets an apply that was not committed.
func (j *journal) clear() error {
	if err := j.unstage(); err != nil {
		return err
	}
	return j.remove("undo.new")
}

// unstage removes the directory in the source.
func (j *journal) unstage() error {
	if err := tree.Remove(j.source.File, j.stage); err != nil {
		return err
	}
	return j.remove("begun")
}

// forward does what a plan says, from wherever it was cut short. A file that
// somebody changed after the plan was made is not touched: if strict that is an
// error, otherwise such are returned.
func (j *journal) forward(p *plan, strict bool) (left []string, err error) {
	for i := range p.Steps {
		s := &p.Steps[i]
		fault.Step("apply: step " + strconv.Itoa(i))
		changed, err := j.do(p, s)
		if err != nil {
			return left, err
		}
		if changed && strict {
			return left, failed(string(s.Op), p.path(s), errors.New("it was changed just now"))
		}
		if changed {
			left = append(left, p.path(s))
		}
	}
	fault.Step("apply: all steps")
	return left, nil
}

// do makes one step, unless it was made before.
func (j *journal) do(p *plan, s *step) (changed bool, err error) {
	r := p.Records[s.Record]
	name := string(r.Path)
	now, err := printOf(j.source, name)
	if err != nil {
		return false, err
	}
	switch s.Op {
	case opRemove, opRmdir:
		if now.Type == "" || (now.Type == Dir) != (s.Op == opRmdir) {
			return false, nil // a later step may have made another in its place
		}
		if !r.isBefore(&now) {
			return true, nil
		}
		return j.unlink(name, s.Op == opRmdir)
	case opMkdir:
		if now.Type == "" {
			err = j.source.in(name, func(dir int, base string) error { return unix.Mkdirat(dir, base, 0o700) })
		}
		return now.Type != "" && now.Type != Dir, err
	case opPut:
		return j.put(r, s, &now)
	}
	if now.Type == "" || now.Type != r.Before.Type && r.Before.Type != "" && now.Type != Dir {
		return true, nil
	}
	return false, setMeta(j.source, name, s.Meta)
}

// unlink removes a name. A directory in which somebody put something stays.
func (j *journal) unlink(name string, isDir bool) (left bool, err error) {
	flags := 0
	if isDir {
		flags = unix.AT_REMOVEDIR
	}
	err = j.source.in(name, func(dir int, base string) error { return unix.Unlinkat(dir, base, flags) })
	if errors.Is(err, unix.ENOTEMPTY) {
		return true, nil
	}
	if err != nil {
		err = failed("remove", name, err)
	}
	return false, err
}

// put renames a staged file to its place. It was made before if it is not staged
// any more.
func (j *journal) put(r *record, s *step, now *Print) (changed bool, err error) {
	name := string(r.Path)
	staged := j.stage + "/" + s.Staged
	if _, found, err := j.source.lstat(staged); err != nil || !found {
		return false, err
	}
	if !r.isBefore(now) && (now.Type != "" || r.Before.Type != Dir) {
		return true, nil
	}
	return false, j.rename(staged, name)
}

func (j *journal) rename(from, to string) error {
	err := j.source.in(from, func(old int, oldBase string) error {
		return j.source.in(to, func(dir int, base string) error { return unix.Renameat(old, oldBase, dir, base) })
	})
	if err != nil {
		return failed("rename", to, err)
	}
	return nil
}

// back undoes what was done of a plan, from wherever it was cut short, and returns
// what could not be undone because somebody changed it meanwhile.
func (j *journal) back(p *plan) (left []string, err error) {
	if err := unix.Mkdirat(int(j.source.Fd()), j.stage, 0o700); err != nil && err != unix.EEXIST {
		return nil, failed("mkdir", j.source.Name()+"/"+j.stage, err)
	}
	for i := len(p.Steps) - 1; i >= 0; i-- {
		s := &p.Steps[i]
		fault.Step("undo: step " + strconv.Itoa(i))
		changed, err := j.undo(p, s)
		if err != nil {
			return left, err
		}
		if changed {
			left = append(left, p.path(s))
		}
	}
	fault.Step("undo: all steps")
	return left, nil
}

func (j *journal) undo(p *plan, s *step) (changed bool, err error) {
	r := p.Records[s.Record]
	name := string(r.Path)
	now, err := printOf(j.source, name)
	if err != nil {
		return false, err
	}
	switch s.Op {
	case opMkdir:
		if now.Type == Dir && r.Before.Type != Dir {
			return j.unlink(name, true)
		}
	case opRmdir:
		if now.Type == "" {
			err = j.source.in(name, func(dir int, base string) error { return unix.Mkdirat(dir, base, 0o700) })
			if err == nil {
				err = setMeta(j.source, name, r.Meta)
			}
		}
	case opRemove:
		if r.Before.Type == Socket || r.Before.Type == Device {
			return true, nil // nobody can make it again
		}
		if now.Type == "" {
			err = j.restore(p, r)
		}
	case opMeta:
		if r.Meta != nil && now.Type == r.Before.Type {
			err = setMeta(j.source, name, r.Meta)
		}
	case opPut:
		return j.unput(p, s, &now)
	}
	return false, err
}

// unput puts back what a staged file replaced, if that is still what is there.
func (j *journal) unput(p *plan, s *step, now *Print) (changed bool, err error) {
	r := p.Records[s.Record]
	if _, found, err := j.source.lstat(j.stage + "/" + s.Staged); err != nil || found {
		return false, err // it was never put
	}
	isOurs := now.Ino == s.Put.Ino && now.isLike(&s.Put) // numbers of removed files are used again
	isNew := r.Before.Type == "" || r.Before.Type == Dir
	switch {
	case isOurs && isNew:
		return j.unlink(string(r.Path), false)
	case isOurs:
		return false, j.restore(p, r)
	case isNew:
		return now.Type != "" && now.Type != Dir, nil
	}
	return !now.isLike(&r.Before), nil // or undone before
}

// restore makes a file again: by another name that it had, or from what was saved of
// it.
func (j *journal) restore(p *plan, r *record) error {
	const name = "restored"
	fd, err := openAt(int(j.source.Fd()), j.stage, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return failed("open", j.stage, err)
	}
	stage := os.NewFile(uintptr(fd), j.stage)
	defer stage.Close()
	if err := tree.Remove(stage, name); err != nil {
		return err
	}
	if linked, err := j.relink(p, r, fd, name); err != nil {
		return err
	} else if linked {
		return j.rename(j.stage+"/"+name, string(r.Path))
	}
	w := wish{path: string(r.Path), new: &Entry{Type: r.Before.Type, Target: string(r.Target)}, meta: *r.Meta}
	if r.Before.Type == File {
		f, err := os.Open(j.dir + "/undo/" + r.Saved)
		if err != nil {
			return err
		}
		defer f.Close()
		w.content = f
	}
	if err := w.make(fd, name, true); err != nil {
		return err
	}
	return j.rename(j.stage+"/"+name, string(r.Path))
}

// setMeta gives a file its mode, owner, attributes and time.
func setMeta(r root, name string, m *tree.Meta) error {
	if m == nil {
		return nil
	}
	st, found, err := r.lstat(name)
	if err != nil || !found {
		return err
	}
	return r.in(name, func(dir int, base string) error {
		if t := typeOf(st.Mode); t != File && t != Dir {
			return m.SetLink(dir, base, t == Link)
		}
		fd, err := openAt(dir, base, unix.O_RDONLY|unix.O_NONBLOCK)
		if errors.Is(err, unix.EACCES) {
			fd, err = openOwn(dir, base)
		}
		if err != nil {
			return failed("open", name, err)
		}
		defer unix.Close(fd)
		if err := m.Set(fd); err != nil {
			return failed("set", name, err)
		}
		return nil
	})
}

// openOwn opens a file that its owner may not read, once that is allowed. The mode
// is changed through a descriptor, so that it is not that of something put in its
// place.
func openOwn(dir int, name string) (int, error) {
	place, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	self := "/proc/self/fd/" + strconv.Itoa(place)
	if err := unix.Chmod(self, 0o700); err != nil {
		return -1, err
	}
	return unix.Open(self, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}
