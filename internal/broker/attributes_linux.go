package broker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// changed answers a change of attributes that was judged and is allowed. Where no
// other wall stands the kernel may not perform it: it would read the name again,
// and nothing else keeps the command from the modes, owners and dates of files
// that it may not even read.
func (w *worker) changed(n *notification, fd int) answer {
	if !w.options.Alone {
		return pass
	}
	if uid, gid, ok := ownerOf(n); ok {
		return result(unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH))
	}
	at := "/proc/self/fd/" + fdName(fd)
	if typeOf(fd) == unix.S_IFLNK {
		return w.changeLink(n, fd)
	}
	if mode, ok := modeOf(n); ok {
		return result(unix.Fchmodat(unix.AT_FDCWD, at, mode, 0))
	}
	if n.nr != unix.SYS_UTIMENSAT {
		return refuse(unix.EPERM)
	}
	times, errno := w.times(n)
	if errno != 0 {
		return refuse(errno)
	}
	return setTimes(unix.AT_FDCWD, at, times, 0)
}

// changeLink changes the dates of a link itself. It has no mode.
func (w *worker) changeLink(n *notification, fd int) answer {
	if n.nr != unix.SYS_UTIMENSAT {
		return refuse(unix.EOPNOTSUPP)
	}
	times, errno := w.times(n)
	if errno != 0 {
		return refuse(errno)
	}
	return setTimes(fd, "", times, unix.AT_EMPTY_PATH)
}

// modeOf is the mode that a call gives a file, if it does.
func modeOf(n *notification) (uint32, bool) {
	const bits = 0o1777 // see package seccomp about the others
	switch n.nr {
	case unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2:
		return uint32(n.args[2]) & bits, true
	case unix.SYS_FCHMOD:
		return uint32(n.args[1]) & bits, true
	}
	return oldModeOf(n)
}

// ownerOf are the owner and group that a call gives a file, if it does. We have no
// more rights to that than the caller.
func ownerOf(n *notification) (uid, gid int, ok bool) {
	switch n.nr {
	case unix.SYS_FCHOWNAT:
		return int(int32(n.args[2])), int(int32(n.args[3])), true
	case unix.SYS_FCHOWN:
		return int(int32(n.args[1])), int(int32(n.args[2])), true
	}
	return oldOwnerOf(n)
}

// times are the dates that utimensat gives a file; nil stands for now.
func (w *worker) times(n *notification) (*[2]unix.Timespec, unix.Errno) {
	if n.args[2] == 0 {
		return nil, 0
	}
	times := new([2]unix.Timespec)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(times)), unsafe.Sizeof(*times))
	return times, readMemory(n.pid, n.args[2], raw)
}

func setTimes(dir int, name string, times *[2]unix.Timespec, flags int) answer {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return result(err)
	}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(times)), uintptr(flags), 0, 0)
	return refuse(errno)
}

// unjudgedChange answers a change of something that cannot be found.
func (w *worker) unjudgedChange(errno unix.Errno) answer {
	if w.options.Alone {
		return refuse(errno)
	}
	return unjudged(errno)
}
