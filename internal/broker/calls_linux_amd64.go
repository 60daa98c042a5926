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
	{nr: unix.SYS_NEWFSTATAT, op: "stat", dirfd: 0, name: 1, flags: -1},
	{nr: unix.SYS_OPEN, op: "open", dirfd: -1, name: 0, flags: 1},
	{nr: unix.SYS_CREAT, op: "create", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_STAT, op: "stat", dirfd: -1, name: 0, flags: -1},
	{nr: unix.SYS_LSTAT, op: "stat", dirfd: -1, name: 0, flags: -1},
	{nr: unix.SYS_ACCESS, op: "stat", dirfd: -1, name: 0, flags: -1},
	{nr: unix.SYS_READLINK, op: "stat", dirfd: -1, name: 0, flags: -1},
	{nr: unix.SYS_UNLINK, op: "remove", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_RMDIR, op: "remove", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_MKDIR, op: "mkdir", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_MKNOD, op: "mknod", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_SYMLINK, op: "symlink", dirfd: -1, name: 1, flags: -1, write: true},
	{nr: unix.SYS_LINK, op: "link", dirfd: -1, name: 1, flags: -1, write: true},
	{nr: unix.SYS_RENAME, op: "rename", dirfd: -1, name: 0, flags: -1, write: true, gone: true},
	{nr: unix.SYS_RENAME, op: "rename", dirfd: -1, name: 1, flags: -1, write: true},
	{nr: unix.SYS_CHMOD, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_CHOWN, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_LCHOWN, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_UTIME, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_UTIMES, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_FUTIMESAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
}

// oldModeOf and oldOwnerOf are modeOf and ownerOf for calls that other
// architectures never had.
func oldModeOf(n *notification) (uint32, bool) {
	return uint32(n.args[1]) & 0o1777, n.nr == unix.SYS_CHMOD
}

func oldOwnerOf(n *notification) (uid, gid int, ok bool) {
	return int(int32(n.args[1])), int(int32(n.args[2])), n.nr == unix.SYS_CHOWN || n.nr == unix.SYS_LCHOWN
}
