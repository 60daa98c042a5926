package broker

import (
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// call is a handler for a system call.
type call struct {
	nr     int32
	handle func(*worker, *notification) answer
}

// calls are those that make or write files. Lists, not maps: they need no work
// when the program starts.
var calls = []call{
	{unix.SYS_OPENAT, func(w *worker, n *notification) answer {
		return w.open(n, n.args[0], n.args[1], int(uint32(n.args[2])), uint32(n.args[3]))
	}},
	{unix.SYS_MKDIRAT, func(w *worker, n *notification) answer {
		return w.mkdir(n, n.args[0], n.args[1], uint32(n.args[2]))
	}},
	{unix.SYS_MKNODAT, func(w *worker, n *notification) answer {
		return w.mknod(n, n.args[0], n.args[1], uint32(n.args[2]))
	}},
	{unix.SYS_SYMLINKAT, func(w *worker, n *notification) answer {
		return w.symlink(n, n.args[0], n.args[1], n.args[2])
	}},
	{unix.SYS_LINKAT, func(w *worker, n *notification) answer {
		return w.hardlink(n, n.args[0], n.args[1], n.args[2], n.args[3], int(uint32(n.args[4])))
	}},
	{unix.SYS_RENAMEAT, func(w *worker, n *notification) answer {
		return w.rename(n, n.args[0], n.args[1], n.args[2], n.args[3], 0)
	}},
	{unix.SYS_RENAMEAT2, func(w *worker, n *notification) answer {
		return w.rename(n, n.args[0], n.args[1], n.args[2], n.args[3], uint(uint32(n.args[4])))
	}},
	{unix.SYS_EXECVE, func(w *worker, n *notification) answer { return w.exec(n, atCwd, n.args[0], n.args[1], 0) }},
	{unix.SYS_EXECVEAT, func(w *worker, n *notification) answer {
		return w.exec(n, n.args[0], n.args[1], n.args[2], int(uint32(n.args[4])))
	}},
	{unix.SYS_TRUNCATE, func(w *worker, n *notification) answer { return w.truncate(n, n.args[0], int64(n.args[1])) }},
	{unix.SYS_UMASK, func(w *worker, n *notification) answer { return w.umask(n) }},
	{unix.SYS_BIND, func(w *worker, n *notification) answer { return w.bind(n) }},
	{unix.SYS_CONNECT, func(w *worker, n *notification) answer { return w.connect(n) }},
}

// handler returns what answers a call, or nil.
func handler(nr int32) func(*worker, *notification) answer {
	for _, list := range [...][]call{calls, oldCalls, removeCalls, sendCalls} {
		for i := range list {
			if list[i].nr == nr {
				return list[i].handle
			}
		}
	}
	return nil
}

const atCwd = uint64(0xffffff9c) // AT_FDCWD as a register holds it

// target finds the spot that a call is about and, if it lies in an area, judges
// it. It is done if the returned answer is not nil: the call is refused, or is
// none of ours.
func (w *worker) target(n *notification, op string, dirfd, name uint64) (s spot, done *answer) {
	if w.lent(n) == LentNoFile {
		return s, &pass
	}
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return s, fail(errno)
	}
	abs, errno := w.absolute(n, dirfd, text)
	if errno != 0 || !w.listener.isValid(n.id) {
		return s, &pass
	}
	if s, errno = w.locate(abs); errno != 0 {
		return s, w.unlocated(abs, errno)
	}
	if done = w.judged(n, op, &s); done != nil {
		s.close()
	}
	return s, done
}

// unlocated answers a call whose path leads nowhere. If it fails in an area that
// is said at once: by the time that the kernel looks, somebody may have made what
// was missing, and Landlock would refuse what was never judged.
func (w *worker) unlocated(abs string, errno unix.Errno) *answer {
	if errno != errNoName && w.failsInArea(abs) {
		return fail(errno)
	}
	return &pass
}

// judged passes what lies in no area, and refuses what a rule denies. With a path
// that ends in dots no call does anything but fail.
func (w *worker) judged(n *notification, op string, s *spot) *answer {
	p := s.path()
	if !w.rules.inArea(p) {
		return &pass
	}
	if s.isDots() {
		return nil
	}
	if rule := w.judge(writing, s.dir, p); rule != nil {
		a := w.denied(n, op, p, rule)
		return &a
	}
	return nil
}

func fail(errno unix.Errno) *answer { return &answer{errno: errno} }

func (w *worker) mkdir(n *notification, dirfd, name uint64, mode uint32) answer {
	s, done := w.target(n, "mkdir", dirfd, name)
	if done != nil {
		return *done
	}
	defer s.close()
	return result(unix.Mkdirat(s.dir, s.last(), mode&0o1777&^w.masks.of(n)))
}

