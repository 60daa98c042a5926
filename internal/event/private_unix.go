//go:build unix

package event

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// openPrivate opens a file of the caller's own. A symbolic link, a second name
// of another file, something that is no file, and a file of another user or
// that others can write are refused: what is recorded would go somewhere else,
// or could be forged.
func openPrivate(path string, flags int) (*os.File, error) {
	// Without O_NONBLOCK a pipe of that name would wait for its other end.
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link; remove it", plain.Word(path))
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkFile(path, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file; remove it", plain.Word(path))
	}
	if links(info) > 1 {
		return fmt.Errorf("%s is a hard link, so it may be another file as well; remove it", plain.Word(path))
	}
	return checkOwner(path, info)
}

// checkDir requires a directory of the caller's own.
func checkDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; remove it", plain.Word(path))
	}
	return checkOwner(path, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d); remove it, or run as that user", plain.Word(path), uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others; run: chmod go-w %s", plain.Word(path), plain.Word(path))
	}
	return nil
}

// links is how many names a file has. It is 0 when the last was removed.
func links(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) }

// writeOnce calls write(2) once: the rest of a short write, in a call of its
// own, could come after another process's line.
func writeOnce(f *os.File, line []byte) error {
	var n int
	var failed error
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = c.Control(func(fd uintptr) {
		for {
			if n, failed = syscall.Write(int(fd), line); !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return fmt.Errorf("%s: %w", plain.Word(f.Name()), failed)
	case n < len(line):
		return fmt.Errorf("%s: %w; is the disk full?", plain.Word(f.Name()), io.ErrShortWrite)
	}
	return nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
