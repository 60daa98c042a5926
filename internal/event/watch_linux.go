package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Watch waits for changes of an audit log.
type Watch struct{ events *os.File }

// NewWatch watches the files in dir, which it makes if it is missing. What
// changes after it has returned is not missed.
func NewWatch(dir string) (*Watch, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, watchError(dir, err)
	}
	w := &Watch{os.NewFile(uintptr(fd), "inotify")}
	const what = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	if _, err := unix.InotifyAddWatch(fd, dir, what); err != nil {
		w.Close()
		return nil, watchError(dir, err)
	}
	return w, nil
}

// watchError explains two errors that the kernel reports in words for something
// else.
func watchError(dir string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EMFILE):
		hint = "; as root, raise: sysctl fs.inotify.max_user_instances"
	case errors.Is(err, unix.ENOSPC):
		hint = "; as root, raise: sysctl fs.inotify.max_user_watches"
	}
	return fmt.Errorf("watch %s: %w%s", plain.Word(dir), err, hint)
}

// Wait returns when something has changed since the last call. The error is
// fs.ErrClosed after Close, and fs.ErrNotExist when the directory was removed.
func (w *Watch) Wait() error {
	var buf [4096]byte
	n, err := w.events.Read(buf[:])
	if errors.Is(err, os.ErrClosed) {
		return fs.ErrClosed
	}
	if err != nil {
		return err
	}
	// struct inotify_event: wd, mask, cookie, len, and len bytes of name.
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		if binary.NativeEndian.Uint32(b[4:])&unix.IN_IGNORED != 0 {
			return fs.ErrNotExist
		}
		b = b[unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])):]
	}
	return nil
}

// Close ends a Wait in another goroutine.
func (w *Watch) Close() { _ = w.events.Close() }
