package broker

import (
	"path"

	"golang.org/x/sys/unix"
)

// Observation is a call that names a file. It is what the command asked for: no
// link in the path is resolved, and by the time the kernel performs the call
// the caller may have changed it. Nothing is decided by an Observation.
type Observation struct {
	Pid  int // the calling thread
	Op   string
	Path string // absolute and clean
	// Write says that the call wants to change what is there.
	Write bool
}

// look says where a call has its path.
type look struct {
	nr    int32
	op    string
	dirfd int // argument number, or -1 for the working directory
	name  int
	flags int // argument number of flags of open, or -1
	write bool
}

var looks = []look{
	{unix.SYS_OPENAT, "open", 0, 1, 2, false},
	{unix.SYS_STATX, "stat", 0, 1, -1, false},
	{unix.SYS_FACCESSAT, "stat", 0, 1, -1, false},
	{unix.SYS_FACCESSAT2, "stat", 0, 1, -1, false},
	{unix.SYS_READLINKAT, "stat", 0, 1, -1, false},
	{unix.SYS_CHDIR, "stat", -1, 0, -1, false},
	{unix.SYS_UNLINKAT, "remove", 0, 1, -1, true},
	{unix.SYS_MKDIRAT, "mkdir", 0, 1, -1, true},
	{unix.SYS_MKNODAT, "mknod", 0, 1, -1, true},
	{unix.SYS_SYMLINKAT, "symlink", 1, 2, -1, true},
	{unix.SYS_LINKAT, "link", 2, 3, -1, true},
	{unix.SYS_RENAMEAT, "rename", 2, 3, -1, true},
	{unix.SYS_RENAMEAT2, "rename", 2, 3, -1, true},
	{unix.SYS_TRUNCATE, "truncate", -1, 0, -1, true},
	{unix.SYS_EXECVE, "exec", -1, 0, -1, false},
	{unix.SYS_EXECVEAT, "exec", 0, 1, -1, false},
}

// lookOf returns where a call has its path, or nil.
func lookOf(nr int32) *look {
	for _, list := range [...][]look{looks, oldLooks} {
		for i := range list {
			if list[i].nr == nr {
				return &list[i]
			}
		}
	}
	return nil
}

// observe tells what a call is about.
func (w *worker) observe(n *notification) {
	if w.options.Observe == nil {
		return
	}
	l := lookOf(n.nr)
	if l == nil {
		return
	}
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
	o := Observation{Pid: int(n.pid), Op: l.op, Path: path.Clean(start + "/" + text), Write: l.write}
	if l.flags >= 0 {
		flags := int(uint32(n.args[l.flags]))
		o.Write = flags&unix.O_ACCMODE != unix.O_RDONLY || flags&(unix.O_CREAT|unix.O_TRUNC) != 0
		if flags&unix.O_CREAT != 0 {
			o.Op = "create"
		}
	}
	w.options.Observe(o)
}
