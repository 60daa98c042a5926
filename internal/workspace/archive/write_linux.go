package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Write writes the archive of a tree, or of several that lie on each other, top
// first. A plain archive has everything that is to be seen; the archive of a layer
// has the signs of what it hides as well. Sockets are left out: they are nothing
// without who listens.
//
// An ordinary user's own files are written as root's, so that the archive does not
// depend on who made it.
func Write(w io.Writer, stack []*os.File, form Form) error {
	return WriteReadable(w, stack, form, nil)
}

// WriteReadable is Write for trees in which not everything may be read: leave says of
// what may not whether it is left out, with all that is in it. Otherwise, and if leave
// is nil, it is an error.
func WriteReadable(w io.Writer, stack []*os.File, form Form, leave func(*tree.Node) bool) error {
	out := &writer{out: bufio.NewWriterSize(w, 256<<10), form: form, links: make(map[inode]string), leave: leave}
	if uid := os.Geteuid(); uid != 0 {
		out.uid, out.gid = uint32(uid), uint32(os.Getegid())
	}
	if err := tree.WalkStack(stack, tree.Visitor{Enter: out.enter, Shut: leave}); err != nil {
		return err
	}
	if _, err := out.out.Write(make([]byte, 2*blockSize)); err != nil {
		return err
	}
	return out.out.Flush()
}

// Digest is the SHA-256 of a tree's archive as a layer.
func Digest(root *os.File) (string, error) {
	h := sha256.New()
	if err := Write(h, []*os.File{root}, OCI); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

type inode struct{ dev, ino uint64 }

type writer struct {
	out      *bufio.Writer
	form     Form
	links    map[inode]string
	scratch  []byte
	uid, gid uint32 // are written as 0
	leave    func(*tree.Node) bool
	written  bool // something of the file that the walk is at
}

func (w *writer) enter(n *tree.Node) error {
	w.written = false
	err := w.add(n)
	if w.leave != nil && !w.written && errors.Is(err, unix.EACCES) && w.leave(n) {
		return nil
	}
	return err
}

func (w *writer) add(n *tree.Node) error {
	if n.IsWhiteout() {
		return w.whiteout(n)
	}
	h, err := w.header(n)
	if err != nil {
		return err
	}
	switch n.Type() {
	case unix.S_IFDIR:
		return w.directory(h, n)
	case unix.S_IFSOCK:
		return nil
	case unix.S_IFIFO:
		h.kind = '6'
	case unix.S_IFLNK:
		h.kind = '2'
		h.link, err = n.Readlink()
	case unix.S_IFREG:
		h.kind = '0'
	default:
		err = fmt.Errorf("%s: devices are not part of an archive", n.Path)
	}
	if err != nil {
		return err
	}
	id, name := inode{n.Stat.Dev, n.Stat.Ino}, h.name
	if first, ok := w.links[id]; ok {
		h.kind, h.link, h.records = '1', first, nil
		return w.write(h)
	}
	if n.IsRegular() {
		err = w.regular(h, n)
	} else {
		err = w.write(h)
	}
	if err == nil && n.Stat.Nlink > 1 {
		w.links[id] = name
	}
	return err
}

func (w *writer) header(n *tree.Node) (*header, error) {
	h := &header{
		name: w.form.escapePath(n.Path), mode: n.Stat.Mode & 0o7777, uid: n.Stat.Uid, gid: n.Stat.Gid,
		sec: n.Stat.Mtim.Sec, nsec: n.Stat.Mtim.Nsec,
	}
	if w.uid != 0 && h.uid == w.uid {
		h.uid = 0
	}
	if w.gid != 0 && h.gid == w.gid {
		h.gid = 0
	}
	attrs, err := n.Attrs(tree.Kept)
	if err != nil {
		return nil, err
	}
	for _, a := range attrs {
		if strings.Contains(a.Name, "=") {
			return nil, fmt.Errorf("%s: the attribute %q cannot be archived: its name has an equals sign", n.Path, a.Name)
		}
		h.records = append(h.records, "SCHILY.xattr."+a.Name+"="+string(a.Value))
	}
	return h, nil
}

func (w *writer) directory(h *header, n *tree.Node) error {
	h.kind = '5'
	h.name += "/"
	if n.Path == "" {
		h.name = "./"
	}
	if err := w.write(h); err != nil {
		return err
	}
	if !n.Opaque || w.form == Plain {
		return nil
	}
	return w.write(&header{name: strings.TrimPrefix(h.name, "./") + opaqueName, kind: '0', mode: 0o600})
}

// whiteout writes the sign of something removed. In a plain archive it is just not
// there.
func (w *writer) whiteout(n *tree.Node) error {
	if w.form == Plain {
		return nil
	}
	dir, base := path.Split(n.Path)
	if needsEscape(base) {
		base = escapePrefix + base
	}
	return w.write(&header{name: w.form.escapePath(dir) + whiteoutPrefix + base, kind: '0', mode: 0o600})
}

func (w *writer) write(h *header) error {
	b, err := h.append(w.scratch[:0])
	if err != nil {
		return err
	}
	w.scratch = b
	w.written = true
	_, err = w.out.Write(b)
	return err
}

func (w *writer) regular(h *header, n *tree.Node) error {
	f, err := n.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	size := n.Stat.Size
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil && w.leave != nil && size > 0 && err != io.EOF {
		return fmt.Errorf("%s: %w", n.Path, err) // root can open what it may not read
	}
	segments, err := findSegments(f, size)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Path, err)
	}
	h.size = size
	var table []byte
	if segments != nil {
		table = w.sparse(h, segments, size)
	} else {
		segments = []segment{{0, size}}
	}
	if err := w.write(h); err != nil {
		return err
	}
	if _, err := w.out.Write(table); err != nil {
		return err
	}
	for _, s := range segments {
		if err := w.copy(f, s); err != nil {
			return fmt.Errorf("%s: %w", n.Path, err)
		}
	}
	_, err = w.out.Write(make([]byte, padding(h.size)))
	return err
}

// sparse changes a header to that of a file with holes, in the form 1.0 of GNU tar,
// and returns the table of what is between them.
func (w *writer) sparse(h *header, segments []segment, size int64) []byte {
	table := strconv.AppendInt(nil, int64(len(segments)), 10)
	table = append(table, '\n')
	h.size = 0
	for _, s := range segments {
		table = append(strconv.AppendInt(table, s.at, 10), '\n')
		table = append(strconv.AppendInt(table, s.size, 10), '\n')
		h.size += s.size
	}
	table = append(table, make([]byte, padding(int64(len(table))))...)
	h.size += int64(len(table))
	h.records = append(h.records,
		"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name="+h.name, "GNU.sparse.realsize="+strconv.FormatInt(size, 10))
	dir, base := path.Split(h.name)
	h.name = dir + "GNUSparseFile.0/" + base
	return table
}

func (w *writer) copy(f *os.File, s segment) error {
	n, err := io.Copy(w.out, io.NewSectionReader(f, s.at, s.size))
	if err == nil && n != s.size {
		err = errors.New("it became shorter meanwhile")
	}
	return err
}
