package broker

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// open opens a file, or makes it. Where the kernel may perform the call, Landlock
// keeps it from writing in an area; nothing keeps it from reading, so if there
// are rules about that, it may not perform what only reads.
func (w *worker) open(n *notification, dirfd, name uint64, flags int, mode uint32) answer {
	if contradict(flags) {
		return refuse(unix.EINVAL)
	}
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return refuse(errno)
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY && flags&unix.O_TRUNC != 0 {
		// Nobody means that, and Landlock would let it pass.
		return refuse(unix.EACCES)
	}
	if w.rules.reads && flags&unix.O_ACCMODE == unix.O_RDONLY {
		if flags&unix.O_CREAT != 0 && w.lent(n) == LentNoFile {
			return refuse(unix.EACCES) // the kernel may not read, and we may not make
		}
		return w.openToRead(n, dirfd, text, flags, mode)
	}
	if text == "/dev/null" || text == "/dev/tty" {
		return pass // nearly every shell script does
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY && flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return pass // it was only to be observed
	}
	if w.lent(n) == LentNoFile {
		return pass
	}
	if fd, ok := ownDescriptor(text); ok {
		return w.reopen(n, fd, flags)
	}
	start, errno := w.startOf(n, dirfd, text)
	if errno != 0 {
		return pass
	}
	if p, ok := w.plain(start, text); ok {
		if a, ok := w.openPlainToWrite(n, p, flags, mode); ok {
			return a
		}
	}
	abs, errno := w.join(n, start, text)
	if errno != 0 || !w.listener.isValid(n.id) {
		return pass
	}
	return w.openNamed(n, abs, flags, mode)
}

// contradict says whether flags exclude each other. Linux before 6.4 made a file of
// O_CREAT with O_DIRECTORY.
func contradict(flags int) bool {
	const unnamed = unix.O_TMPFILE &^ unix.O_DIRECTORY
	switch {
	case flags&unix.O_CREAT != 0 && flags&unix.O_DIRECTORY != 0:
		return true
	case flags&unnamed != 0:
		return flags&unix.O_DIRECTORY == 0 || flags&unix.O_ACCMODE == unix.O_RDONLY
	}
	return false
}

// openNamed opens an absolute path, through the links it ends in.
func (w *worker) openNamed(n *notification, abs string, flags int, mode uint32) answer {
	for range maxLinks {
		a, next := w.openAt(n, abs, flags, mode)
		if next == "" {
			return a
		}
		abs = next
	}
	return refuse(unix.ELOOP)
}

// openAt opens an absolute path. If that ends in a link it returns where the
// link leads to instead.
func (w *worker) openAt(n *notification, abs string, flags int, mode uint32) (a answer, next string) {
	if flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return w.openUnnamed(n, abs, flags, mode), ""
	}
	s, errno := w.locate(abs)
	if errno != 0 {
		if a := w.unlocated(abs, errno); *a != pass {
			return *a, ""
		}
		return w.elsewhere(flags, errno), ""
	}
	defer s.close()
	if s.slash || s.isDots() {
		// Only a directory can be meant, and that is not opened this way.
		if s.isDots() && flags&unix.O_EXCL != 0 {
			return w.elsewhere(flags, unix.EEXIST), ""
		}
		return w.elsewhere(flags, unix.EISDIR), ""
	}
	if !w.rules.inArea(s.path()) {
		// Elsewhere the kernel opens it, unless a link leads into an area.
		if flags&unix.O_NOFOLLOW == 0 {
			if to, errno := w.follow(&s); errno == 0 {
				return answer{}, to
			}
		}
		if w.elsewhere(flags, 0) == pass {
			return pass, ""
		}
		if fd, err := unix.Openat(s.dir, s.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != unix.ENOENT {
			return w.openExisting(n, fd, err, flags), ""
		}
		flags |= unix.O_EXCL // what may come meanwhile is not opened
	}
	if rule := w.judgeOpen(s.dir, s.path(), flags); rule != nil {
		// A link that is protected may be followed: what it leads to is judged.
		if to, errno := w.follow(&s); errno == 0 && flags&(unix.O_NOFOLLOW|unix.O_EXCL) == 0 {
			return answer{}, to
		}
		return w.denied(n, openOp(flags), s.path(), rule), ""
	}
	return w.openSpot(n, &s, flags, mode)
}

