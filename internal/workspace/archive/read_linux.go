package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
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

// Limits bound what an archive may become. Both are of what it says of itself: a
// file that is one hole costs nobody anything but those who read it.
type Limits struct {
	Bytes int64
	Files int64
}

// ErrTooLarge is returned for archives that exceed a limit.
var ErrTooLarge = errors.New("the archive is larger than allowed")

// ReadOptions say how an archive is unpacked.
type ReadOptions struct {
	Form     Form
	Limits   Limits
	Progress func(files, bytes int64)
	// Over says that the directory has files, which those of the archive come over,
	// and that others may write to it meanwhile. Everything belongs to the caller
	// then, and what the archive says of the directory itself does not count.
	Over bool
}

// Read unpacks an archive, which may be compressed by gzip, into an empty
// directory that nobody else can write to, or as Over says. It refuses what is not a file in that
// directory: names that lead out, also through symbolic links of the archive,
// devices, and marks of overlayfs that were put in by hand.
func Read(r io.Reader, root *os.File, o ReadOptions) error {
	plain, err := decompress(r)
	if err != nil {
		return err
	}
	end := &endReader{in: plain}
	u := &unpacker{ReadOptions: o, root: root, in: tar.NewReader(end), buffer: make([]byte, 256<<10), metas: make(map[string]tree.Meta)}
	defer u.forget()
	for {
		end.zeros = 0
		h, err := u.in.Next()
		if err == io.EOF && end.zeros < 2*blockSize {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("the archive: %w", err)
		}
		if err := u.add(h); err != nil {
			return fmt.Errorf("the archive: %s: %w", strconv.Quote(h.Name), err)
		}
	}
	if err := u.finish(); err != nil {
		return err
	}
	return readPadding(plain)
}

// readPadding reads what follows the end, which who hashes the archive needs. It
// is not much, or not padding.
func readPadding(r io.Reader) error {
	const most = 1 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(r, most))
	if err == nil && n == most {
		err = errors.New("the archive: something follows its end")
	}
	return err
}

// endReader counts zero bytes since the last byte that is not zero. An archive
// ends with two empty blocks; one that just ends was cut short, which the
// standard library does not tell.
type endReader struct {
	in    io.Reader
	zeros int
}

func (r *endReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if rest := bytes.TrimRight(b[:n], "\x00"); len(rest) > 0 {
		r.zeros = n - len(rest)
	} else {
		r.zeros += n
	}
	return n, err
}

func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, _ := b.Peek(6) // of less there is less to know
	switch begins := string(magic); {
	case strings.HasPrefix(begins, "\x1f\x8b"):
		return gzip.NewReader(b)
	case strings.HasPrefix(begins, "\x28\xb5\x2f\xfd"):
		return nil, compressed("zstd")
	case strings.HasPrefix(begins, "\xfd7zXZ\x00"):
		return nil, compressed("xz")
	case strings.HasPrefix(begins, "BZh") && strings.HasSuffix(begins, "1A"): // between them is how much
		return nil, compressed("bzip2")
	case strings.HasPrefix(begins, "PK\x03\x04"):
		return nil, errors.New("this is a zip file and no tar archive; unpack it, and take the directory")
	}
	return b, nil
}

func compressed(program string) error {
	return fmt.Errorf("the archive is compressed by %s, and is read plain or compressed by gzip; decompress it first: %[1]s -dc", program)
}

type unpacker struct {
	ReadOptions
	root   *os.File
	in     *tar.Reader
	buffer []byte
	files  int64
	bytes  int64

	// The directory that was used last, open.
	dir     *os.File
	dirPath string

	metas map[string]tree.Meta // of directories, set at the end
	order []string
}

func (u *unpacker) add(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	parts, err := u.Form.split(h.Name)
	if err != nil {
		return err
	}
	if err := u.count(h); err != nil {
		return err
	}
	m, err := metaOf(h)
	if err != nil {
		return err
	}
	if u.Over {
		m.Uid, m.Gid = asMade, asMade
	}
	if len(parts) == 0 {
		if h.Typeflag != tar.TypeDir {
			return errors.New("a file without a name")
		}
		if u.Over {
			return nil
		}
		return u.mark("", m)
	}
	dir, last := strings.Join(parts[:len(parts)-1], "/"), parts[len(parts)-1]
	if err := u.enter(dir); err != nil {
		return err
	}
	raw := path.Base(path.Clean(h.Name)) // before escapes are taken off
	if removed, opaque, is, err := u.Form.sign(raw); is || err != nil {
		return u.sign(h, removed, opaque, err)
	}
	return u.make(h, dir, last, m)
}

