//go:build unix

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Store is a directory of images. In it are:
//
//	trees/HEX/root         an image's root directory
//	trees/HEX/image.json   what is known of it
//	trees/HEX/lock         held by whoever uses it
//	names/HEX              what a name stands for
//	tmp-*                  what is being unpacked
//	lock                   held by whoever changes the store
type Store struct {
	Dir string
}

// Dir is where the images of a user are, in the directory that holds the user's data.
func Dir(data string) string { return filepath.Join(data, "images") }

// Config is what an image says about commands that run in it.
type Config struct {
	Env        []string `json:"env,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	WorkingDir string   `json:"workingDir,omitempty"`
	User       string   `json:"user,omitempty"`
}

// Image is one in a store.
type Image struct {
	// ID is the digest of its configuration, such as "sha256:2c26b46b…".
	ID     string    `json:"id"`
	Config Config    `json:"config"`
	Bytes  int64     `json:"bytes"` // of its files
	Pulled time.Time `json:"pulled"`

	Dir   string   `json:"-"` // its root directory
	Names []string `json:"-"` // see List
}

// ErrNotHere says that an image has to be pulled first.
var ErrNotHere = errors.New("the image is not here yet")

// IsPath says whether a reference names a file or directory of this machine, and not
// something in a registry.
func IsPath(ref string) bool {
	return strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../") || ref == "." || ref == ".."
}

// name is what a reference stands for.
type name struct {
	Ref string `json:"ref"`
	ID  string `json:"id"`
	// Stamp changes when the file that a path names does.
	Stamp string `json:"stamp,omitempty"`
}

// Find returns an image by its reference as it was pulled, or by its ID, of which twelve
// digits are enough. It cannot be removed while this process, or one that it becomes,
// lives.
func (s Store) Find(ref string) (*Image, error) {
	id, err := s.resolve(ref)
	if err != nil {
		return nil, err
	}
	return s.open(id)
}

// Look is Find for who does not use the image itself: whoever does has to Hold it.
func (s Store) Look(ref string) (*Image, error) {
	id, err := s.resolve(ref)
	if err != nil {
		return nil, err
	}
	i, err := s.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotHere
	}
	return i, err
}

// Hold keeps the image of a root directory from being removed, until what it returns is
// closed.
func Hold(root string) (io.Closer, error) {
	tree := filepath.Dir(root)
	fd, err := share(tree, unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "lock")
	if _, err := os.Stat(filepath.Join(tree, "image.json")); err != nil { // it may have been removed before it was held
		f.Close()
		return nil, errors.Join(ErrNotHere, err)
	}
	return f, nil
}

// share takes the lock of a tree, with others who use it.
func share(tree string, flags int) (fd int, err error) {
	fd, err = unix.Open(filepath.Join(tree, "lock"), unix.O_RDONLY|unix.O_NOFOLLOW|flags, 0)
	if errors.Is(err, unix.ENOENT) {
		return -1, ErrNotHere
	}
	if err != nil {
		return -1, err
	}
	if err := flock(fd, unix.LOCK_SH); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (s Store) resolve(ref string) (id string, err error) {
	if id := s.byID(ref); id != "" {
		return id, nil
	}
	file, err := s.nameFile(ref)
	if err != nil {
		return "", err
	}
	var n name
	if err := readJSON(file, &n); errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotHere
	} else if err != nil {
		return "", err
	}
	if stamp, err := stampOf(ref); err != nil {
		return "", err
	} else if stamp != n.Stamp {
		return "", ErrNotHere
	}
	return n.ID, nil
}

// byID returns the whole ID of the only image whose ID begins so, or "".
func (s Store) byID(ref string) string {
	digits := strings.TrimPrefix(ref, "sha256:")
	if len(digits) < 12 || len(digits) > 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(s.Dir, "trees", digits+"*"))
	if err != nil || len(found) != 1 {
		return ""
	}
	return "sha256:" + filepath.Base(found[0])
}

// nameFile is where it is written down what a reference stands for.
func (s Store) nameFile(ref string) (string, error) {
	if IsPath(ref) {
		var err error
		if ref, err = filepath.Abs(ref); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(ref))
	return filepath.Join(s.Dir, "names", hex.EncodeToString(sum[:])), nil
}

// stampOf tells one state of what a path names from another; empty for what is no path.
func stampOf(ref string) (string, error) {
	if !IsPath(ref) {
		return "", nil
	}
	info, err := os.Stat(ref)
	if err == nil && info.IsDir() {
		info, err = os.Stat(filepath.Join(ref, "index.json"))
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(info.Size(), 10) + " " + strconv.FormatInt(info.ModTime().UnixNano(), 10), nil
}

// open opens an image and holds it. Its descriptor stays open when this process executes
// another program, which may be the one that builds the sandbox.
func (s Store) open(id string) (*Image, error) {
	if _, err := share(s.tree(id), 0); errors.Is(err, ErrNotHere) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("image %s: %w", id, err)
	}
	// It may have been removed before it was held.
	i, err := s.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotHere
	}
	return i, err
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

func (s Store) tree(id string) string {
	return filepath.Join(s.Dir, "trees", strings.TrimPrefix(id, "sha256:"))
}

func (s Store) read(id string) (*Image, error) {
	i := &Image{}
	if err := readJSON(filepath.Join(s.tree(id), "image.json"), i); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(s.tree(id), "root"))
	i.Dir = dir
	return i, err
}

func readJSON(file string, to any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w; remove it and pull the image again", file, err)
	}
	return nil
}

// List returns all images, with the references that stand for them, the latest first.
func (s Store) List() ([]*Image, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "trees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []*Image
	for _, e := range entries {
		i, err := s.read("sha256:" + e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is just being removed
		}
		if err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		for _, n := range names {
			if n.ID == i.ID {
				i.Names = append(i.Names, n.Ref)
			}
		}
		slices.Sort(i.Names)
	}
	slices.SortStableFunc(list, func(a, b *Image) int { return b.Pulled.Compare(a.Pulled) })
	return list, nil
}

func (s Store) names() ([]name, error) {
	dir := filepath.Join(s.Dir, "names")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []name
	for _, e := range entries {
		var n name
		if err := readJSON(filepath.Join(dir, e.Name()), &n); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
