package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// directory keeps each object in a file.
type directory struct{ root string }

// temporary begins the names of files that are being written. No object can have
// such a name.
const temporary = ".writing~"

// OpenDirectory keeps objects in a directory, which may be one that several
// machines have mounted.
func OpenDirectory(root string) (Store, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	return &directory{root}, nil
}

func (d *directory) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

func (d *directory) Put(ctx context.Context, name string, content io.Reader) error {
	if err := checkName(name); err != nil {
		return err
	}
	dir := filepath.Dir(d.path(name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, withContext(ctx, content))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), d.path(name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d *directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *directory) Has(_ context.Context, name string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, err
	}
	st, err := os.Stat(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && st.Mode().IsRegular(), err
}

func (d *directory) Remove(_ context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (d *directory) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		if e.Type().IsRegular() && strings.HasPrefix(name, prefix) && !strings.HasPrefix(e.Name(), temporary) {
			names = append(names, filepath.ToSlash(name))
		}
		return ctx.Err()
	})
	return names, err
}

// withContext is a reader that ends with a context.
func withContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	in  io.Reader
}

func (r *contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}
