package rulefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// alter makes, removes or replaces a name in a directory, if that is permitted.
// FS.moves is held.
func (fs *FS) alter(id uint64, name string, do func(dir *node, path string, fd int, by *pathrule.Set) error) error {
	n, path := fs.parent(id, name)
	if n == nil {
		return unix.ESTALE
	}
	rules := n.view.rules.Load()
	if p := rules.Permission(path); p != pathrule.Write {
		return refusal(p)
	}
	h, err := fs.directory(n)
	if err != nil {
		return err
	}
	defer h.release()
	if err := do(n, path, h.fd, rules); err != nil {
		return err
	}
	fs.renamed(n, name)
	return nil
}

// create makes something at a name and answers with it.
func (fs *FS) create(id uint64, name string, out *fuse.EntryOut, do func(fd int) error) fuse.Status {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	return status(fs.alter(id, name, func(dir *node, _ string, fd int, by *pathrule.Set) error {
		if err := do(fd); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		fs.answer(fs.enter(dir, name, &st, pathrule.Write, by), dir, &st, out)
		return nil
	}))
}

// Mknod makes files, pipes and sockets. Nobody in a sandbox may make devices.
func (fs *FS) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	switch in.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, 0:
	default:
		return fuse.EPERM
	}
	return fs.create(in.NodeId, name, out, func(fd int) error { return unix.Mknodat(fd, name, in.Mode, 0) })
}

// Mkdir makes a directory.
func (fs *FS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.create(in.NodeId, name, out, func(fd int) error { return unix.Mkdirat(fd, name, in.Mode&0o7777) })
}

// Symlink makes a link. Where it leads is judged when somebody goes there.
func (fs *FS) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return fs.create(in.NodeId, name, out, func(fd int) error { return unix.Symlinkat(target, fd, name) })
}

// Create makes a file and opens it. No descriptor is kept for it, as for no other
// file.
func (fs *FS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return fs.create(in.NodeId, name, &out.EntryOut, func(dir int) error {
		flags := unix.O_CREAT | unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
		fd, err := openat(dir, name, flags|int(in.Flags)&(unix.O_EXCL|unix.O_TRUNC), in.Mode&0o7777)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
}

// Tmpfile makes a file without a name. Which it may get is asked when it does.
func (fs *FS) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	dir := fs.get(in.NodeId)
	if dir == nil || dir.view == nil {
		return fuse.Status(unix.ESTALE)
	}
	if p := dir.allows(); p != pathrule.Write {
		return status(refusal(p))
	}
	h, err := fs.directory(dir)
	if err != nil {
		return status(err)
	}
	defer h.release()
	fd, err := openat(h.fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, in.Mode&0o7777)
	if err != nil {
		return status(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return status(err)
	}
	fs.mu.Lock()
	n := fs.add(dir.view, idOf(&st), unix.S_IFREG, pathrule.Write)
	n.handle, n.lookups = newHandle(fd), 1
	fs.handles++
	fs.mu.Unlock()
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	fs.answer(n, dir, &st, &out.EntryOut)
	return fuse.OK
}

// Link gives a file another name, if both may be written: a name must not permit
// more than the one it was made from.
func (fs *FS) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n := fs.get(in.Oldnodeid)
	if n == nil || n.view == nil {
		return fuse.Status(unix.ESTALE)
	}
	if n.allows() != pathrule.Write {
		return fuse.EPERM
	}
	from, err := fs.open(n, unix.O_PATH)
	if err != nil {
		return status(err)
	}
	h := newHandle(from)
	defer h.release()
	answer := fs.create(in.NodeId, name, out, func(fd int) error {
		fs.count(n, 1) // before anybody meets the name
		err := fs.link(n, h, fd, name)
		if err != nil {
			fs.count(n, -1)
		}
		return err
	})
	if answer == fuse.OK {
		fs.changed(n)
	}
	return answer
}

// count notes that a file has more or fewer names than when it was judged, and that
// nothing follows from it.
func (fs *FS) count(n *node, more int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n.names = uint64(max(int(n.names)+more, 0))
}

func (fs *FS) link(n *node, h *handle, to int, name string) error {
	if n.kind == unix.S_IFLNK {
		return fs.linkSymlink(n, to, name)
	}
	return unix.Linkat(unix.AT_FDCWD, h.link(), to, name, unix.AT_SYMLINK_FOLLOW)
}

// linkSymlink goes by the link's name, since a descriptor of it cannot be named.
func (fs *FS) linkSymlink(n *node, to int, name string) error {
	fs.mu.RLock()
	places := n.places
	fs.mu.RUnlock()
	if len(places) == 0 {
		return unix.ESTALE
	}
	dir, err := fs.directory(places[0].parent)
	if err != nil {
		return err
	}
	defer dir.release()
	return unix.Linkat(dir.fd, places[0].name, to, name, 0)
}

// Readlink reads a link, which is content.
func (fs *FS) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n := fs.get(in.NodeId)
	if n == nil || n.view == nil {
		return nil, fuse.Status(unix.ESTALE)
	}
	if p := n.allows(); p < pathrule.Read {
		return nil, status(refusal(p))
	}
	fd, err := fs.open(n, unix.O_PATH)
	if err != nil {
		return nil, status(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(fd, "", buf)
	return buf[:max(size, 0)], status(err)
}

// Unlink removes a file's name. What still uses the file goes on by a descriptor.
func (fs *FS) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	return status(fs.alter(in.NodeId, name, func(dir *node, _ string, fd int, _ *pathrule.Set) error {
		n := fs.keep(dir, name, fd)
		err := unix.Unlinkat(fd, name, 0)
		fs.lose(n, dir, name, err == nil)
		return err
	}))
}

// Rmdir removes a directory. One with hidden names in it is not empty.
func (fs *FS) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	return status(fs.alter(in.NodeId, name, func(dir *node, _ string, fd int, _ *pathrule.Set) error {
		n := fs.keep(dir, name, fd)
		err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		fs.lose(n, dir, name, err == nil)
		return err
	}))
}

