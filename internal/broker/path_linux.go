package broker

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// spot is a name in a directory, which need not exist.
type spot struct {
	dir  int    // the directory, opened by O_PATH
	real string // its path, free of links
	name string
	// slash says that the caller wrote a slash after the name, so that it must
	// be a directory.
	slash bool
}

// last is the end of the path as the caller wrote it. The calls that make, move
// or remove a name follow no link at the end, with a slash or without.
func (s *spot) last() string {
	if s.slash {
		return s.name + "/"
	}
	return s.name
}

// isDots says whether the path ends in "." or "..". Nothing can be made or moved
// under that name, and the kernel has its own error for every attempt.
func (s *spot) isDots() bool { return s.name == "." || s.name == ".." }

func (s *spot) path() string {
	if s.real == "/" {
		return "/" + s.name
	}
	return s.real + "/" + s.name
}

func (s *spot) close() { _ = unix.Close(s.dir) }

// errNoName is returned for the root, which has no name and no directory that
// holds it. Nothing can be made of it, so the kernel may say so.
const errNoName = unix.EISDIR

// absolute returns a path of the caller as it is from the sandbox's root, with
// nothing resolved. Names that lead to the caller itself are replaced, since
// they would lead to us.
func (w *worker) absolute(n *notification, dirfd uint64, name string) (string, unix.Errno) {
	start, errno := w.startOf(n, dirfd, name)
	if errno != 0 {
		return "", errno
	}
	return w.join(n, start, name)
}

// startOf returns the directory that a name of the caller starts from, empty for
// an absolute one.
func (w *worker) startOf(n *notification, dirfd uint64, name string) (string, unix.Errno) {
	switch {
	case name == "":
		return "", unix.ENOENT
	case strings.HasPrefix(name, "/"):
		return "", 0
	}
	return w.base(n, dirfd)
}

// join is the second half of absolute.
func (w *worker) join(n *notification, start, name string) (string, unix.Errno) {
	switch {
	case !strings.HasPrefix(name, "/"):
		return start + "/" + name, 0
	case isOwnName(name):
		return w.expand(n, name)
	}
	return name, 0
}

// base returns the directory that relative names start from.
func (w *worker) base(n *notification, dirfd uint64) (string, unix.Errno) {
	if int32(dirfd) == unix.AT_FDCWD {
		text, errno := w.cwdOf(n.pid)
		if errno == 0 && !strings.HasPrefix(text, "/") {
			errno = unix.ENOENT
		}
		return text, errno
	}
	return w.leadsTo(n, "fd/"+strconv.Itoa(int(int32(dirfd))))
}

// leadsTo reads a link in the caller's directory of /proc that names a place in
// the file tree.
func (w *worker) leadsTo(n *notification, name string) (string, unix.Errno) {
	text, errno := w.readlink(unix.AT_FDCWD, procOf(n)+name)
	switch {
	case errno == unix.ENOENT && strings.HasPrefix(name, "fd/"):
		return "", unix.EBADF
	case errno != 0:
		return "", errno
	case !strings.HasPrefix(text, "/"):
		return "", unix.ENOTDIR
	}
	return text, 0
}

func procOf(n *notification) string { return "/proc/" + strconv.Itoa(int(n.pid)) + "/" }

// isOwnName says whether a path starts in /proc or is one of the links in /dev
// that lead there.
func isOwnName(name string) bool {
	return strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/dev/fd") || strings.HasPrefix(name, "/dev/std")
}

// expand replaces the beginning of a path that is about the caller itself. What
// it does not know is left as it is: the kernel will perform the call then.
func (w *worker) expand(n *notification, name string) (string, unix.Errno) {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	switch {
	case parts[0] == "dev" && len(parts) == 2:
		if fd, ok := ownDescriptor("/dev/" + parts[1]); ok {
			return w.leadsTo(n, "fd/"+fdName(fd))
		}
	case parts[0] == "dev" && len(parts) >= 3 && parts[1] == "fd":
		return w.expandFrom(n, "fd/"+parts[2], parts[3:])
	case parts[0] == "proc" && len(parts) >= 3 && (parts[1] == "self" || parts[1] == "thread-self"):
		switch {
		case parts[2] == "cwd":
			return w.expandFrom(n, "cwd", parts[3:])
		case parts[2] == "root":
			return "/" + strings.Join(parts[3:], "/"), 0
		case parts[2] == "fd" && len(parts) >= 4:
			return w.expandFrom(n, "fd/"+parts[3], parts[4:])
		}
	}
	return name, 0
}

func (w *worker) expandFrom(n *notification, link string, rest []string) (string, unix.Errno) {
	to, errno := w.leadsTo(n, link)
	if errno == unix.EBADF {
		errno = unix.ENOENT // a descriptor that is not open is a name that is not there
	}
	if errno != 0 || len(rest) == 0 {
		return to, errno
	}
	return to + "/" + strings.Join(rest, "/"), 0
}

