package broker

import (
	"golang.org/x/sys/unix"
)

// removeCalls remove files, or change their attributes. They are asked about
// only if there are rules about more than names.
var removeCalls = []call{
	{unix.SYS_UNLINKAT, func(w *worker, n *notification) answer {
		return w.remove(n, n.args[0], n.args[1], int(uint32(n.args[2])))
	}},
	{unix.SYS_FCHMODAT, func(w *worker, n *notification) answer { return w.change(n, n.args[0], n.args[1], true) }},
	{unix.SYS_FCHMODAT2, func(w *worker, n *notification) answer {
		return w.changeAt(n, n.args[0], n.args[1], n.args[3])
	}},
	{unix.SYS_FCHOWNAT, func(w *worker, n *notification) answer { return w.changeAt(n, n.args[0], n.args[1], n.args[4]) }},
	{unix.SYS_UTIMENSAT, func(w *worker, n *notification) answer {
		return w.changeAt(n, n.args[0], n.args[1], n.args[3])
	}},
	{unix.SYS_SETXATTRAT, func(w *worker, n *notification) answer { return w.changeAt(n, n.args[0], n.args[1], n.args[2]) }},
	{unix.SYS_REMOVEXATTRAT, func(w *worker, n *notification) answer { return w.changeAt(n, n.args[0], n.args[1], n.args[2]) }},
	{unix.SYS_FILE_SETATTR, func(w *worker, n *notification) answer { return w.changeAt(n, n.args[0], n.args[1], n.args[4]) }},
	{unix.SYS_SETXATTR, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_LSETXATTR, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], false) }},
	{unix.SYS_REMOVEXATTR, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_LREMOVEXATTR, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], false) }},
	{unix.SYS_FCHMOD, func(w *worker, n *notification) answer { return w.changeOpen(n, n.args[0]) }},
	{unix.SYS_FCHOWN, func(w *worker, n *notification) answer { return w.changeOpen(n, n.args[0]) }},
	{unix.SYS_FSETXATTR, func(w *worker, n *notification) answer { return w.changeOpen(n, n.args[0]) }},
	{unix.SYS_FREMOVEXATTR, func(w *worker, n *notification) answer { return w.changeOpen(n, n.args[0]) }},
	{unix.SYS_IOCTL, func(w *worker, n *notification) answer { return w.changeOpen(n, n.args[0]) }},
}

// remove removes a file or an empty directory. In areas Landlock grants that to
// nobody else.
func (w *worker) remove(n *notification, dirfd, name uint64, flags int) answer {
	if !w.spec.Broker.Strict {
		return pass // it was only to be observed
	}
	if flags&^unix.AT_REMOVEDIR != 0 {
		return refuse(unix.EINVAL)
	}
	s, done := w.target(n, "remove", dirfd, name)
	if done != nil {
		return *done
	}
	defer s.close()
	if !s.isDots() && w.isMountPoint(&s) {
		return refuse(unix.EBUSY)
	}
	return result(unix.Unlinkat(s.dir, s.last(), flags))
}

// onlyObserves says that no rule is about changes, so that calls that make one come
// here only to be told of.
func (w *worker) onlyObserves() bool { return !w.spec.Broker.Strict && !w.options.Alone }

func (w *worker) changeAt(n *notification, dirfd, name, flags uint64) answer {
	if w.onlyObserves() {
		return pass
	}
	if name == 0 {
		return w.changeOpen(n, dirfd) // utimensat of a descriptor
	}
	return w.change(n, dirfd, name, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
}

// change judges a change of attributes, and leaves it to the kernel: a program
// that wins a race against that has changed a date or a mode, and nothing that
// the file holds.
func (w *worker) change(n *notification, dirfd, name uint64, follow bool) answer {
	if w.onlyObserves() {
		return pass
	}
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return refuse(errno)
	}
	if text == "" {
		return w.changeOpen(n, dirfd)
	}
	if fd, ok := ownDescriptor(text); ok && follow {
		return w.changeOpen(n, uint64(fd))
	}
	abs, errno := w.absolute(n, dirfd, text)
	if errno != 0 {
		return w.unjudgedChange(errno)
	}
	flags := uint64(unix.O_NOFOLLOW)
	if follow {
		flags = 0
	}
	fd, errno := w.openInside(abs, flags)
	if errno != 0 {
		return w.unjudgedChange(errno)
	}
	defer func() { _ = unix.Close(fd) }()
	return w.judgeChange(n, fd)
}

// changeOpen is change for a descriptor.
func (w *worker) changeOpen(n *notification, fd uint64) answer {
	behind, errno := w.openOf(n, int(int32(fd)))
	if errno != 0 {
		return w.unjudgedChange(errno)
	}
	defer func() { _ = unix.Close(behind) }()
	return w.judgeChange(n, behind)
}

func (w *worker) judgeChange(n *notification, fd int) answer {
	path, errno := w.realPath(fd)
	if errno != 0 {
		return w.unjudgedChange(errno)
	}
	if rule := w.judge(writing, -1, path); rule != nil {
		return w.denied(n, "change", path, rule)
	}
	return w.changed(n, fd)
}
