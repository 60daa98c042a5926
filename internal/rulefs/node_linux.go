package rulefs

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// fileID names a file of the host.
type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID { return fileID{st.Dev, st.Ino} }

// node is a file of a view under one permission, as the kernel knows it.
type node struct {
	id   uint64
	view *view // nil at the root of the mount
	file fileID
	kind uint32 // of the file, as in its mode
	// permission changes when the rules do.
	permission atomic.Uint32

	// Guarded by FS.mu.
	places   []place
	children map[string]*node
	lookups  uint64
	names    uint64  // how many a file had when it was judged
	leaving  int     // how many of its names are being removed
	handle   *handle // of a directory, or of a file that has lost its names
	watched  bool    // what the kernel knows of its entries is kept true
}

// place is where a node is found.
type place struct {
	parent *node
	name   string
}

func (n *node) isDir() bool { return n.kind == unix.S_IFDIR }

func (n *node) allows() pathrule.Permission { return pathrule.Permission(n.permission.Load()) }

// path is where the node is in its view, by its first name. FS.mu is held.
func (n *node) path() string {
	var names []string
	for n.view != nil && n != n.view.root && len(n.places) > 0 {
		names = append(names, n.places[0].name)
		n = n.places[0].parent
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(names[i])
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// handle is a descriptor that several calls may use at once.
type handle struct {
	fd   int
	refs atomic.Int32
}

func newHandle(fd int) *handle {
	h := &handle{fd: fd}
	h.refs.Store(1)
	return h
}

// hold is called while somebody else holds it.
func (h *handle) hold() *handle {
	h.refs.Add(1)
	return h
}

func (h *handle) release() {
	if h.refs.Add(-1) == 0 {
		_ = unix.Close(h.fd)
	}
}

// link is a path that leads to the file itself, whatever its name is now.
func (h *handle) link() string { return "/proc/self/fd/" + strconv.Itoa(h.fd) }

// directory returns a descriptor of a directory, by which names in it are looked
// up. The caller releases it.
func (fs *FS) directory(n *node) (*handle, error) {
	fs.mu.RLock()
	h := n.handle
	if h != nil {
		h.hold()
	}
	places := n.places
	fs.mu.RUnlock()
	if h != nil {
		return h, nil
	}
	if !n.isDir() || len(places) == 0 {
		return nil, unix.ESTALE
	}
	above, err := fs.directory(places[0].parent)
	if err != nil {
		return nil, err
	}
	defer above.release()
	fd, err := openSame(above.fd, places[0].name, unix.O_PATH|unix.O_DIRECTORY, n.file)
	if err != nil {
		return nil, err
	}
	h = newHandle(fd)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n.handle == nil && fs.handles < fs.maxHandles {
		n.handle = h.hold()
		fs.handles++
	}
	return h, nil
}

// openSame opens a name if it still is the file that it was.
func openSame(dir int, name string, flags int, want fileID) (int, error) {
	fd, err := openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			err = unix.ESTALE
		}
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || idOf(&st) != want {
		_ = unix.Close(fd)
		return -1, unix.ESTALE
	}
	return fd, nil
}

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// reach does something with a node's descriptor or, if it has none, with the places
// where it was found last. A place may be out of date for a moment while something
// is moved, so that is waited for before the node is called lost.
func (fs *FS) reach(n *node, use func(h *handle, places []place) error) error {
	try := func() (bool, []place, error) {
		fs.mu.RLock()
		h, places := n.handle, n.places
		if h != nil {
			h.hold()
		}
		fs.mu.RUnlock()
		if h != nil {
			defer h.release()
		}
		return h != nil, places, use(h, places)
	}
	held, places, err := try()
	if held || !errors.Is(err, unix.ESTALE) {
		return err
	}
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	for {
		before := places
		held, places, err = try()
		if held || !errors.Is(err, unix.ESTALE) || slices.Equal(before, places) {
			return err
		}
	}
}

// open opens a file that is not a directory, or with O_PATH anything.
func (fs *FS) open(n *node, flags int) (int, error) {
	fd := -1
	err := fs.reach(n, func(h *handle, places []place) (err error) {
		if h != nil {
			fd, err = openat(unix.AT_FDCWD, h.link(), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.EACCES) {
				fd, err = fs.opener.open(h.fd, flags)
			}
			return err
		}
		err = unix.ESTALE
		for _, p := range places {
			if fd, err = fs.openAt(n, p, flags); err == nil {
				return nil
			}
		}
		return err
	})
	return fd, err
}

func (fs *FS) openAt(n *node, p place, flags int) (int, error) {
	dir, err := fs.directory(p.parent)
	if err != nil {
		return -1, err
	}
	defer dir.release()
	fd, err := openSame(dir.fd, p.name, flags, n.file)
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	path, err := openSame(dir.fd, p.name, unix.O_PATH, n.file)
	if err != nil {
		return -1, err
	}
	defer unix.Close(path)
	return fs.opener.open(path, flags)
}

// stat looks at a file, under any name it still has.
func (fs *FS) stat(n *node, st *unix.Stat_t) error {
	return fs.reach(n, func(h *handle, places []place) error {
		if h != nil {
			return unix.Fstat(h.fd, st)
		}
		for _, p := range places {
			dir, err := fs.directory(p.parent)
			if err != nil {
				return err
			}
			err = unix.Fstatat(dir.fd, p.name, st, unix.AT_SYMLINK_NOFOLLOW)
			dir.release()
			if err == nil && idOf(st) == n.file {
				return nil
			}
		}
		return unix.ESTALE
	})
}