// locate opens the directory that holds the last name of an absolute path, as
// the caller would reach it. A link at the end is not followed.
func (w *worker) locate(abs string) (spot, unix.Errno) {
	trimmed := strings.TrimRight(abs, "/")
	i := strings.LastIndexByte(trimmed, '/')
	if i < 0 {
		return spot{}, errNoName
	}
	s := spot{name: trimmed[i+1:], slash: len(trimmed) < len(abs)}
	var errno unix.Errno
	if s.dir, errno = w.openInside(trimmed[:i+1], unix.O_DIRECTORY); errno != 0 {
		return spot{}, errno
	}
	if s.real, errno = w.realPath(s.dir); errno == 0 {
		// A descriptor by O_PATH does not say whether names may be looked up in it.
		errno = errnoOf(unix.Faccessat(s.dir, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS))
	}
	if errno != 0 {
		s.close()
		return spot{}, errno
	}
	return s, 0
}

// failsInArea says whether the nearest directory on the way to a path that leads
// nowhere lies in an area.
func (w *worker) failsInArea(abs string) bool {
	for abs = strings.TrimRight(abs, "/"); abs != ""; {
		abs = strings.TrimRight(abs[:strings.LastIndexByte(abs, '/')+1], "/")
		dir, errno := w.openInside(abs+"/", unix.O_DIRECTORY)
		if errno != 0 {
			continue
		}
		real, errno := w.realPath(dir)
		_ = unix.Close(dir)
		if errno != 0 {
			continue // it was there only for a moment: what counts is where
		}
		return w.rules.inArea(real)
	}
	return false
}

// openInside opens a path by O_PATH as a process in the sandbox would: its root
// is the root of absolute links and the end of "..".
func (w *worker) openInside(name string, flags uint64) (int, unix.Errno) {
	name, errno := w.shorten(name)
	if errno != 0 {
		return -1, errno
	}
	return w.openShort(name, flags)
}

// openShort is openInside for a path that is not too long.
func (w *worker) openShort(name string, flags uint64) (int, unix.Errno) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT}
	// The kernel gives up on ".." when anything is renamed or mounted meanwhile,
	// by whomever on the machine.
	const patience = 200
	for tries := 1; ; tries++ {
		fd, err := unix.Openat2(w.root, name, &how)
		switch {
		case err == nil:
			return fd, 0
		case err != unix.EAGAIN || tries == patience:
			return -1, errnoOf(err)
		}
	}
}

// shorten makes a path fit for the kernel. What the caller names may be as long as
// a path can be and start from a directory whose own is long: then the first part
// of both is replaced by the real path of what it leads to.
func (w *worker) shorten(name string) (string, unix.Errno) {
	for len(name) >= unix.PathMax {
		i := strings.LastIndexByte(name[:unix.PathMax-1], '/')
		dir, errno := w.openShort(name[:i+1], unix.O_DIRECTORY)
		if errno != 0 {
			return "", errno
		}
		real, errno := w.realPath(dir)
		_ = unix.Close(dir)
		switch {
		case errno != 0:
			return "", errno
		case len(real) >= i:
			return "", unix.ENAMETOOLONG // it is as short as it can be
		}
		name = real + name[i:]
	}
	return name, 0
}

// realPath returns where a descriptor leads to, as it is called inside.
func (w *worker) realPath(fd int) (string, unix.Errno) {
	text, errno := w.readlink(w.self, strconv.Itoa(fd))
	switch {
	case errno != 0:
		return "", errno
	case !strings.HasPrefix(text, "/"):
		return "", unix.ENOENT
	case strings.HasSuffix(text, " (deleted)") && !w.isNamed(fd, text):
		// So says the kernel of what does not have this name any more. It may
		// still have another.
		return "", unix.ENOENT
	}
	return text, 0
}

func (w *worker) readlink(dir int, name string) (string, unix.Errno) {
	n, err := unix.Readlinkat(dir, name, w.link[:])
	switch {
	case err != nil:
		return "", errnoOf(err)
	case n == len(w.link):
		return "", unix.ENAMETOOLONG
	}
	return string(w.link[:n]), 0
}

// follow returns what a link at a spot says, as an absolute path, or EINVAL if
// there is no link.
func (w *worker) follow(s *spot) (string, unix.Errno) {
	text, errno := w.readlink(s.dir, s.name)
	switch {
	case errno != 0:
		return "", errno
	case text == "":
		return "", unix.ENOENT
	case strings.HasPrefix(text, "/"):
		return text, 0
	}
	return path.Join("/", s.real) + "/" + text, 0
}

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if err == nil || errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
