package workspace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Progress is told how many files, and how many bytes of content, there are so
// far.
type Progress func(files, bytes int64)

// ImportOptions say how a codebase is imported.
type ImportOptions struct {
	Name     string
	Source   string // for people
	Progress Progress

	// Of directories.
	dir       []byte                 // see Codebase
	GitIgnore bool                   // leave out what git would ignore
	Left      func(path, why string) // told of what cannot be imported: sockets, the store

	// Of repositories.
	History bool // with .git, as in a clone

	// Of archives.
	Form   archive.Form
	Limits archive.Limits // of bytes at most what is free on the disk
}

// ImportDirectory makes a codebase of a directory. Where the file system can, the
// files share their blocks with those of the directory. The store itself is left
// out where the directory holds it.
func (s *Store) ImportDirectory(dir string, o ImportOptions) (Codebase, error) {
	from, err := os.Open(dir)
	if err != nil {
		return Codebase{}, err
	}
	defer from.Close()
	if o.Source == "" {
		o.Source, _ = filepath.Abs(dir)
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(from.Fd())))
	if err != nil {
		return Codebase{}, err
	}
	o.dir = []byte(real)
	return s.importLayer(o, func(b *building) error {
		options := tree.CopyOptions{Left: o.Left, Progress: b.count(o.Progress)}
		skip, err := b.apart(from, o.Left)
		if err != nil {
			return err
		}
		options.Skip = skip
		if o.GitIgnore {
			ignored, err := s.newIgnored(dir)
			if err != nil {
				return err
			}
			options.Skip = func(n *tree.Node) bool { return skip(n) || ignored.skip(n) }
		}
		return tree.Copy(b.root, from, options)
	})
}

// apart leaves the store out of a directory that holds it: copied into itself it
// would have no end. What lies in the store around the copy is refused.
func (b *building) apart(from *os.File, left func(path, why string)) (skip func(*tree.Node) bool, err error) {
	type identity struct{ dev, ino uint64 } // whatever path leads there
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: from.Name(), Err: err}
	}
	source := identity{st.Dev, st.Ino}
	var around []identity
	for _, dir := range []string{b.store.Dir(), b.store.Dir() + "/tmp", b.scratch.Path()} {
		if err := unix.Stat(dir, &st); err != nil {
			return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		around = append(around, identity{st.Dev, st.Ino})
	}
	if slices.Contains(around, source) {
		return nil, fmt.Errorf("%s: codebases are kept there, in %s; import another directory", from.Name(), b.store.Dir())
	}
	return func(n *tree.Node) bool {
		if !n.IsDir() || !slices.Contains(around, identity{n.Stat.Dev, n.Stat.Ino}) {
			return false
		}
		if left != nil {
			left(n.Path, "where codebases are kept")
		}
		return true
	}, nil
}

// ImportArchive makes a codebase of a tar archive, which may be compressed.
func (s *Store) ImportArchive(r io.Reader, o ImportOptions) (Codebase, error) {
	if err := s.withinFree(&o.Limits); err != nil {
		return Codebase{}, err
	}
	return s.importLayer(o, func(b *building) error {
		return archive.Read(r, b.root, archive.ReadOptions{Form: o.Form, Limits: o.Limits, Progress: b.count(o.Progress)})
	})
}

// importLayer makes a codebase of one layer, which fill fills.
func (s *Store) importLayer(o ImportOptions, fill func(*building) error) (Codebase, error) {
	if err := s.checkNew(o.Name); err != nil {
		return Codebase{}, err
	}
	b, err := s.build()
	if err != nil {
		return Codebase{}, err
	}
	defer b.discard()
	fault.Step("import: begun")
	if err := fill(b); err != nil {
		return Codebase{}, err
	}
	fault.Step("import: filled")
	if err := b.byContent(); err != nil {
		return Codebase{}, err
	}
	if o.dir == nil { // files of a directory share blocks with that
		b.share()
	}
	release, err := s.LockLayers(false)
	if err != nil {
		return Codebase{}, err
	}
	defer release()
	if err := b.place(); err != nil {
		return Codebase{}, err
	}
	return s.saveCodebase(Codebase{Name: o.Name, Source: o.Source, Dir: o.dir, Layers: []string{b.layer.ID}})
}

// withinFree lowers a limit to what is free on the disk.
func (s *Store) withinFree(l *archive.Limits) error {
	free, err := s.free()
	if err == nil && (l.Bytes == 0 || l.Bytes > free) {
		l.Bytes = free
	}
	return err
}

// free is how much this user can still write to the disk.
func (s *Store) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.Dir(), &st); err != nil {
		return 0, fmt.Errorf("%s: %w", s.Dir(), err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
