package rulefs

import (
	"errors"
	"os"
	"strings"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// attributes are the file's own, but for what its permission takes away: the
// kernel judges by the mode before it asks.
func (fs *FS) attributes(n *node, st *unix.Stat_t, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino:  n.number(),
		Size: uint64(st.Size), Blocks: uint64(st.Blocks), Blksize: uint32(st.Blksize),
		Atime: uint64(st.Atim.Sec), Atimensec: uint32(st.Atim.Nsec),
		Mtime: uint64(st.Mtim.Sec), Mtimensec: uint32(st.Mtim.Nsec),
		Ctime: uint64(st.Ctim.Sec), Ctimensec: uint32(st.Ctim.Nsec),
		Mode: st.Mode, Nlink: uint32(st.Nlink), Owner: fuse.Owner{Uid: st.Uid, Gid: st.Gid},
		Rdev: uint32(st.Rdev),
	}
	if n.kind != unix.S_IFREG {
		return
	}
	switch n.allows() {
	case pathrule.Write:
	case pathrule.Read:
		out.Mode &^= 0o222
	default:
		out.Mode &^= 0o777
	}
}

// number is the file's own, and another where a file system below the view might
// have the same.
func (n *node) number() uint64 {
	if n.view == nil || n.file.dev == n.view.root.file.dev {
		return n.file.ino
	}
	return n.file.ino ^ n.file.dev<<40
}

// GetAttr looks at a node.
func (fs *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	if n.view == nil {
		owner := fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
		out.Attr = fuse.Attr{Ino: n.id, Mode: unix.S_IFDIR | 0o700, Nlink: 2, Owner: owner}
		return fuse.OK
	}
	return status(fs.getAttr(n, out))
}

func (fs *FS) getAttr(n *node, out *fuse.AttrOut) error {
	var st unix.Stat_t
	if err := fs.stat(n, &st); err != nil {
		return err
	}
	fs.mu.RLock()
	dir := n
	if len(n.places) > 0 {
		dir = n.places[0].parent
	}
	fs.mu.RUnlock()
	out.SetTimeout(fs.timeout(dir))
	fs.attributes(n, &st, &out.Attr)
	return nil
}

// refusal is why something cannot be changed.
func refusal(p pathrule.Permission) error {
	if p == pathrule.Read {
		return unix.EROFS
	}
	return unix.EACCES
}

// SetAttr changes attributes. The kernel has asked whether the caller may.
func (fs *FS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil || n.view == nil {
		return fuse.Status(unix.ESTALE)
	}
	if p := n.allows(); p != pathrule.Write {
		return status(refusal(p))
	}
	err := fs.setAttr(n, in)
	fs.changed(n)
	if err == nil {
		err = fs.getAttr(n, out)
	}
	return status(err)
}

func (fs *FS) setAttr(n *node, in *fuse.SetAttrIn) error {
	if in.Valid&fuse.FATTR_SIZE != 0 {
		if err := fs.resize(n, int64(in.Size)); err != nil {
			return err
		}
	}
	const others = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_ATIME | fuse.FATTR_MTIME
	if in.Valid&others == 0 {
		return nil
	}
	fd, err := fs.open(n, unix.O_PATH)
	if err != nil {
		return err
	}
	h := newHandle(fd)
	defer h.release()
	if in.Valid&(fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		uid, gid := -1, -1
		if in.Valid&fuse.FATTR_UID != 0 {
			uid = int(in.Uid)
		}
		if in.Valid&fuse.FATTR_GID != 0 {
			gid = int(in.Gid)
		}
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if in.Valid&fuse.FATTR_MODE != 0 {
		if err := unix.Chmod(h.link(), in.Mode&0o7777); err != nil {
			return err
		}
	}
	return setTimes(fd, in)
}

func (fs *FS) resize(n *node, size int64) error {
	if n.kind != unix.S_IFREG {
		return unix.EINVAL
	}
	fd, err := fs.open(n, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Ftruncate(fd, size)
}

func setTimes(fd int, in *fuse.SetAttrIn) error {
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) == 0 {
		return nil
	}
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if in.Valid&fuse.FATTR_ATIME != 0 {
		times[0] = unix.Timespec{Sec: int64(in.Atime), Nsec: int64(in.Atimensec)}
	}
	if in.Valid&fuse.FATTR_ATIME_NOW != 0 {
		times[0] = unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	if in.Valid&fuse.FATTR_MTIME != 0 {
		times[1] = unix.Timespec{Sec: int64(in.Mtime), Nsec: int64(in.Mtimensec)}
	}
	if in.Valid&fuse.FATTR_MTIME_NOW != 0 {
		times[1] = unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	empty := [1]byte{}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&times[0])), unix.AT_EMPTY_PATH, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// StatFs is the file system of the view's directory.
func (fs *FS) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	n := fs.get(in.NodeId)
	if n == nil || n.view == nil {
		return fuse.OK
	}
	h, err := fs.directory(n.view.root)
	if err != nil {
		return status(err)
	}
	defer h.release()
	var st unix.Statfs_t
	if err := unix.Fstatfs(h.fd, &st); err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), NameLen: uint32(st.Namelen), Frsize: uint32(st.Frsize),
	}
	return fuse.OK
}

