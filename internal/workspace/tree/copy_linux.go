package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Marks says what is done with the marks that overlayfs leaves in an upper
// directory: of removed files, and of directories that hide what is below.
type Marks int

const (
	// Refuse takes them for forgeries, which they are in a tree that no overlay
	// was made of: devices are refused, and attributes of overlayfs left out.
	Refuse Marks = iota
	// Preserve copies them: something may lie below.
	Preserve
	// Drop leaves them out: nothing lies below.
	Drop
)

// CopyOptions say what Copy does with files that are not simply copied.
type CopyOptions struct {
	Marks Marks
	// Own is that of a Visitor.
	Own bool
	// Skip leaves a file out, and a directory with everything in it.
	Skip func(n *Node) bool
	// Left is told of what was left out because it cannot be copied: sockets.
	Left func(path, why string)
	// Progress is told of every file.
	Progress func(files, bytes int64)
}

// Copy makes a directory, which must be empty, like another: everything in it,
// its mode and its time. Files that are one file by several names are that
// afterwards.
func Copy(to, from *os.File, o CopyOptions) error { return CopyStack(to, []*os.File{from}, o) }

// CopyStack copies what directories that lie on each other, top first, are
// together.
func CopyStack(to *os.File, from []*os.File, o CopyOptions) error {
	c := copying{CopyOptions: o, root: to, links: make(map[inode]string)}
	return WalkStack(from, Visitor{Enter: c.enter, Leave: c.leave, Own: o.Own})
}

type inode struct{ dev, ino uint64 }

type copying struct {
	CopyOptions
	root   *os.File
	dirs   []*os.File // those that are just filled, the innermost last
	data   Copier
	links  map[inode]string
	files  int64
	copied int64
}

func (c *copying) enter(n *Node) error {
	if n.Path != "" && c.Skip != nil && c.Skip(n) {
		return fs.SkipDir
	}
	if err := c.add(n); err != nil {
		return err
	}
	c.files++
	if c.Progress != nil {
		c.Progress(c.files, c.copied)
	}
	return nil
}

func (c *copying) add(n *Node) error {
	switch n.Type() {
	case unix.S_IFDIR:
		return c.mkdir(n)
	case unix.S_IFSOCK:
		if c.Left != nil {
			c.Left(n.Path, "a socket")
		}
		return nil
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO:
		return c.file(n)
	}
	if n.IsWhiteout() && c.Marks == Preserve {
		return c.file(n)
	}
	if n.IsWhiteout() && c.Marks == Drop {
		return nil
	}
	return n.fail("copy", errors.New("devices are not part of a tree of files; remove it, or leave it out"))
}

func (c *copying) top() *os.File { return c.dirs[len(c.dirs)-1] }

func (c *copying) mkdir(n *Node) error {
	parent, name := c.root, "."
	if n.Path != "" {
		parent, name = c.top(), n.Name
		if err := unix.Mkdirat(int(parent.Fd()), name, 0o700); err != nil {
			return n.fail("mkdir", err)
		}
	}
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return n.fail("open", err)
	}
	c.dirs = append(c.dirs, os.NewFile(uintptr(fd), n.Path))
	return nil
}

// leave gives a directory its metadata once everything is in it: it may be one
// that cannot be written to, and writing to it changes its time.
func (c *copying) leave(n *Node) error {
	dir := c.top()
	c.dirs = c.dirs[:len(c.dirs)-1]
	defer dir.Close()
	attrs, err := n.Attrs(Kept)
	if err != nil {
		return err
	}
	if n.Opaque && c.Marks == Preserve {
		attrs = append(attrs, Attr{Opaque, []byte("y")})
	}
	meta := MetaOf(&n.Stat, attrs)
	if err := meta.Set(int(dir.Fd())); err != nil {
		return n.fail("copy", err)
	}
	return nil
}

func (c *copying) file(n *Node) error {
	if n.Stat.Nlink > 1 && !n.IsWhiteout() {
		id := inode{n.Stat.Dev, n.Stat.Ino}
		if first, ok := c.links[id]; ok {
			if err := unix.Linkat(int(c.root.Fd()), first, int(c.top().Fd()), n.Name, 0); err != nil {
				return n.fail("link", err)
			}
			return nil
		}
		c.links[id] = n.Path
	}
	if n.IsRegular() {
		return c.regular(n)
	}
	return c.special(n)
}

func (c *copying) regular(n *Node) error {
	from, err := n.Open()
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return fs.SkipDir
		}
		return err
	}
	defer from.Close()
	fd, err := unix.Openat(int(c.top().Fd()), n.Name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return n.fail("create", err)
	}
	to := os.NewFile(uintptr(fd), n.Path)
	defer to.Close()
	if err := c.data.Copy(to, from, n.Stat.Size); err != nil {
		return n.fail("copy", err)
	}
	attrs, err := Attrs(int(from.Fd()), Kept)
	if err != nil {
		return n.fail("xattr", err)
	}
	meta := MetaOf(&n.Stat, attrs)
	if err := meta.Set(fd); err != nil {
		return n.fail("copy", err)
	}
	c.copied += n.Stat.Size
	return nil
}

func (c *copying) special(n *Node) (err error) {
	dir := int(c.top().Fd())
	if n.Type() == unix.S_IFLNK {
		var target string
		if target, err = n.Readlink(); err != nil {
			return err
		}
		err = unix.Symlinkat(target, dir, n.Name)
	} else {
		err = unix.Mknodat(dir, n.Name, n.Stat.Mode, int(n.Stat.Rdev))
	}
	if err != nil {
		return n.fail("make", err)
	}
	meta := MetaOf(&n.Stat, nil)
	if err := meta.SetLink(dir, n.Name, n.Type() == unix.S_IFLNK); err != nil {
		return n.fail("copy", err)
	}
	return nil
}

// Usage is what a tree takes on the disk.
type Usage struct {
	Files  int64
	Bytes  int64 // blocks that were allocated
	Length int64 // of the content of files, which may be more where they have holes
}

// Measure counts what a directory and everything below it takes. A file with
// several names counts once.
func Measure(root *os.File) (Usage, error) {
	var u Usage
	seen := make(map[inode]bool)
	err := Walk(root, Visitor{Enter: func(n *Node) error {
		if n.Stat.Nlink > 1 && !n.IsDir() {
			id := inode{n.Stat.Dev, n.Stat.Ino}
			if seen[id] {
				return nil
			}
			seen[id] = true
		}
		u.Files++
		u.Bytes += n.Stat.Blocks * 512
		if n.IsRegular() {
			u.Length += n.Stat.Size
		}
		return nil
	}})
	if err != nil {
		return u, fmt.Errorf("usage: %w", err)
	}
	return u, nil
}
