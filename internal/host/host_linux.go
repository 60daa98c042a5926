package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Lstat describes a path. The error is the bare errno: most questions are about
// files that do not exist, and nobody reads the answer's text.
func (f *Facts) Lstat(path string) (spec.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return spec.FileInfo{}, err
	}
	return spec.FileInfo{
		Type:  fileType(st.Mode),
		Mode:  st.Mode & 0o7777,
		UID:   int(st.Uid),
		GID:   int(st.Gid),
		Dev:   uint64(st.Dev),
		Ino:   st.Ino,
		Nlink: uint64(st.Nlink),
	}, nil
}

func fileType(mode uint32) spec.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return spec.TypeRegular
	case unix.S_IFDIR:
		return spec.TypeDirectory
	case unix.S_IFLNK:
		return spec.TypeLink
	case unix.S_IFSOCK:
		return spec.TypeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return spec.TypeDevice
	}
	return spec.TypeOther
}

// ReadDir returns the sorted names in a directory.
func (f *Facts) ReadDir(path string, limit int) ([]string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	names := make([]string, 0, min(limit, 32))
	buf := make([]byte, 8<<10)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil {
			return nil, &fs.PathError{Op: "readdir", Path: path, Err: err}
		}
		if n == 0 {
			slices.Sort(names)
			return names, nil
		}
		if _, _, names = unix.ParseDirent(buf[:n], -1, names); len(names) > limit {
			return nil, &fs.PathError{Op: "readdir", Path: path, Err: errTooMany}
		}
	}
}

// ReadFile reads a small regular file. A FIFO or device in its place would
// block or worse, so it is opened without waiting and looked at first.
func (f *Facts) ReadFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "fstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EINVAL}
	}
	return readAll(descriptor(fd))
}

// descriptor reads a file without the poller that os.File would start.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(int(d), p) })
	if err != nil {
		return 0, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Readable asks the kernel with the effective ids, as an open would.
func (f *Facts) Readable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS) == nil ||
		unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil
}

// Mounts reads the calling process's mount table.
func (f *Facts) Mounts() ([]spec.MountPoint, error) {
	const table = "/proc/self/mountinfo"
	fd, err := unix.Open(table, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: table, Err: err}
	}
	defer unix.Close(fd)
	return ParseMounts(descriptor(fd))
}

// workingDir asks the kernel, which knows no links, and not PWD.
func workingDir() (string, error) {
	dir, err := unix.Getwd()
	if err != nil {
		return "", os.NewSyscallError("getcwd", err)
	}
	return dir, nil
}
