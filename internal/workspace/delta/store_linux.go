package delta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

var (
	// ErrBusy is returned for a workspace that somebody else uses.
	ErrBusy = errors.New("in use")
	// ErrExists is returned for a name that is taken.
	ErrExists = errors.New("exists already")
	// ErrNotFound is returned for a workspace that does not exist.
	ErrNotFound = errors.New("there is no such workspace")
)

// Variable names the directory of workspaces, for tests and servers.
const Variable = "BAILEY_DATA"

// Store is a place where workspaces are.
type Store struct{ dir string }

// Place is where the caller's workspaces are: what $BAILEY_DATA says, or bailey in
// the directory of the user's data. Without a home directory there is none: a
// relative path would take it from the project.
func Place(home string) (Store, error) {
	if dir := os.Getenv(Variable); dir != "" {
		if !filepath.IsAbs(dir) {
			return Store{}, fmt.Errorf("%s=%s: must be an absolute path", Variable, dir)
		}
		return At(dir), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return At(filepath.Join(dir, "bailey")), nil
	}
	if !filepath.IsAbs(home) {
		return Store{}, errors.New("no home directory to keep workspaces in; set " + Variable)
	}
	return At(filepath.Join(home, ".local/share/bailey")), nil
}

// At is the store in a directory, which need not exist yet.
func At(dir string) Store { return Store{filepath.Clean(dir)} }

// Dir is the directory of everything.
func (s Store) Dir() string { return s.dir }

// LayerTree is where the files of a layer are.
func (s Store) LayerTree(id string) string { return s.layer(id) + "/tree" }

func (s Store) layer(id string) string       { return s.dir + "/layers/" + id }
func (s Store) workspace(name string) string { return s.dir + "/workspaces/" + name }

