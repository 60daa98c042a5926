package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxDepth is how many directories below each other are walked. Each is held
// open, and who nests deeper means no good.
const maxDepth = 1000

// Node is a file that Walk has come to. It is valid until the callback returns;
// a directory's until it has been left.
type Node struct {
	Path string // from the root of the tree, empty for the root itself
	Name string
	Stat unix.Stat_t
	// Opaque is set for a directory of an overlay that hides what is below the
	// trees that are walked.
	Opaque bool

	dir    int        // the directory it is in, open
	fds    []*os.File // the directories it is, open, in each tree that has one
	own    bool       // see Visitor
	lifted []lifted
}

// lifted is a directory whose mode was changed to look into it.
type lifted struct {
	fd   int
	mode uint32
}

// Type is the kind of file, as in S_IFMT.
func (n *Node) Type() uint32 { return n.Stat.Mode & unix.S_IFMT }

// IsDir says whether it is a directory.
func (n *Node) IsDir() bool { return n.Type() == unix.S_IFDIR }

// IsRegular says whether it is a file with content.
func (n *Node) IsRegular() bool { return n.Type() == unix.S_IFREG }

// IsWhiteout says whether overlayfs takes it as the sign of a removed file.
func (n *Node) IsWhiteout() bool { return n.Type() == unix.S_IFCHR && n.Stat.Rdev == 0 }

// Open opens a regular file for reading, and makes sure that it is the one that
// was found: another may have been put in its place.
func (n *Node) Open() (*os.File, error) {
	// Not blocking: what was put in its place may be a pipe.
	fd, mode, err := n.openat(n.dir, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, n.fail("open", err)
	}
	if mode != noMode {
		_ = unix.Fchmod(fd, mode)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != n.Stat.Ino || st.Dev != n.Stat.Dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, n.fail("open", errors.New("it was exchanged meanwhile"))
	}
	return os.NewFile(uintptr(fd), n.Path), nil
}

const noMode = ^uint32(0)

// openat opens the file in one of the trees. If its mode keeps even its owner out,
// who is meant to get in, that is changed, and what it was is returned.
func (n *Node) openat(dir, flags int) (fd int, mode uint32, err error) {
	fd, err = unix.Openat(dir, n.Name, flags, 0)
	if err != unix.EACCES || !n.own {
		return fd, noMode, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, n.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return -1, noMode, unix.EACCES
	}
	mode = st.Mode & 0o7777
	if err := unix.Fchmodat(dir, n.Name, mode|0o700, 0); err != nil {
		return -1, noMode, err
	}
	fd, err = unix.Openat(dir, n.Name, flags, 0)
	return fd, mode, err
}

// Readlink returns where a symbolic link leads.
func (n *Node) Readlink() (string, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		got, err := unix.Readlinkat(n.dir, n.Name, b)
		if err != nil {
			return "", n.fail("readlink", err)
		}
		if got < size {
			return string(b[:got]), nil
		}
	}
}

// fail names the file in an error. Names are any bytes, so they are quoted where
// that makes a difference.
func (n *Node) fail(op string, err error) error { return fail(op, n.Path, err) }

