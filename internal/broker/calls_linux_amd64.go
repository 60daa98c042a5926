package broker

import "golang.org/x/sys/unix"

// oldCalls start from the working directory; other architectures never had
// them.
var oldCalls = []call{
	{unix.SYS_OPEN, func(w *worker, n *notification) answer {
		return w.open(n, atCwd, n.args[0], int(uint32(n.args[1])), uint32(n.args[2]))
	}},
	{unix.SYS_CREAT, func(w *worker, n *notification) answer {
		return w.open(n, atCwd, n.args[0], unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, uint32(n.args[1]))
	}},
	{unix.SYS_MKDIR, func(w *worker, n *notification) answer { return w.mkdir(n, atCwd, n.args[0], uint32(n.args[1])) }},
	{unix.SYS_MKNOD, func(w *worker, n *notification) answer { return w.mknod(n, atCwd, n.args[0], uint32(n.args[1])) }},
	{unix.SYS_SYMLINK, func(w *worker, n *notification) answer {
		return w.symlink(n, n.args[0], atCwd, n.args[1])
	}},
	{unix.SYS_LINK, func(w *worker, n *notification) answer {
		return w.hardlink(n, atCwd, n.args[0], atCwd, n.args[1], 0)
	}},
	{unix.SYS_RENAME, func(w *worker, n *notification) answer {
		return w.rename(n, atCwd, n.args[0], atCwd, n.args[1], 0)
	}},
	{unix.SYS_UNLINK, func(w *worker, n *notification) answer { return w.remove(n, atCwd, n.args[0], 0) }},
	{unix.SYS_RMDIR, func(w *worker, n *notification) answer { return w.remove(n, atCwd, n.args[0], unix.AT_REMOVEDIR) }},
	{unix.SYS_CHMOD, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_CHOWN, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_LCHOWN, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], false) }},
	{unix.SYS_UTIME, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_UTIMES, func(w *worker, n *notification) answer { return w.change(n, atCwd, n.args[0], true) }},
	{unix.SYS_FUTIMESAT, func(w *worker, n *notification) answer { return w.changeAt(n, n.args[0], n.args[1], 0) }},
}

var oldLooks = []look{
	{unix.SYS_NEWFSTATAT, "stat", 0, 1, -1, false},
	{unix.SYS_OPEN, "open", -1, 0, 1, false},
	{unix.SYS_CREAT, "create", -1, 0, -1, true},
	{unix.SYS_STAT, "stat", -1, 0, -1, false},
	{unix.SYS_LSTAT, "stat", -1, 0, -1, false},
	{unix.SYS_ACCESS, "stat", -1, 0, -1, false},
	{unix.SYS_READLINK, "stat", -1, 0, -1, false},
	{unix.SYS_UNLINK, "remove", -1, 0, -1, true},
	{unix.SYS_RMDIR, "remove", -1, 0, -1, true},
	{unix.SYS_MKDIR, "mkdir", -1, 0, -1, true},
	{unix.SYS_MKNOD, "mknod", -1, 0, -1, true},
	{unix.SYS_SYMLINK, "symlink", -1, 1, -1, true},
	{unix.SYS_LINK, "link", -1, 1, -1, true},
	{unix.SYS_RENAME, "rename", -1, 1, -1, true},
}
