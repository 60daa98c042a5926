package broker

import (
	"iter"
	"path"

	"golang.org/x/sys/unix"
)

// Observation is a call that names a file. It is what the command asked for: no
// link in the path is resolved, and by the time the kernel performs the call
// the caller may have changed it. Nothing is decided by an Observation.
type Observation struct {
	Pid  int // the calling thread
	Op   string
	Path string   // absolute and clean
	Argv []string // of exec, unless they are too long
	// Write says that the call wants to change what is there.
	Write bool
	// Gone says that nothing will be there any more.
	Gone bool
}

// look says where a call has its path.
type look struct {
	nr    int32
	op    string
	dirfd int // argument number, or -1 for the working directory
	name  int
	flags int // argument number of flags of open, or -1
	write bool
	gone  bool // the path is that of what goes away
	argv  int  // argument number of arguments, if it is an exec
}

var looks = []look{
	{nr: unix.SYS_OPENAT, op: "open", dirfd: 0, name: 1, flags: 2},
	{nr: unix.SYS_STATX, op: "stat", dirfd: 0, name: 1, flags: -1},
	{nr: unix.SYS_FACCESSAT, op: "stat", dirfd: 0, name: 1, flags: -1},
	{nr: unix.SYS_FACCESSAT2, op: "stat", dirfd: 0, name: 1, flags: -1},
	{nr: unix.SYS_READLINKAT, op: "stat", dirfd: 0, name: 1, flags: -1},
	{nr: unix.SYS_CHDIR, op: "stat", dirfd: -1, name: 0, flags: -1},
	{nr: unix.SYS_UNLINKAT, op: "remove", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_MKDIRAT, op: "mkdir", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_MKNODAT, op: "mknod", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_SYMLINKAT, op: "symlink", dirfd: 1, name: 2, flags: -1, write: true},
	{nr: unix.SYS_LINKAT, op: "link", dirfd: 2, name: 3, flags: -1, write: true},
	{nr: unix.SYS_RENAMEAT, op: "rename", dirfd: 0, name: 1, flags: -1, write: true, gone: true},
	{nr: unix.SYS_RENAMEAT, op: "rename", dirfd: 2, name: 3, flags: -1, write: true},
	{nr: unix.SYS_RENAMEAT2, op: "rename", dirfd: 0, name: 1, flags: -1, write: true, gone: true},
	{nr: unix.SYS_RENAMEAT2, op: "rename", dirfd: 2, name: 3, flags: -1, write: true},
	{nr: unix.SYS_TRUNCATE, op: "truncate", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_FCHMODAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_FCHMODAT2, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_FCHOWNAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_UTIMENSAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_SETXATTRAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_REMOVEXATTRAT, op: "change", dirfd: 0, name: 1, flags: -1, write: true},
	{nr: unix.SYS_SETXATTR, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_LSETXATTR, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_REMOVEXATTR, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_LREMOVEXATTR, op: "change", dirfd: -1, name: 0, flags: -1, write: true},
	{nr: unix.SYS_EXECVE, op: "exec", dirfd: -1, name: 0, flags: -1, argv: 1},
	{nr: unix.SYS_EXECVEAT, op: "exec", dirfd: 0, name: 1, flags: -1, argv: 2},
}

// lookOf returns where a call has its path, or the last of them, or nil.
func lookOf(nr int32) (found *look) {
	for l := range looksOf(nr) {
		found = l
	}
	return found
}

// looksOf goes through the paths of a call.
func looksOf(nr int32) iter.Seq[*look] {
	return func(yield func(*look) bool) {
		for _, list := range [...][]look{looks, oldLooks} {
			for i := range list {
				if list[i].nr == nr && !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// observe tells what a call is about.
func (w *worker) observe(n *notification) {
	if w.options.Observe == nil {
		return
	}
	for l := range looksOf(n.nr) {
		w.observePath(n, l)
	}
}

func (w *worker) observePath(n *notification, l *look) {
	text, errno := w.readString(n.pid, n.args[l.name])
	if errno != 0 {
		return
	}
	dirfd := atCwd
	if l.dirfd >= 0 {
		dirfd = n.args[l.dirfd]
	}
	start, errno := w.startOf(n, dirfd, text)
	if errno != 0 {
		return
	}
	o := Observation{Pid: int(n.pid), Op: l.op, Path: path.Clean(start + "/" + text), Write: l.write, Gone: l.gone}
	if l.flags >= 0 {
		flags := int(uint32(n.args[l.flags]))
		o.Write = flags&unix.O_ACCMODE != unix.O_RDONLY || flags&(unix.O_CREAT|unix.O_TRUNC) != 0
		if flags&unix.O_CREAT != 0 {
			o.Op = "create"
		}
	}
	if l.argv > 0 {
		o.Argv, _ = w.readVector(n.pid, n.args[l.argv])
	}
	w.options.User.apart(func() { w.options.Observe(o) })
}