func (w *worker) mknod(n *notification, dirfd, name uint64, mode uint32) answer {
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFDIR:
		return w.ask(n, dirfd, name)
	case unix.S_IFCHR, unix.S_IFBLK:
		return refuse(unix.EPERM)
	default:
		return refuse(unix.EINVAL)
	}
	s, done := w.target(n, "mknod", dirfd, name)
	if done != nil {
		return *done
	}
	defer s.close()
	return result(unix.Mknodat(s.dir, s.last(), mode&^0o6000&^w.masks.of(n), 0))
}

func (w *worker) symlink(n *notification, text, dirfd, name uint64) answer {
	to, errno := w.readString(n.pid, text)
	switch {
	case errno != 0:
		return refuse(errno)
	case to == "":
		return refuse(unix.ENOENT)
	}
	s, done := w.target(n, "symlink", dirfd, name)
	if done != nil {
		return *done
	}
	defer s.close()
	if w.leadsOn(&s) {
		return w.denied(n, "symlink", s.path(), &passage)
	}
	return result(unix.Symlinkat(to, s.dir, s.last()))
}

// hardlink makes another name for a file. Where a rule denies anything about
// the file's own name, a second one would be a way around it.
func (w *worker) hardlink(n *notification, oldDir, oldName, newDir, newName uint64, flags int) answer {
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return refuse(unix.EINVAL)
	}
	s, done := w.target(n, "link", newDir, newName)
	if done != nil {
		return *done
	}
	defer s.close()
	fd, errno := w.openOld(n, oldDir, oldName, flags)
	if errno != 0 {
		return refuse(errno)
	}
	defer func() { _ = unix.Close(fd) }()
	old, errno := w.realPath(fd)
	if errno != 0 && !isUnnamed(fd) {
		return refuse(errno)
	}
	for _, a := range both {
		if errno != 0 {
			break // it has no name that a rule could be about
		}
		if rule := w.judge(a, -1, old); rule != nil {
			return w.denied(n, "link", old, rule)
		}
	}
	if typeOf(fd) == unix.S_IFLNK && w.leadsOn(&s) {
		return w.denied(n, "link", s.path(), &passage)
	}
	if done := w.judgeLink(n, fd, old, s.path()); done != nil {
		return *done
	}
	w.sockets.names.RLock()
	defer w.sockets.names.RUnlock()
	return result(unix.Linkat(w.self, fdName(fd), s.dir, s.last(), unix.AT_SYMLINK_FOLLOW))
}

// isUnnamed says whether a file has no name at all, such as one that was made
// without.
func isUnnamed(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink == 0
}

// typeOf returns what a file is, of S_IFMT; 0 if that cannot be said.
func typeOf(fd int) uint32 {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Mode & unix.S_IFMT
}

// openOld opens what a hard link is to be made of, by O_PATH.
func (w *worker) openOld(n *notification, dirfd, name uint64, flags int) (int, unix.Errno) {
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return -1, errno
	}
	switch {
	case text != "" || flags&unix.AT_EMPTY_PATH == 0:
	case int32(dirfd) == unix.AT_FDCWD:
		text = "."
	default:
		return w.openOf(n, int(int32(dirfd)))
	}
	if fd, ok := ownDescriptor(text); ok && flags&unix.AT_SYMLINK_FOLLOW != 0 {
		own, errno := w.openOf(n, fd)
		if errno == unix.EBADF {
			errno = unix.ENOENT
		}
		return own, errno
	}
	abs, errno := w.absolute(n, dirfd, text)
	if errno != 0 {
		return -1, errno
	}
	if flags&unix.AT_SYMLINK_FOLLOW != 0 {
		return w.openInside(abs, 0)
	}
	return w.openInside(abs, unix.O_NOFOLLOW)
}

