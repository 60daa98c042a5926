//go:build unix

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Update is the right to change a store, which one process has at a time.
type Update struct {
	Store
	lock *os.File
}

// Begin takes the right to change a store, which is made if need be, and removes what
// others have left half done.
func (s Store) Begin() (*Update, error) {
	for _, dir := range []string{"trees", "names"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	lock, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	u := &Update{s, lock}
	return u, u.sweep()
}

// Close gives the right back.
func (u *Update) Close() error { return u.lock.Close() }

func (u *Update) sweep() error {
	left, err := filepath.Glob(filepath.Join(u.Dir, "tmp-*"))
	for _, dir := range left {
		err = errors.Join(err, removeAll(dir))
	}
	return err
}

// removeAll removes a directory, also one whose directories nobody may write.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// Has says whether an image is there.
func (u *Update) Has(id string) bool {
	_, err := u.read(id)
	return err == nil
}

// Add makes an image of what fill puts into a directory. It appears as a whole and on
// disk, or not at all.
func (u *Update) Add(i *Image, fill func(root string) error) (err error) {
	tmp, err := os.MkdirTemp(u.Dir, "tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(tmp))
		}
	}()
	root := filepath.Join(tmp, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := fill(root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "lock"), nil, 0o600); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(tmp, "image.json"), i); err != nil {
		return err
	}
	if err := syncAll(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, u.tree(i.ID)); err != nil {
		return err
	}
	return syncAll(filepath.Join(u.Dir, "trees"))
}

// syncAll puts the file system that a directory is on onto disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncFileSystem(f)
}

// Name has a reference stand for an image.
func (u *Update) Name(ref, id string) error {
	file, err := u.nameFile(ref)
	if err != nil {
		return err
	}
	n := name{Ref: ref, ID: id}
	if n.Stamp, err = stampOf(ref); err != nil {
		return err
	}
	if IsPath(ref) {
		if n.Ref, err = filepath.Abs(ref); err != nil {
			return err
		}
	}
	tmp := filepath.Join(u.Dir, "tmp-name")
	if err := writeJSON(tmp, n); err != nil {
		return err
	}
	if err := syncOne(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, file); err != nil {
		return err
	}
	return syncOne(filepath.Dir(file))
}

func writeJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// syncOne waits until a file, or the names in a directory, are on the disk.
func syncOne(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Remove removes an image, and what stands for it. One that is in use is refused.
func (u *Update) Remove(ref string) error {
	id, err := u.resolve(ref)
	if errors.Is(err, ErrNotHere) {
		return fmt.Errorf("%s: there is no such image; see: bailey image list", ref)
	}
	if err != nil {
		return err
	}
	lock, err := os.Open(filepath.Join(u.tree(id), "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: a command runs in it; let it end first", ref)
	} else if err != nil {
		return err
	}
	if err := u.forget(id); err != nil {
		return err
	}
	tmp := filepath.Join(u.Dir, "tmp-"+strings.TrimPrefix(id, "sha256:"))
	if err := os.Rename(u.tree(id), tmp); err != nil {
		return err
	}
	return removeAll(tmp)
}

// forget removes every reference to an image.
func (u *Update) forget(id string) error {
	names, err := u.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.ID != id {
			continue
		}
		file, err := u.nameFile(n.Ref)
		if err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}