// isOwnXAttr says whether an attribute is the user's to set. Others change what
// the host does with a file.
func isOwnXAttr(name string) bool { return strings.HasPrefix(name, "user.") }

// xattrs opens a file to ask for its attributes by the path it returns.
func (fs *FS) xattrs(id uint64, want pathrule.Permission) (n *node, h *handle, err error) {
	n = fs.get(id)
	switch {
	case n == nil || n.view == nil:
		return nil, nil, unix.ESTALE
	case n.kind != unix.S_IFREG && n.kind != unix.S_IFDIR:
		return nil, nil, unix.ENODATA
	case n.allows() < want && !(n.isDir() && want == pathrule.Read):
		return nil, nil, refusal(n.allows())
	}
	fd, err := fs.open(n, unix.O_PATH)
	if err != nil {
		return nil, nil, err
	}
	return n, newHandle(fd), nil
}

// GetXAttr reads an attribute, which is content.
func (fs *FS) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if !isOwnXAttr(name) {
		return 0, fuse.Status(unix.ENODATA)
	}
	_, h, err := fs.xattrs(in.NodeId, pathrule.Read)
	if err != nil {
		return 0, status(err)
	}
	defer h.release()
	size, err := unix.Getxattr(h.link(), name, dest)
	return sized(size, err, len(dest), func() (int, error) { return unix.Getxattr(h.link(), name, nil) })
}

// sized is an answer in a buffer that may be too small, for which the size is
// told.
func sized(size int, err error, room int, measure func() (int, error)) (uint32, fuse.Status) {
	if errors.Is(err, unix.ERANGE) || err == nil && size > room {
		if size, err = measure(); err == nil {
			return uint32(size), fuse.ERANGE
		}
	}
	return uint32(max(size, 0)), status(err)
}

// ListXAttr names the attributes that can be read.
func (fs *FS) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	_, h, err := fs.xattrs(in.NodeId, pathrule.Read)
	if err != nil {
		return 0, fuse.OK
	}
	defer h.release()
	all := make([]byte, 64<<10) // as long as the kernel lets it be
	size, err := unix.Listxattr(h.link(), all)
	if err != nil {
		return 0, status(err)
	}
	var own []byte
	for name := range strings.SplitSeq(string(all[:size]), "\x00") {
		if isOwnXAttr(name) {
			own = append(append(own, name...), 0)
		}
	}
	if len(own) > len(dest) {
		return uint32(len(own)), fuse.ERANGE
	}
	return uint32(copy(dest, own)), fuse.OK
}

// SetXAttr sets an attribute.
func (fs *FS) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	if !isOwnXAttr(name) {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	n, h, err := fs.xattrs(in.NodeId, pathrule.Write)
	if err != nil {
		return status(err)
	}
	defer h.release()
	err = unix.Setxattr(h.link(), name, data, int(in.Flags))
	fs.changed(n)
	return status(err)
}

// RemoveXAttr removes an attribute.
func (fs *FS) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if !isOwnXAttr(name) {
		return fuse.Status(unix.ENODATA)
	}
	n, h, err := fs.xattrs(in.NodeId, pathrule.Write)
	if err != nil {
		return status(err)
	}
	defer h.release()
	err = unix.Removexattr(h.link(), name)
	fs.changed(n)
	return status(err)
}
