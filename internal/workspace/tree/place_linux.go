package tree

import (
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenBelow opens a file below a directory. No part of the path may be a symbolic
// link, nor lead out: whoever made the tree may have planted one.
func OpenBelow(root *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if name == "" {
		name = "."
	}
	for {
		fd, err := unix.Openat2(int(root.Fd()), name, &how)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue // somebody renames something meanwhile
		}
		if err != nil {
			return nil, fail("open", name, err)
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// Put writes a file below a directory: all of it or nothing. What was there by
// that name is replaced, if it is not a directory. The content is on the disk
// before the name is, so that a crash leaves the old file or the new one. Directories
// on the way must exist.
func Put(root *os.File, name string, m Meta, write func(*os.File) error) error {
	dir, err := OpenBelow(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	base := path.Base(name)
	f, temporary, err := createTemporary(dir, base)
	if err != nil {
		return fail("create", name, err)
	}
	defer f.Close()
	err = write(f)
	if err == nil {
		err = m.Set(int(f.Fd()))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temporary, int(dir.Fd()), base)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		return fail("write", name, err)
	}
	return dir.Sync()
}

// createTemporary makes an empty file beside the one that it is to replace.
func createTemporary(dir *os.File, base string) (*os.File, string, error) {
	if len(base) > 200 { // a name has at most 255 bytes
		base = base[:200]
	}
	for n := 0; ; n++ {
		name := "." + base + ".bailey-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n)
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == unix.EEXIST {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		return os.NewFile(uintptr(fd), name), name, nil
	}
}
