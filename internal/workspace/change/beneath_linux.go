package change

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// root is a directory below which everything happens. Nothing outside of it can
// be reached through it: no link is followed, and no other mount entered, since
// an overlay shows none.
type root struct{ *os.File }

func openRoot(dir string) (root, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return root{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return root{os.NewFile(uintptr(fd), dir)}, nil
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openAt opens a path below a directory.
func openAt(dir int, name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: beneath}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// open opens a regular file to be read.
func (r root) open(name string) (*os.File, error) { return openFile(int(r.Fd()), name) }

func openFile(dir int, name string) (*os.File, error) {
	// Not blocking: a pipe may have been put in its place.
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, failed("open", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = failed("open", name, errors.New("it is no regular file any more"))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// parent opens the directory that a path is in, to be used for names in it.
func (r root) parent(name string) (dir int, base string, err error) {
	dir, err = openAt(int(r.Fd()), path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", failed("open", path.Dir(name), err)
	}
	return dir, path.Base(name), nil
}

// in calls a function with the directory that a path is in.
func (r root) in(name string, do func(dir int, base string) error) error {
	dir, base, err := r.parent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return do(dir, base)
}

// lstat looks at a path. What is not there, or cannot be there because something
// on the way is no directory, is not found.
func (r root) lstat(name string) (st unix.Stat_t, found bool, err error) {
	err = r.in(name, func(dir int, base string) error { return unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case err == nil:
		return st, true, nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return st, false, nil
	}
	return st, false, err
}

func (r root) readlink(name string) (text string, err error) {
	err = r.in(name, func(dir int, base string) error {
		text, err = readlinkAt(dir, base)
		return err
	})
	return text, err
}

func readlinkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// failed names the file in an error. Names are any bytes, so they are quoted
// where that makes a difference.
func failed(op, name string, err error) error {
	if quoted := strconv.Quote(name); quoted[1:len(quoted)-1] != name {
		name = quoted
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