func (u *unpacker) count(h *tar.Header) error {
	if h.Size < 0 {
		return errors.New("a negative size")
	}
	u.files++
	if isRegular(h) {
		u.bytes += h.Size
	}
	if u.Limits.Files > 0 && u.files > u.Limits.Files {
		return fmt.Errorf("%w: more than %d files", ErrTooLarge, u.Limits.Files)
	}
	if u.Limits.Bytes > 0 && (u.bytes > u.Limits.Bytes || u.bytes < 0) {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, u.Limits.Bytes)
	}
	if u.Progress != nil {
		u.Progress(u.files, u.bytes)
	}
	return nil
}

func isRegular(h *tar.Header) bool {
	return h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse || h.Typeflag == tar.TypeCont
}

// asMade leaves the owner as it is: the caller, or whom the caller makes files as.
const asMade = ^uint32(0)

// metaOf takes the metadata of an entry. Attributes of the machine it came from
// are left out; those of overlayfs would decide what the kernel shows.
func metaOf(h *tar.Header) (tree.Meta, error) {
	m := tree.Meta{Mode: uint32(h.Mode) & 0o7777, Uid: uint32(h.Uid), Gid: uint32(h.Gid)}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > 1<<32-2 || h.Gid > 1<<32-2 {
		return m, errors.New("an owner that cannot be")
	}
	m.Mtime = unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok {
			continue
		}
		if strings.HasPrefix(name, tree.OverlayPrefix) || strings.HasPrefix(name, "trusted.overlay.") {
			return m, fmt.Errorf("the attribute %s is overlayfs's own", strconv.Quote(name))
		}
		if tree.Kept(name) {
			m.Attrs = append(m.Attrs, tree.Attr{Name: name, Value: []byte(value)})
		}
	}
	return m, nil
}

