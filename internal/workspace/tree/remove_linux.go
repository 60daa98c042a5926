package tree

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// deepest is how many directories below each other Remove keeps open. What lies
// deeper is moved up first: whoever made the tree may have nested it deeper than
// there are descriptors.
const deepest = 64

// Remove removes a file or a whole tree below an open directory. Directories
// that their owner may not read, as the kernel leaves in overlayfs's work
// directory, are made readable first. A name that does not exist is no error.
func Remove(dir *os.File, name string) error {
	r := remover{top: dir}
	if err := r.remove(int(dir.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "remove", Path: dir.Name() + "/" + name, Err: err}
	}
	for n := 0; n < r.moved; n++ {
		if err := r.remove(int(dir.Fd()), movedName(n), 0); err != nil {
			return &os.PathError{Op: "remove", Path: dir.Name() + "/" + movedName(n), Err: err}
		}
	}
	return nil
}

type remover struct {
	top   *os.File
	moved int // directories that were moved to the top
}

// movedName is made of the process's number, since several may remove trees in
// one directory.
func movedName(n int) string {
	return ".deep-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n)
}

func (r *remover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if depth == deepest {
		r.moved++
		return unix.Renameat(dir, name, int(r.top.Fd()), movedName(r.moved-1))
	}
	if err := r.empty(dir, name, depth); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// empty removes what is in a directory. Reading begins anew as long as something
// was removed: what a directory shows while it changes is not defined.
func (r *remover) empty(dir int, name string, depth int) error {
	fd, err := openOwn(dir, name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(4096)
		for _, n := range names {
			if err := r.remove(fd, n, depth+1); err != nil {
				return err
			}
		}
		if len(names) == 0 && err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := f.Seek(0, 0); err != nil {
			return err
		}
	}
}

// openOwn opens a directory to be changed, and gives its owner the right to do
// so if that is what lacks. The mode is changed through a descriptor, so that it
// is the directory's and not that of something put in its place.
func openOwn(dir int, name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	place, err := unix.Openat(dir, name, unix.O_PATH|flags, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return -1, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(place), 0o700); err != nil {
			return -1, err
		}
	}
	return unix.Openat(place, ".", unix.O_RDONLY|flags, 0)
}