// openOf opens, by O_PATH, the file behind a descriptor of the caller.
func (w *worker) openOf(n *notification, fd int) (int, unix.Errno) {
	own, err := unix.Open(procOf(n)+"fd/"+fdName(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case err == unix.ENOENT:
		return -1, unix.EBADF
	case err != nil:
		return -1, errnoOf(err)
	case !w.listener.isValid(n.id):
		_ = unix.Close(own)
		return -1, unix.ESRCH
	}
	return own, 0
}

// rename moves a file or a directory, within a mount. The rules hold for both
// names. What lies below a directory must mean the same to them afterwards;
// where it might not, the caller is told that it cannot be moved, as between
// file systems, and copies instead, one judged name after the other.
func (w *worker) rename(n *notification, oldDir, oldName, newDir, newName uint64, flags uint) answer {
	const known = unix.RENAME_NOREPLACE | unix.RENAME_EXCHANGE | unix.RENAME_WHITEOUT
	if flags&^known != 0 || flags&unix.RENAME_EXCHANGE != 0 && flags != unix.RENAME_EXCHANGE {
		return refuse(unix.EINVAL)
	}
	from, skip := w.target(n, "rename", oldDir, oldName)
	if skip != nil && skip.kind != answerPass {
		return *skip
	}
	if skip == nil {
		defer from.close()
	}
	to, done := w.target(n, "rename", newDir, newName)
	switch {
	case done != nil && done.kind != answerPass:
		return *done
	case skip != nil && done != nil:
		return pass
	case skip != nil:
		to.close()
		return w.across(n, oldDir, oldName)
	case done != nil:
		return w.across(n, newDir, newName)
	}
	defer to.close()
	if from.isDots() || to.isDots() {
		// It fails, as it would for the caller.
		return result(unix.Renameat2(from.dir, from.last(), to.dir, to.last(), flags))
	}
	if rule := w.judge(reading, from.dir, from.path()); rule != nil {
		return w.denied(n, "rename", from.path(), rule)
	}
	if w.isMountPoint(&from) || w.isMountPoint(&to) {
		return refuse(unix.EBUSY)
	}
	if !w.rules.movable(from.path(), to.path()) {
		return refuse(unix.EXDEV)
	}
	if flags&unix.RENAME_WHITEOUT != 0 {
		return refuse(unix.EINVAL) // it would leave a device node behind
	}
	return w.move(n, &from, &to, flags)
}

// move renames what the rules about paths let be renamed.
func (w *worker) move(n *notification, from, to *spot, flags uint) answer {
	if w.sockets.sameBelow(from.path(), to.path()) {
		w.sockets.names.RLock()
		defer w.sockets.names.RUnlock()
		return result(unix.Renameat2(from.dir, from.last(), to.dir, to.last(), flags))
	}
	w.sockets.names.Lock()
	defer w.sockets.names.Unlock()
	moved := []*spot{from, to}
	if flags&unix.RENAME_EXCHANGE == 0 {
		moved = moved[:1]
	}
	for _, s := range moved {
		if done := w.judgeMove(n, s); done != nil {
			return *done
		}
	}
	return result(unix.Renameat2(from.dir, from.last(), to.dir, to.last(), flags))
}

// across answers a rename between an area and another place, which are
// different mounts: as the kernel would, unless it finds another fault first.
func (w *worker) across(n *notification, dirfd, name uint64) answer {
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return refuse(errno)
	}
	abs, errno := w.absolute(n, dirfd, text)
	if errno == 0 {
		var s spot
		if s, errno = w.locate(abs); errno == 0 {
			s.close()
			errno = unix.EXDEV
		}
	}
	if errno == errNoName {
		errno = unix.EXDEV // the root is never where something else is
	}
	return refuse(errno)
}

func (w *worker) truncate(n *notification, name uint64, size int64) answer {
	if size < 0 {
		return refuse(unix.EINVAL)
	}
	if w.lent(n) == LentNoFile {
		return refuse(unix.EACCES)
	}
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return refuse(errno)
	}
	// Landlock would not keep the kernel from it, so it is never left to it, not
	// even to find the same fault.
	abs, errno := w.absolute(n, atCwd, text)
	if errno != 0 {
		return refuse(errno)
	}
	fd, errno := w.openInside(abs, 0)
	if errno != 0 {
		return refuse(errno)
	}
	defer func() { _ = unix.Close(fd) }()
	p, errno := w.realPath(fd)
	if errno != 0 {
		return refuse(errno)
	}
	if rule := w.judge(writing, -1, p); rule != nil && (w.options.Alone || w.rules.inArea(p)) {
		return w.denied(n, "truncate", p, rule)
	}
	switch typeOf(fd) {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return refuse(unix.EISDIR)
	default:
		return refuse(unix.EINVAL) // opening it could already do something
	}
	open, err := unix.Openat(w.self, fdName(fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return result(err)
	}
	defer func() { _ = unix.Close(open) }()
	return result(unix.Ftruncate(open, size))
}

// unjudged is the answer for a path that cannot be followed where no other wall
// stands: the kernel would find the same fault, unless it is only to us that the
// path is too long.
func unjudged(errno unix.Errno) answer {
	if errno == unix.ENAMETOOLONG {
		return refuse(errno)
	}
	return pass
}

// judgeOpened judges a file that is opened already, for writing.
func (w *worker) judgeOpened(n *notification, op string, fd int) *answer {
	p, errno := w.realPath(fd)
	if errno != 0 || !w.rules.inArea(p) || !w.listener.isValid(n.id) {
		return &pass
	}
	var rule *spec.PathRule
	if rule = w.judge(writing, -1, p); rule == nil {
		return nil
	}
	a := w.denied(n, op, p, rule)
	return &a
}
