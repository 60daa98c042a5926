//go:build unix

package pull

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// limits bound what an image may be: more than any in use, and less than a disk.
type limits struct {
	bytes   int64 // of all files, as large as they claim to be
	entries int
}

var ordinary = limits{bytes: 64 << 30, entries: 4 << 20}

// unpacker applies the layers of an image to a directory.
//
// Nothing is made, linked or removed outside of it: names with ".." are refused, every
// symbolic link on the way to a name is followed here, as if the directory were the root,
// and what is left is done through os.Root, which leads nowhere else. Owners are the
// user's, set-id bits are taken away, and devices are left out.
type unpacker struct {
	root   *os.Root
	left   limits
	isMade map[string]bool // by the layer at hand
	dirs   map[string]*tar.Header
}

func newUnpacker(dir string, most limits) (*unpacker, error) {
	root, err := os.OpenRoot(dir)
	return &unpacker{root: root, left: most, dirs: map[string]*tar.Header{}}, err
}

// layer applies one layer.
func (u *unpacker) layer(r io.Reader) error {
	u.isMade = map[string]bool{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = u.entry(h, archive)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(h), err)
		}
	}
}

func nameOf(h *tar.Header) string {
	if h == nil {
		return "layer"
	}
	return h.Name
}

var (
	errOutside = errors.New("leads out of the image")
	errLarge   = errors.New("the image is larger than an image may be")
	errLoop    = errors.New("too many levels of symbolic links")
)

// maxLinks is how many symbolic links lead to one name at most, as in the kernel.
const maxLinks = 40

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if u.left.entries--; u.left.entries < 0 {
		return errLarge
	}
	p, err := u.place(h.Name)
	if err != nil || p == "." {
		return err
	}
	if base := path.Base(p); strings.HasPrefix(base, whiteout) {
		return u.remove(path.Dir(p), base)
	}
	u.isMade[p] = true
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(p, h)
	case tar.TypeReg:
		return u.file(p, h, content)
	case tar.TypeSymlink:
		return errors.Join(u.clear(p), u.root.Symlink(h.Linkname, p))
	case tar.TypeLink:
		return u.link(p, h.Linkname)
	}
	return nil // a device, which a sandbox has no use for
}

// place is where an entry goes: a name without symbolic links but for its last part. The
// directories that lead there are made.
func (u *unpacker) place(name string) (string, error) {
	p, err := local(name)
	if err != nil || p == "." {
		return p, err
	}
	dir, err := u.follow(path.Dir(p))
	return path.Join(dir, path.Base(p)), err
}

// local makes a name relative to the root directory.
func local(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errOutside
		}
	}
	if p := strings.TrimLeft(path.Clean(name), "/"); p != "" {
		return p, nil
	}
	return ".", nil
}

// follow resolves a directory, as a process would whose root directory this is, and makes
// what is missing.
func (u *unpacker) follow(dir string) (string, error) {
	at, rest, links := ".", dir, 0
	for rest != "" && rest != "." {
		part, after, _ := strings.Cut(rest, "/")
		rest = after
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = u.root.Mkdir(next, 0o755)
			at = next
		case err != nil:
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", errLoop
			}
			var text string
			if text, err = u.root.Readlink(next); strings.HasPrefix(text, "/") {
				at = "."
			}
			rest = text + "/" + rest
		case !info.IsDir():
			err = fmt.Errorf("%s is not a directory", next)
		default:
			at = next
		}
		if err != nil {
			return "", err
		}
	}
	return at, nil
}

// Names by which a layer takes away what is below it.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

func (u *unpacker) remove(dir, base string) error {
	if base == opaque {
		return u.empty(dir)
	}
	name := strings.TrimPrefix(base, whiteout)
	if name == "" || name == "." || name == ".." || strings.HasPrefix(name, whiteout) {
		return nil // of other tools' own
	}
	return u.clear(path.Join(dir, name))
}

// empty takes everything out of a directory that this layer has not put there.
func (u *unpacker) empty(dir string) error {
	f, err := u.root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if p := path.Join(dir, name); !u.isMade[p] && !u.leadsToMade(p) {
			err = errors.Join(err, u.clear(p))
		}
	}
	return err
}

func (u *unpacker) leadsToMade(p string) bool {
	for made := range u.isMade {
		if strings.HasPrefix(made, p+"/") {
			return true
		}
	}
	return false
}

// clear takes away what is in the place of something.
func (u *unpacker) clear(p string) error {
	if u.dirs[p] != nil {
		for dir := range u.dirs {
			if dir == p || strings.HasPrefix(dir, p+"/") {
				delete(u.dirs, dir)
			}
		}
	}
	return u.root.RemoveAll(p)
}

func (u *unpacker) dir(p string, h *tar.Header) error {
	if info, err := u.root.Lstat(p); err != nil || !info.IsDir() {
		if err := errors.Join(u.clear(p), u.root.Mkdir(p, 0o755)); err != nil {
			return err
		}
	}
	u.dirs[p] = h // until all is in it
	return nil
}

func (u *unpacker) file(p string, h *tar.Header, content io.Reader) error {
	// By what it claims: a sparse file is large with little content.
	if u.left.bytes -= h.Size; h.Size < 0 || u.left.bytes < 0 {
		return errLarge
	}
	if err := u.clear(p); err != nil {
		return err
	}
	f, err := u.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(fileMode(h)), f.Close(), u.root.Chtimes(p, time.Time{}, h.ModTime))
}

// fileMode lets the owner read, who is the user and need not be who it was.
func fileMode(h *tar.Header) fs.FileMode { return h.FileInfo().Mode().Perm() | 0o400 }

// link makes another name for a file of the image.
func (u *unpacker) link(p, target string) error {
	from, err := u.place(target)
	if err != nil {
		return err
	}
	info, err := u.root.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("a link to %s, which is no file", target)
	}
	if from == p {
		return nil
	}
	return errors.Join(u.clear(p), u.root.Link(from, p))
}

// mountPoints are files that engines mount their own on.
var mountPoints = []string{"etc/resolv.conf", "etc/hosts", "etc/hostname"}

// finish gives directories their modes and times, which they would lose while they are
// filled, and makes what others expect.
func (u *unpacker) finish() error {
	for _, name := range mountPoints {
		p, err := u.place(name)
		if err != nil {
			return err
		}
		if f, err := u.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			_ = f.Close() // it is empty
		}
	}
	for p, h := range u.dirs {
		// The owner has to be able to remove it.
		mode := h.FileInfo().Mode()&(fs.ModePerm|fs.ModeSticky) | 0o700
		if err := errors.Join(u.root.Chmod(p, mode), u.root.Chtimes(p, time.Time{}, h.ModTime)); err != nil {
			return err
		}
	}
	return u.root.Close()
}