// openExisting opens what is there already for a call that would have made it,
// and only wants to read.
func (w *worker) openExisting(n *notification, fd int, err error, flags int) answer {
	if err != nil {
		return result(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if flags&unix.O_CREAT != 0 && flags&unix.O_EXCL != 0 {
		return refuse(unix.EEXIST)
	}
	return w.openFound(n, fd, flags&^unix.O_CREAT)
}

// elsewhere is the answer for a path that lies in no area, or that cannot be
// followed: the kernel's, if it may give it.
func (w *worker) elsewhere(flags int, errno unix.Errno) answer {
	if w.rules.reads && flags&unix.O_ACCMODE == unix.O_RDONLY {
		return refuse(errno)
	}
	return pass
}

func openOp(flags int) string {
	if flags&unix.O_CREAT != 0 {
		return "create"
	}
	return "open"
}

func (w *worker) openSpot(n *notification, s *spot, flags int, mode uint32) (answer, string) {
	if flags&unix.O_CREAT != 0 {
		if mode&0o6000 != 0 {
			return refuse(unix.EPERM), "" // see package seccomp
		}
		mode &^= w.masks.of(n)
	} else {
		mode = 0
	}
	fd, errno := openName(s.dir, s.name, flags, mode)
	switch {
	case errno == unix.ELOOP && flags&unix.O_NOFOLLOW == 0:
		if to, errno := w.follow(s); errno == 0 {
			return answer{}, to
		}
		return refuse(unix.ELOOP), ""
	case errno == unix.ENXIO && flags&unix.O_NONBLOCK == 0:
		return w.openPipe(n, s, flags), ""
	case errno != 0:
		return refuse(errno), ""
	}
	return w.opened(fd, flags), ""
}

// openName opens a name in a directory that is no link. Not by O_NOFOLLOW: the
// caller would find that among the flags of its descriptor. A named pipe would
// block us until it has another end.
func openName(dir int, name string, flags int, mode uint32) (int, unix.Errno) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   uint64(flags&openFlags) | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK,
		Mode:    uint64(mode & 0o7777),
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	return fd, errnoOf(err)
}

// opened gives the caller a descriptor that we opened without blocking.
func (w *worker) opened(fd, flags int) answer {
	if flags&unix.O_NONBLOCK == 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_TRUNC|unix.O_NOCTTY)); err != nil {
			_ = unix.Close(fd)
			return result(err)
		}
	}
	return descriptor(fd, flags&unix.O_CLOEXEC != 0)
}

// openPipe waits for the other end of a named pipe, beside the other calls.
func (w *worker) openPipe(n *notification, s *spot, flags int) answer {
	pipe, err := unix.Openat(s.dir, s.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return result(err)
	}
	defer func() { _ = unix.Close(pipe) }()
	var st unix.Stat_t
	if err := unix.Fstat(pipe, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return refuse(unix.ENXIO) // a socket, or a device without a driver
	}
	return w.waitForPipe(n, pipe, flags)
}

// waitForPipe opens a named pipe when it has another end.
func (w *worker) waitForPipe(n *notification, fd, flags int) answer {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return result(err)
	}
	caller, err := openThread(int(n.pid))
	if err != nil {
		_ = unix.Close(own)
		return result(err)
	}
	flags &^= unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	return w.later(n, func(other *worker) answer { return other.openEnd(own, caller, flags) }, func() {
		_ = unix.Close(own)
		_ = unix.Close(caller)
	})
}