func fail(op, path string, err error) error {
	if path == "" {
		path = "."
	}
	if quoted := strconv.Quote(path); quoted[1:len(quoted)-1] != path {
		path = quoted
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Visitor is told of every file. Enter comes before what is in a directory, and
// may return fs.SkipDir; Leave, if it is not nil, comes after.
type Visitor struct {
	Enter func(*Node) error
	Leave func(*Node) error
	// Shut, if it is not nil, is asked about a directory that may not be read: whether
	// it is left out. Otherwise it is an error.
	Shut func(*Node) bool
	// Own says that nobody else uses the trees, and that they are the caller's:
	// what their modes forbid their owner is done all the same.
	Own bool
}

// Walk visits a directory and everything below it, each directory's files in the
// order of their names' bytes. Symbolic links are visited, never followed. A file
// that vanishes meanwhile is left out.
func Walk(root *os.File, v Visitor) error { return WalkStack([]*os.File{root}, v) }

// WalkStack visits directories that lie on each other, top first, as overlayfs
// shows them. Signs of removed files are visited, too: they say something about
// what may be below.
func WalkStack(roots []*os.File, v Visitor) error {
	n := &Node{dir: int(roots[0].Fd()), Name: ".", own: v.Own}
	defer n.close()
	for i, root := range roots {
		more, err := n.openIn(int(root.Fd()), i == 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: root.Name(), Err: err}
		}
		if !more {
			break
		}
	}
	return v.walk(n, 0)
}

// openIn opens the directory in one more tree, and says whether those below count
// as well.
func (n *Node) openIn(dir int, first bool) (more bool, err error) {
	fd, mode, err := n.openat(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return false, err
	}
	n.fds = append(n.fds, os.NewFile(uintptr(fd), n.Path))
	if first {
		if err := unix.Fstat(fd, &n.Stat); err != nil {
			return false, err
		}
	}
	mode, err = n.search(fd, mode)
	if err != nil {
		return false, err
	}
	if mode != noMode {
		n.lifted = append(n.lifted, lifted{fd, mode})
		if first {
			n.Stat.Mode = n.Stat.Mode&unix.S_IFMT | mode
		}
	}
	var value [2]byte
	got, err := unix.Fgetxattr(fd, Opaque, value[:])
	n.Opaque = err == nil && got == 1 && value[0] == 'y'
	return !n.Opaque, nil
}

// search makes sure that names in a directory can be looked up, which its mode may
// forbid where it lets it be read.
func (n *Node) search(fd int, mode uint32) (uint32, error) {
	if mode != noMode || !n.own || unix.Faccessat(fd, ".", unix.X_OK, 0) == nil {
		return mode, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return noMode, err
	}
	return st.Mode & 0o7777, unix.Fchmod(fd, st.Mode&0o7777|0o700)
}

func (n *Node) close() {
	for _, l := range n.lifted {
		_ = unix.Fchmod(l.fd, l.mode)
	}
	for _, f := range n.fds {
		_ = f.Close()
	}
}

func (v *Visitor) walk(n *Node, depth int) error {
	err := v.Enter(n)
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	if err != nil {
		return err
	}
	if depth == maxDepth {
		return n.fail("walk", fmt.Errorf("more than %d directories in each other", maxDepth))
	}
	names, err := n.names()
	if err != nil {
		return err
	}
	prefix := n.Path
	if prefix != "" {
		prefix += "/"
	}
	for _, name := range names {
		if err := v.visit(&Node{Path: prefix + name, Name: name, own: v.Own}, n, depth); err != nil {
			return err
		}
	}
	if v.Leave == nil {
		return nil
	}
	return v.Leave(n)
}

// names returns the sorted names of all trees.
func (n *Node) names() ([]string, error) {
	var all []string
	for _, f := range n.fds {
		names, err := f.Readdirnames(-1)
		if err != nil {
			return nil, n.fail("read", errors.Unwrap(err))
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (v *Visitor) visit(n, parent *Node, depth int) error {
	defer n.close()
	found, err := n.find(parent)
	if v.Shut != nil && errors.Is(err, unix.EACCES) && v.Shut(n) {
		return nil
	}
	if err != nil {
		return n.fail("open", err)
	}
	if !found {
		return nil
	}
	if n.IsDir() {
		return v.walk(n, depth+1)
	}
	if err := v.Enter(n); !errors.Is(err, fs.SkipDir) {
		return err
	}
	return nil
}

// find looks for a file in all trees, top first. The first that has it decides;
// what directories hold is put together as long as nothing else lies between.
func (n *Node) find(parent *Node) (found bool, err error) {
	for _, dir := range parent.fds {
		fd := int(dir.Fd())
		var st unix.Stat_t
		err := unix.Fstatat(fd, n.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return false, err
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if !found {
			n.dir, n.Stat = fd, st
		}
		if !isDir {
			n.Opaque = found
			return true, nil
		}
		more, err := n.openIn(fd, !found)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return false, err
		}
		found = true
		if !more {
			break
		}
	}
	return found, nil
}
