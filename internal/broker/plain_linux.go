package broker

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Most paths lead through no link. Such a one is judged as it is written and
// opened in a single call that would fail if a link were in it after all; then,
// and whenever anything else is unusual, the longer way is taken.

// plain makes an absolute, clean path of a name and the directory it starts
// from. It reports false for a path that cannot be cleaned without a look at
// the files: one with "..", or one that ends as a directory's does. The path is
// good until the next call.
func (w *worker) plain(base, name string) (string, bool) {
	buf := w.path[:0]
	for _, part := range [...]string{base, name} {
		for part != "" {
			var element string
			element, part, _ = strings.Cut(part, "/")
			switch element {
			case "", ".":
			case "..":
				return "", false
			default:
				buf = append(append(buf, '/'), element...)
			}
		}
	}
	last := name[strings.LastIndexByte(name, '/')+1:]
	if last == "" || last == "." || len(buf) >= unix.PathMax {
		return "", false
	}
	w.path = append(buf, 0)
	return unsafe.String(&w.path[0], len(buf)), true
}

// openFlags are those that the kernel knows. To openat2 others are an error, to
// openat they are nothing.
const openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC | unix.O_APPEND | unix.O_NONBLOCK |
	unix.O_SYNC | unix.O_ASYNC | unix.O_DIRECT | unix.O_LARGEFILE | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC

// openDirect opens the path in w.path, if there is no link in it.
func (w *worker) openDirect(flags int, mode uint32) (int, unix.Errno) {
	how := unix.OpenHow{
		Flags:   uint64(flags&openFlags) | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode & 0o7777)
	}
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT2, uintptr(w.root), uintptr(unsafe.Pointer(&w.path[0])),
		uintptr(unsafe.Pointer(&how)), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), 0
}

// openPlainToWrite opens or makes a file in an area.
func (w *worker) openPlainToWrite(n *notification, path string, flags int, mode uint32) (a answer, ok bool) {
	if flags&unix.O_TMPFILE == unix.O_TMPFILE || !w.rules.inArea(path) || w.rules.isSuspectToOpen(path, flags) {
		return a, false
	}
	if flags&unix.O_CREAT != 0 {
		if mode&0o6000 != 0 {
			return a, false
		}
		mode &^= w.masks.of(n)
	}
	if !w.listener.isValid(n.id) {
		return refuse(unix.ESRCH), true
	}
	fd, errno := w.openDirect(flags, mode)
	switch {
	case errno == unix.ELOOP || errno == unix.ENXIO || errno == unix.EAGAIN:
		return a, false // a link, a named pipe, or something was moved meanwhile
	case errno != 0:
		return refuse(errno), true
	}
	return w.opened(fd, flags), true
}

// openPlainToRead opens a file for reading only.
func (w *worker) openPlainToRead(n *notification, path string, flags int) (a answer, ok bool) {
	if spec.IsOwn(path) || w.rules.isSuspect(reading, path) {
		return a, false
	}
	fd, errno := w.openDirect(flags, 0)
	switch {
	case errno == unix.ELOOP || errno == unix.ENXIO || errno == unix.EAGAIN:
		return a, false
	case errno != 0:
		return refuse(errno), true
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO && flags&unix.O_NONBLOCK == 0 {
		// This end stays open until the caller has its own, so that who waits at
		// the other does not meet a pipe that nobody reads.
		defer func() { _ = unix.Close(fd) }()
		return w.waitForPipe(n, fd, flags), true
	}
	a = w.opened(fd, flags)
	a.read = true
	return a, true
}

// cwdOf reads where the caller's working directory is.
func (w *worker) cwdOf(pid uint32) (string, unix.Errno) {
	var name [32]byte
	buf := append(name[:0], "/proc/"...)
	buf = strconv.AppendUint(buf, uint64(pid), 10)
	buf = append(buf, "/cwd\x00"...)
	size, _, errno := unix.RawSyscall6(unix.SYS_READLINKAT, atCwdArg, uintptr(unsafe.Pointer(&buf[0])),
		uintptr(unsafe.Pointer(&w.link[0])), uintptr(len(w.link)), 0, 0)
	switch {
	case errno != 0:
		return "", errno
	case int(size) == len(w.link):
		return "", unix.ENAMETOOLONG
	}
	return string(w.link[:size]), 0
}

const atCwdArg = ^uintptr(99) // AT_FDCWD