// keep opens what is at a name before it loses that name, so that whoever asks
// about it meanwhile is answered. It is followed by lose.
func (fs *FS) keep(dir *node, name string, fd int) *node {
	fs.mu.Lock()
	n := dir.children[name]
	if n == nil {
		fs.mu.Unlock()
		return nil
	}
	n.leaving++
	needed := n.handle == nil
	fs.mu.Unlock()
	if !needed {
		return n
	}
	kept, err := openSame(fd, name, unix.O_PATH, n.file)
	if err != nil {
		return n
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n.handle != nil || fs.nodes[n.id] != n {
		_ = unix.Close(kept)
		return n
	}
	n.handle = newHandle(kept)
	fs.handles++
	return n
}

// lose notes that what was kept has lost a name, if it has.
func (fs *FS) lose(n, dir *node, name string, lost bool) {
	if n == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n.leaving--
	if lost && dir.children[name] == n {
		fs.unplace(n, dir, name)
	}
	fs.shed(n)
	if lost && !n.isDir() {
		n.names = max(n.names, 1) - 1
		// Its other names have one link less.
		for _, other := range fs.files[n.file] {
			if other != n {
				fs.notices.inode(other.id)
			}
		}
	}
}

// Rename moves a name. Both must permit everything, and nothing below a directory
// may get another permission by it: such a directory cannot be moved as a whole,
// as between file systems, and programs copy it instead.
func (fs *FS) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return fuse.EINVAL
	}
	fs.moves.Lock()
	defer fs.moves.Unlock()
	return status(fs.alter(in.NodeId, oldName, func(from *node, oldPath string, fromFD int, _ *pathrule.Set) error {
		return fs.alter(in.Newdir, newName, func(to *node, newPath string, toFD int, _ *pathrule.Set) error {
			if from.view != to.view {
				return unix.EXDEV
			}
			if err := fs.mayMove(from, fromFD, oldName, oldPath, newPath); err != nil {
				return err
			}
			if in.Flags&unix.RENAME_EXCHANGE != 0 {
				if err := fs.mayMove(to, toFD, newName, newPath, oldPath); err != nil {
					return err
				}
				return fs.exchange(from, to, fromFD, toFD, oldName, newName)
			}
			return fs.move(from, to, fromFD, toFD, oldName, newName, in.Flags)
		})
	}))
}

func (fs *FS) move(from, to *node, fromFD, toFD int, oldName, newName string, flags uint32) error {
	replaced := fs.keep(to, newName, toFD)
	err := unix.Renameat2(fromFD, oldName, toFD, newName, uint(flags))
	fs.mu.RLock()
	n := from.children[oldName]
	fs.mu.RUnlock()
	if n != nil && n == replaced {
		// Two names of one file: nothing happens. The kernel believes otherwise,
		// and is told.
		fs.lose(n, from, oldName, false)
		fs.notices.entry(from.id, oldName)
		fs.notices.entry(to.id, newName)
		return err
	}
	fs.lose(replaced, to, newName, err == nil)
	if err != nil {
		return err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n != nil {
		fs.unplace(n, from, oldName)
		fs.place(n, to, newName)
	}
	return nil
}

func (fs *FS) exchange(from, to *node, fromFD, toFD int, oldName, newName string) error {
	if err := unix.Renameat2(fromFD, oldName, toFD, newName, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	a, b := from.children[oldName], to.children[newName]
	if a != nil {
		fs.unplace(a, from, oldName)
	}
	if b != nil {
		fs.unplace(b, to, newName)
		fs.place(b, from, oldName)
	}
	if a != nil {
		fs.place(a, to, newName)
	}
	return nil
}
