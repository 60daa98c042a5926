//go:build !linux

package host

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Lstat describes a path as far as the portable interface can. Owners, devices
// and link counts stay zero: only the runtimes of Linux need them.
func (f *Facts) Lstat(path string) (spec.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return spec.FileInfo{}, err
	}
	return spec.FileInfo{Type: fileType(info.Mode()), Mode: uint32(info.Mode().Perm()), UID: f.Caller.UID}, nil
}

func fileType(mode fs.FileMode) spec.FileType {
	switch mode.Type() {
	case 0:
		return spec.TypeRegular
	case fs.ModeDir:
		return spec.TypeDirectory
	case fs.ModeSymlink:
		return spec.TypeLink
	case fs.ModeSocket:
		return spec.TypeSocket
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return spec.TypeDevice
	}
	return spec.TypeOther
}

// ReadDir returns the sorted names in a directory.
func (f *Facts) ReadDir(path string, limit int) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(limit + 1)
	if len(names) > limit {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: errTooMany}
	}
	if err == io.EOF {
		err = nil
	}
	slices.Sort(names)
	return names, err
}

// ReadFile reads a small regular file.
func (f *Facts) ReadFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EINVAL}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readAll(file)
}

// Readable errs on the side of hiding more.
func (f *Facts) Readable(string) bool { return true }

// Mounts is empty: these systems have no bind mounts.
func (f *Facts) Mounts() ([]spec.MountPoint, error) { return nil, nil }

func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
