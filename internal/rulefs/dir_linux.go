package rulefs

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// entry is a name in a directory of the host.
type entry struct {
	ino  uint64
	next uint64 // where the next one is
	kind uint8  // DT_DIR and so on
	name string
}

// eachEntry calls f for each entry from where the descriptor is.
func eachEntry(fd int, f func(*entry) error) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			e, size := parseEntry(rest)
			rest = rest[size:]
			if err := f(&e); err != nil {
				return err
			}
		}
	}
}

// parseEntry reads one entry:
//
//	struct linux_dirent64 {
//		ino64_t        d_ino;
//		off64_t        d_off;
//		unsigned short d_reclen;
//		unsigned char  d_type;
//		char           d_name[];
//	};
func parseEntry(b []byte) (e entry, size int) {
	const nameAt = 19
	e.ino, e.next = binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
	size = int(binary.NativeEndian.Uint16(b[16:]))
	e.kind = b[18]
	name := b[nameAt:size]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	e.name = string(name)
	return e, size
}

// openDir opens a directory to be listed.
func (fs *FS) openDir(n *node) (int, error) {
	h, err := fs.directory(n)
	if err != nil {
		return -1, err
	}
	defer h.release()
	fs.watch(n, h)
	// By its descriptor: a name in it could be looked up only by who may search it.
	return openat(unix.AT_FDCWD, h.link(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// errFull ends a listing for which there is no more room.
const errFull = unix.ENOBUFS

// list calls f for the visible entries of a directory, from an offset on.
func (fs *FS) list(n *node, offset uint64, f func(fd int, e *entry) error) error {
	fd, err := fs.openDir(n)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if offset != 0 {
		if _, err := unix.Seek(fd, int64(offset), unix.SEEK_SET); err != nil {
			return err
		}
	}
	fs.mu.RLock()
	dir := n.path()
	fs.mu.RUnlock()
	rules := n.view.rules.Load()
	err = eachEntry(fd, func(e *entry) error {
		if e.name != "." && e.name != ".." {
			e.learnKind(fd)
			if d := rules.Decide(join(dir, e.name)); !d.IsVisible(e.kind == unix.DT_DIR) {
				return nil
			}
		}
		return f(fd, e)
	})
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// ReadDir lists a directory.
func (fs *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	if n.view == nil {
		return fuse.OK
	}
	return status(fs.list(n, in.Offset, func(_ int, e *entry) error {
		if !out.AddDirEntry(e.forKernel()) {
			return errFull
		}
		return nil
	}))
}

// learnKind asks for what some file systems do not say.
func (e *entry) learnKind(fd int) {
	var st unix.Stat_t
	if e.kind == unix.DT_UNKNOWN && unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		e.kind = uint8(st.Mode & unix.S_IFMT >> 12)
	}
}

func (e *entry) forKernel() fuse.DirEntry {
	return fuse.DirEntry{Name: e.name, Ino: e.ino, Off: e.next, Mode: uint32(e.kind) << 12}
}

// ReadDirPlus lists a directory with the attributes of all that is in it.
func (fs *FS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	if n.view == nil {
		return fuse.OK
	}
	fs.mu.RLock()
	dir := n.path()
	fs.mu.RUnlock()
	return status(fs.list(n, in.Offset, func(fd int, e *entry) error {
		answer := out.AddDirLookupEntry(e.forKernel())
		if answer == nil {
			return errFull
		}
		if e.name == "." || e.name == ".." {
			return nil
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return nil // it has just gone; the kernel will ask
		}
		rules := n.view.rules.Load()
		if d := rules.Decide(join(dir, e.name)); d.IsVisible(st.Mode&unix.S_IFMT == unix.S_IFDIR) {
			fs.findLinks(n.view, rules, &st, d.Permission)
			fs.answer(fs.enter(n, e.name, &st, d.Permission, rules), n, &st, answer)
		}
		return nil
	}))
}