// Make makes the directories that are missing. Others must not be able to look
// in: a layer holds programs with the modes they had.
func (s Store) Make() error {
	for _, dir := range []string{"/workspaces", "/layers", "/codebases", "/tmp"} {
		if err := os.Mkdir(s.dir+dir, 0o700); err == nil || errors.Is(err, os.ErrExist) {
			continue
		}
		if err := os.MkdirAll(s.dir+dir, 0o700); err != nil {
			return fmt.Errorf("the directory of workspaces: %w", err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(s.dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: s.dir, Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s: others can look into it, or it belongs to somebody else; chmod 700 it, or set %s", s.dir, Variable)
	}
	return nil
}

// Options say how a workspace is made.
type Options struct {
	Name   string   // empty: a name is found
	Stack  []Lower  // top first
	Base   []string // see Record
	Source string   // see Record
	Target string   // where it is seen inside
	State  State    // empty: Running. A DryRun has no name and goes with its owner
}

// Create makes a workspace and holds it for its caller alone. It does not wait
// for the disk: see Delta.Sync.
func (s Store) Create(o Options) (*Delta, error) {
	if o.State == "" {
		o.State = Running
	}
	if o.Name != "" {
		if err := ValidName(o.Name); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkStack(o.Stack), checkBase(o.Base)); err != nil {
		return nil, err
	}
	if err := s.Make(); err != nil {
		return nil, err
	}
	if err := s.apart(o.Stack[len(o.Stack)-1].Dir); err != nil {
		return nil, err
	}
	named := slices.Clone(o.Stack)
	for _, id := range o.Base {
		named = append(named, Lower{Layer: id})
	}
	release, err := s.holdLayers(named)
	if err != nil {
		return nil, err
	}
	defer release()
	for attempt := 0; ; attempt++ {
		d, err := s.create(o, attempt)
		if err == nil || o.Name != "" || attempt == 100 || !errors.Is(err, ErrExists) {
			return d, err
		}
	}
}

// apart refuses a directory that holds the workspaces: the kernel would refuse
// it with a word about symbolic links.
func (s Store) apart(dir string) error {
	if dir == "" {
		return nil
	}
	outer, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	inner, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return err
	}
	if outer == inner || outer == "/" || strings.HasPrefix(inner, outer+"/") || strings.HasPrefix(outer, inner+"/") {
		return fmt.Errorf("%s cannot be overlaid: workspaces are kept in %s; set %s to a directory elsewhere", dir, s.dir, Variable)
	}
	return nil
}

func (s Store) create(o Options, attempt int) (*Delta, error) {
	if o.Name == "" {
		o.Name = makeName(attempt)
	}
	scratch, err := s.Scratch(o.Name)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	d := &Delta{store: s, dir: scratch.Path(), scratch: scratch, exclusive: true}
	d.Record = Record{
		Name: o.Name, Owner: os.Geteuid(), Created: now, Started: now,
		Target: o.Target, State: o.State, Stack: slices.Clone(o.Stack), Base: slices.Clone(o.Base), Source: o.Source,
	}
	if err = d.furnish(); err == nil && o.State != DryRun {
		fault.Step("create: made")
		err = d.settle()
		fault.Step("create: in place")
	}
	if err != nil {
		d.unlock()
		_ = scratch.Discard()
		return nil, err
	}
	return d, nil
}

// Mode says what somebody wants to do with a workspace.
type Mode int

const (
	// Read lets others read, too.
	Read Mode = iota
	// Write keeps everybody else out: for a run, and whatever changes it.
	Write
)

// Open holds a workspace that exists, and finishes what was cut short in it. It
// does not wait for others.
func (s Store) Open(name string, mode Mode) (*Delta, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	d := &Delta{store: s, dir: s.workspace(name), exclusive: mode == Write}
	if err := d.lock(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	err := d.load()
	if err == nil && d.Record.unfinished() {
		if !d.exclusive { // a reader finds it as it will be once somebody finishes
			d.unlock()
			return s.finish(name)
		}
		err = d.recover()
	}
	if err != nil {
		d.unlock()
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	return d, nil
}

// finish opens a workspace alone, which finishes what was cut short, and then for
// reading.
func (s Store) finish(name string) (*Delta, error) {
	d, err := s.Open(name, Write)
	if err != nil {
		return nil, err
	}
	d.Close()
	return s.Open(name, Read)
}

// Listed is a workspace as List finds it.
type Listed struct {
	Record
	InUse bool  // somebody holds it now
	Err   error // its record cannot be read; only the name is known
}

// Interrupted says whether the sandbox that ran in it was killed.
func (l *Listed) Interrupted() bool { return l.State == Running && !l.InUse && l.Err == nil }

// List returns all workspaces, sorted by name.
func (s Store) List() ([]Listed, error) {
	entries, err := os.ReadDir(s.dir + "/workspaces")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, e := range entries {
		if ValidName(e.Name()) != nil {
			continue
		}
		l, err := s.look(e.Name())
		if errors.Is(err, ErrNotFound) {
			continue // it went meanwhile
		}
		l.Err, l.Name = err, e.Name()
		list = append(list, l)
	}
	return list, nil
}

// look reads a record without holding the workspace: a record is replaced as a
// whole.
func (s Store) look(name string) (Listed, error) {
	d := &Delta{store: s, dir: s.workspace(name)}
	if err := d.load(); err != nil {
		return Listed{}, err
	}
	return Listed{Record: d.Record, InUse: d.inUse()}, nil
}

// Peek returns a workspace that somebody else may hold. Nothing can be done with it
// but to look: what is in it may change at any time.
func (s Store) Peek(name string) (*Delta, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	d := &Delta{store: s, dir: s.workspace(name)}
	if err := d.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Records returns the records of all workspaces, those of dry runs and of such as
// are just made included. One that cannot be read is an error.
func (s Store) Records() ([]Record, error) {
	var list []Record
	for _, below := range []string{"/workspaces/", "/tmp/"} {
		entries, err := os.ReadDir(s.dir + below)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			data, err := os.ReadFile(s.dir + below + e.Name() + "/record")
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
				continue // removed meanwhile, or something else
			}
			if err != nil {
				return nil, err
			}
			r, err := parseRecord(data)
			if err != nil {
				return nil, fmt.Errorf("%s%s%s/record: %w", s.dir, below, e.Name(), err)
			}
			list = append(list, r)
		}
	}
	return list, nil
}

// Sweep removes what killed processes left half made, and deltas of dry runs.
// Whoever makes something there holds a lock, which goes with its owner.
func (s Store) Sweep() error {
	tmp, err := os.Open(s.dir + "/tmp")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer tmp.Close()
	names, err := tmp.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return err
	}
	// Nobody is between making a directory there and locking it.
	if unix.Flock(int(tmp.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // the next one sweeps
	}
	defer func() { _ = unix.Flock(int(tmp.Fd()), unix.LOCK_UN) }()
	for _, name := range names {
		if err := sweepOne(tmp, name); err != nil {
			return err
		}
	}
	return nil
}

func sweepOne(tmp *os.File, name string) error {
	fd, err := unix.Openat(int(tmp.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		defer unix.Close(fd)
		if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil
		}
	}
	err = tree.Remove(tmp, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // what dies with its killed owner is still at it: the next one sweeps
	}
	return err
}

// Scratch is a directory in which something is made before it is put in its
// place. It is held by a lock on itself.
type Scratch struct {
	dir  *os.File
	path string
}

// Scratch makes an empty directory whose name begins with the given one.
func (s Store) Scratch(name string) (*Scratch, error) {
	tmp, err := os.Open(s.dir + "/tmp")
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	if err := flock(int(tmp.Fd()), unix.LOCK_SH); err != nil {
		return nil, &os.PathError{Op: "lock", Path: tmp.Name(), Err: err}
	}
	base := s.dir + "/tmp/" + name + "." + strconv.Itoa(os.Getpid()) + "."
	for n := 0; ; n++ {
		path := base + strconv.Itoa(n)
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		dir, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if err := flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
			_ = dir.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		return &Scratch{dir, path}, nil
	}
}

// Path is where it is.
func (c *Scratch) Path() string { return c.path }

// Dir is the directory, open.
func (c *Scratch) Dir() *os.File { return c.dir }

// Place moves the directory to its place, unless something is there: then the
// error is ErrExists, and the directory stays.
func (c *Scratch) Place(path string) error {
	err := unix.Renameat2(unix.AT_FDCWD, c.path, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if err == unix.EEXIST {
		return ErrExists
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: c.path, New: path, Err: err}
	}
	c.path = path
	return nil
}

// Close lets go of the directory, which must be in its place by now.
func (c *Scratch) Close() { _ = c.dir.Close() }

// Discard removes the directory with everything in it.
func (c *Scratch) Discard() error {
	defer c.Close()
	dir, name := filepath.Split(c.path)
	return removeAt(strings.TrimSuffix(dir, "/"), name)
}

func removeAt(dir, name string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return tree.Remove(d, name)
}

// holdLayers keeps layers from being removed until there is a record that names
// them, and checks that they are there.
func (s Store) holdLayers(named []Lower) (release func(), err error) {
	if !slices.ContainsFunc(named, func(l Lower) bool { return l.Layer != "" }) {
		return func() {}, nil
	}
	release, err = s.LockLayers(false)
	if err != nil {
		return nil, err
	}
	for _, l := range named {
		if l.Layer == "" {
			continue
		}
		if _, err := os.Stat(s.LayerTree(l.Layer)); err != nil {
			release()
			return nil, fmt.Errorf("layer %s: %w", l.Layer, err)
		}
	}
	return release, nil
}

// LockLayers keeps layers from being removed, or, alone, others from naming them
// in records.
func (s Store) LockLayers(alone bool) (release func(), err error) {
	dir, err := os.Open(s.dir + "/layers")
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	if err := flock(int(dir.Fd()), how); err != nil {
		_ = dir.Close()
		return nil, &os.PathError{Op: "lock", Path: dir.Name(), Err: err}
	}
	return func() { _ = dir.Close() }, nil
}

// flock is what flock(2) says, whatever signals arrive.
func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}