// enter opens the directory that a file is in. One that the archive did not name
// is made.
func (u *unpacker) enter(dir string) error {
	if u.dir != nil && u.dirPath == dir {
		return nil
	}
	u.forget()
	d, err := tree.OpenBelow(u.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		parent, name := path.Split(dir)
		parent = strings.TrimSuffix(parent, "/")
		if err := u.enter(parent); err != nil {
			return err
		}
		if err := u.mkdir(parent, name, unnamed()); err != nil {
			return err
		}
		d, err = tree.OpenBelow(u.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return errors.New("a part of the path is not a directory; symbolic links are not followed")
	}
	if err != nil {
		return err
	}
	u.forget()
	u.dir, u.dirPath = d, dir
	return nil
}

// unnamed is the metadata of a directory of which the archive says nothing. It has
// no time, so that the same archive becomes the same tree.
func unnamed() tree.Meta {
	return tree.Meta{Mode: 0o755, Uid: asMade, Gid: asMade}
}

func (u *unpacker) forget() {
	if u.dir != nil {
		_ = u.dir.Close()
		u.dir = nil
	}
}

func (u *unpacker) sign(h *tar.Header, removed string, opaque bool, err error) error {
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg || h.Size != 0 {
		return errors.New("the sign of a removed file that is not an empty file")
	}
	if opaque {
		if err := unix.Fsetxattr(int(u.dir.Fd()), tree.Opaque, []byte("y"), 0); err != nil {
			return os.NewSyscallError("setxattr", err)
		}
		return nil
	}
	removed = unescape(removed)
	if err := u.clear(removed); err != nil {
		return err
	}
	if err := unix.Mknodat(int(u.dir.Fd()), removed, unix.S_IFCHR, 0); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	// In the archive a sign has no time, so that it has none here.
	m := tree.Meta{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
	return m.SetLink(int(u.dir.Fd()), removed, false)
}

func (u *unpacker) make(h *tar.Header, dir, name string, m tree.Meta) error {
	if h.Typeflag == tar.TypeDir {
		return u.mkdir(dir, name, m)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	fd := int(u.dir.Fd())
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return u.regular(h, name, m)
	case tar.TypeLink:
		return u.link(h, name)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, fd, name); err != nil {
			return os.NewSyscallError("symlink", err)
		}
		return m.SetLink(fd, name, true)
	case tar.TypeFifo:
		if u.Over { // its mode is set by its name, which others could give to a link
			return errors.New("a pipe: remove it from the archive")
		}
		if err := unix.Mknodat(fd, name, unix.S_IFIFO|0o600, 0); err != nil {
			return os.NewSyscallError("mknod", err)
		}
		return m.SetLink(fd, name, false)
	case tar.TypeChar, tar.TypeBlock:
		return errors.New("a device: remove it from the archive")
	}
	return fmt.Errorf("a kind of file (%q) that is not known", h.Typeflag)
}

// clear removes what an earlier entry made by the same name. A directory is not
// exchanged for something else.
func (u *unpacker) clear(name string) error {
	err := unix.Unlinkat(int(u.dir.Fd()), name, 0)
	if err == unix.EISDIR {
		return errors.New("there is a directory of this name already")
	}
	if err != nil && err != unix.ENOENT {
		return os.NewSyscallError("unlink", err)
	}
	return nil
}

func (u *unpacker) mkdir(dir, name string, m tree.Meta) error {
	err := unix.Mkdirat(int(u.dir.Fd()), name, 0o700)
	if err == unix.EEXIST {
		var st unix.Stat_t
		if unix.Fstatat(int(u.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return errors.New("there is another file of this name already")
		}
		err = nil
	}
	if err != nil {
		return os.NewSyscallError("mkdir", err)
	}
	if dir != "" {
		name = dir + "/" + name
	}
	return u.mark(name, m)
}

// mark remembers what a directory is to become once everything is in it.
func (u *unpacker) mark(dir string, m tree.Meta) error {
	if _, known := u.metas[dir]; !known {
		u.order = append(u.order, dir)
	}
	u.metas[dir] = m
	return nil
}

func (u *unpacker) finish() error {
	if _, known := u.metas[""]; !known && !u.Over {
		u.order = append([]string{""}, u.order...)
		u.metas[""] = unnamed()
	}
	for i := len(u.order) - 1; i >= 0; i-- { // inner ones first: outer ones may be shut
		name := u.order[i]
		d, err := tree.OpenBelow(u.root, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		m := u.metas[name]
		err = m.Set(int(d.Fd()))
		_ = d.Close()
		if err != nil {
			return fmt.Errorf("the archive: %s: %w", strconv.Quote(name), err)
		}
	}
	return nil
}

func (u *unpacker) regular(h *tar.Header, name string, m tree.Meta) error {
	fd, err := unix.Openat(int(u.dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := u.fill(f, h.Size); err != nil {
		return err
	}
	return m.Set(fd)
}

// fill writes what is not zero, so that holes are holes again.
func (u *unpacker) fill(f *os.File, size int64) error {
	sparse := size >= minHole
	for at := int64(0); at < size; {
		n, err := io.ReadFull(u.in, u.buffer[:min(int64(len(u.buffer)), size-at)])
		if err != nil {
			return fmt.Errorf("it ends too early: %w", err)
		}
		if !sparse || !isZero(u.buffer[:n]) {
			if _, err := f.WriteAt(u.buffer[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	if !sparse {
		return nil
	}
	return f.Truncate(size)
}

// link gives a file of the archive another name. Its first name must be in the
// tree, and no symbolic link is followed on the way to it.
func (u *unpacker) link(h *tar.Header, name string) error {
	parts, err := u.Form.split(h.Linkname)
	if err == nil && len(parts) == 0 {
		err = errOutside
	}
	if err != nil {
		return fmt.Errorf("a link to %s: %w", strconv.Quote(h.Linkname), err)
	}
	parent, err := tree.OpenBelow(u.root, strings.Join(parts[:len(parts)-1], "/"), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("a link to %s: %w", strconv.Quote(h.Linkname), err)
	}
	defer parent.Close()
	first := parts[len(parts)-1]
	var st unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), first, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("a link to %s: %w", strconv.Quote(h.Linkname), err)
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFDIR {
		return fmt.Errorf("a link to %s, which is not a file", strconv.Quote(h.Linkname))
	}
	if err := unix.Linkat(int(parent.Fd()), first, int(u.dir.Fd()), name, 0); err != nil {
		return os.NewSyscallError("link", err)
	}
	return nil
}
