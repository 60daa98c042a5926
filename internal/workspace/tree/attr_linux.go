package tree

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Attr is an extended attribute.
type Attr struct {
	Name  string
	Value []byte
}

// OverlayPrefix begins the attributes in which overlayfs keeps its own notes.
const OverlayPrefix = "user.overlay."

// Opaque is the attribute of a directory that hides what is below it.
const Opaque = OverlayPrefix + "opaque"

// Kept says whether an attribute belongs to a file wherever it is. Others are
// labels of the machine it is on, or overlayfs's.
func Kept(name string) bool {
	switch {
	case strings.HasPrefix(name, OverlayPrefix):
		return false
	case strings.HasPrefix(name, "user."):
		return true
	}
	return name == "security.capability" || name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// Attrs returns the extended attributes of an open file for which keep says so,
// sorted by name. A file system without such has none.
func Attrs(fd int, keep func(name string) bool) ([]Attr, error) {
	var room [1024]byte
	list, err := listAttrs(fd, room[:])
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var attrs []Attr
	for name := range bytes.SplitSeq(list, []byte{0}) {
		if len(name) == 0 || !keep(string(name)) {
			continue
		}
		value, err := getAttr(fd, string(name))
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, Attr{string(name), value})
	}
	slices.SortFunc(attrs, func(a, b Attr) int { return strings.Compare(a.Name, b.Name) })
	return attrs, nil
}

func listAttrs(fd int, b []byte) ([]byte, error) {
	for {
		n, err := unix.Flistxattr(fd, b)
		if err != unix.ERANGE {
			return b[:max(n, 0)], err
		}
		b = make([]byte, 4*len(b))
	}
}

func getAttr(fd int, name string) ([]byte, error) {
	b := make([]byte, 256)
	for {
		n, err := unix.Fgetxattr(fd, name, b)
		if err != unix.ERANGE {
			return b[:max(n, 0)], err
		}
		b = make([]byte, 4*len(b))
	}
}

// Attrs returns the extended attributes of the file for which keep says so. Only
// regular files and directories can have any of those.
func (n *Node) Attrs(keep func(name string) bool) ([]Attr, error) {
	if len(n.fds) > 0 {
		attrs, err := Attrs(int(n.fds[0].Fd()), keep)
		if err != nil {
			return nil, n.fail("xattr", err)
		}
		return attrs, nil
	}
	if !n.IsRegular() {
		return nil, nil
	}
	f, err := n.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	attrs, err := Attrs(int(f.Fd()), keep)
	if err != nil {
		return nil, n.fail("xattr", err)
	}
	return attrs, nil
}

// Meta is what is set on a file once it has its content.
type Meta struct {
	Mode     uint32 // permissions, with the set-id and sticky bits
	Uid, Gid uint32
	Mtime    unix.Timespec
	Attrs    []Attr
}

// MetaOf takes the metadata of a file that was looked at.
func MetaOf(st *unix.Stat_t, attrs []Attr) Meta {
	return Meta{Mode: st.Mode & 0o7777, Uid: st.Uid, Gid: st.Gid, Mtime: st.Mtim, Attrs: attrs}
}

// Set gives an open file its metadata. Only root gives files away. The owner
// comes first, since changing it clears bits of the mode and capabilities; the
// time comes last.
func (m *Meta) Set(fd int) error {
	if os.Geteuid() == 0 {
		if err := unix.Fchown(fd, int(m.Uid), int(m.Gid)); err != nil {
			return os.NewSyscallError("chown", err)
		}
	}
	for _, a := range m.Attrs {
		if err := unix.Fsetxattr(fd, a.Name, a.Value, 0); err != nil && !m.mayLack(a.Name, err) {
			return os.NewSyscallError("setxattr "+a.Name, err)
		}
	}
	if err := unix.Fchmod(fd, m.Mode); err != nil {
		return os.NewSyscallError("chmod", err)
	}
	return setTime(fd, m.Mtime)
}

// mayLack says whether an attribute can be left out: capabilities of programs are
// root's to give, and count for nothing in a sandbox.
func (m *Meta) mayLack(name string, err error) bool {
	return name == "security.capability" && errors.Is(err, unix.EPERM)
}

// setTime sets when an open file was changed, and leaves when it was read.
func setTime(fd int, mtime unix.Timespec) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	if err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH); err != nil {
		return os.NewSyscallError("utimensat", err)
	}
	return nil
}

// SetLink gives a symbolic link, a pipe or a device, none of which is opened, its
// owner and time, and all but links their mode.
func (m *Meta) SetLink(dir int, name string, isLink bool) error {
	if os.Geteuid() == 0 {
		if err := unix.Fchownat(dir, name, int(m.Uid), int(m.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return os.NewSyscallError("chown", err)
		}
	}
	if !isLink {
		if err := unix.Fchmodat(dir, name, m.Mode, 0); err != nil {
			return os.NewSyscallError("chmod", err)
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, m.Mtime}
	if err := unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("utimensat", err)
	}
	return nil
}