// openEnd opens a named pipe, which blocks until it has another end. If the
// caller is killed meanwhile we become that end for a moment: the thread would
// else wait for good, and come to a later reader as a writer that nobody is.
func (w *worker) openEnd(pipe, caller, flags int) answer {
	done, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return result(err)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if endsBefore(caller, done) {
			if fd, err := unix.Openat(w.self, fdName(pipe), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Close(fd)
			}
		}
	}()
	fd, err := unix.Openat(w.self, fdName(pipe), flags|unix.O_CLOEXEC, 0)
	_, _ = unix.Write(done, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-watched
	_ = unix.Close(done)
	if err != nil {
		return result(err)
	}
	return descriptor(fd, flags&unix.O_CLOEXEC != 0)
}

// endsBefore waits until a thread has ended or the other descriptor can be read,
// and says whether it was the first.
func endsBefore(thread, done int) bool {
	fds := []unix.PollFd{{Fd: int32(done), Events: unix.POLLIN}, {Fd: int32(thread), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err == nil && fds[0].Revents == 0
		}
	}
}

// openUnnamed makes a file without a name, which may get one by a link.
func (w *worker) openUnnamed(n *notification, abs string, flags int, mode uint32) answer {
	dir, errno := w.openInside(abs, unix.O_DIRECTORY)
	if errno != 0 {
		return pass
	}
	defer func() { _ = unix.Close(dir) }()
	real, errno := w.realPath(dir)
	switch {
	case errno != 0 || !w.rules.inArea(real):
		return pass // it is always opened to write
	case mode&0o6000 != 0:
		return refuse(unix.EPERM)
	}
	if rule := w.judge(writing, -1, real); rule != nil {
		return w.denied(n, "create", real, rule)
	}
	fd, err := unix.Openat(dir, ".", flags|unix.O_CLOEXEC, mode&0o7777&^w.masks.of(n))
	if err != nil {
		return result(err)
	}
	return descriptor(fd, flags&unix.O_CLOEXEC != 0)
}

// reopen opens what is behind a descriptor of the caller once more.
func (w *worker) reopen(n *notification, fd, flags int) answer {
	behind, errno := w.openOf(n, fd)
	if errno != 0 {
		return pass
	}
	defer func() { _ = unix.Close(behind) }()
	if a := w.judgeOpened(n, openOp(flags), behind); a != nil {
		return *a
	}
	if !w.isInside(behind) {
		return pass
	}
	opened, err := unix.Openat(w.self, fdName(behind), flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return result(err)
	}
	return w.opened(opened, flags)
}

// isInside says whether a file that the caller has open is one that it could
// open by name. Its streams may be files of the host on the host's own mounts,
// with a path that means something else inside.
func (w *worker) isInside(fd int) bool {
	path, errno := w.realPath(fd)
	return errno == 0 && w.isNamed(fd, path)
}

// isNamed says whether a path inside leads to an opened file.
func (w *worker) isNamed(fd int, path string) bool {
	named, errno := w.openInside(path, unix.O_NOFOLLOW)
	if errno != 0 {
		return false
	}
	defer func() { _ = unix.Close(named) }()
	a, errA := identify(fd)
	b, errB := identify(named)
	return errA == nil && errB == nil && a == b
}

// identity tells files apart, and the mounts they were reached through.
type identity struct {
	major, minor uint32
	ino, mount   uint64
}

func identify(fd int) (identity, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.ENOSYS
	}
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Mnt_id}, err
}

func fdName(fd int) string { return strconv.Itoa(fd) }

// ownDescriptor recognises the names of the caller's own descriptors.
func ownDescriptor(name string) (int, bool) {
	for _, prefix := range []string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			fd, err := strconv.ParseUint(rest, 10, 31)
			return int(fd), err == nil
		}
	}
	switch name {
	case "/dev/stdin":
		return 0, true
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	return 0, false
}
