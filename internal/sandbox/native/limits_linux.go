package native

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// walled is what holds a sandbox's limits, seen from outside. The zero value is
// that of one without any.
type walled struct {
	group *limits.Group
	disk  int // a descriptor on the memory file system, or 0, or -1
}

// confine puts the child into a control group with the Spec's limits. It has
// started nothing yet, so that everything of the sandbox will be in it.
func (e *Embryo) confine(s *spec.Spec) error {
	need := s.Limits.NeedGroup()
	if !need && !e.o.Account {
		return nil
	}
	group, err := limits.Open(s.Limits, e.o.Account || e.o.resident, e.proc.Pid)
	if err != nil && need {
		return err
	}
	e.proc.walled.group = group // nil if it would only have counted
	return nil
}

// conclude tells what was used, and gives everything back.
func (w *walled) conclude(r *unix.Rusage) limits.Usage {
	u := limits.Unknown()
	if w.group != nil {
		u = w.group.Usage()
		w.group.Close()
		w.group = nil
	}
	u.Complete(r)
	if w.disk > 0 {
		u.Disk, u.Full = fill(w.disk)
		_ = unix.Close(w.disk)
		w.disk = 0
	}
	return u
}

// fill says how many bytes of a file system are used, and whether it has no space
// left, or no room for a name; -1 is not known.
func fill(fd int) (used int64, full bool) {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return -1, false
	}
	return int64(st.Blocks-st.Bfree) * int64(st.Bsize), st.Bfree == 0 || st.Ffree == 0
}

// group enters a cgroup namespace once more, after the launcher has moved the
// child to a group: its own is then the root of what it can name.
func (l *launcher) group() {
	if !l.grouped {
		return
	}
	l.begin(WallCgroup, "enter a new", string(WallCgroup), "")
	l.call(unix.SYS_UNSHARE, num(unix.CLONE_NEWCGROUP))
}

func (l *launcher) limitsDisk() bool { return l.spec.Limits != nil && l.spec.Limits.Disk > 0 }

// storage limits the memory file system, which is in the place of the root
// directory now, and gives the launcher a descriptor on it: whether it is full can
// then be seen when nothing else of the sandbox is left.
func (l *launcher) storage() {
	if !l.limitsDisk() {
		return
	}
	const page = 4096 // what a file takes at least, unless it is empty
	size := l.spec.Limits.Disk
	if over := l.spec.Overlay; over.HeldInMemory() {
		size -= over.Used
	}
	l.begin(WallLimits, "limit", "disk", "")
	l.call(unix.SYS_MOUNT, num(0), l.str("/"), num(0), num(unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV),
		l.str("size="+strconv.FormatInt(size, 10)+",nr_inodes="+strconv.FormatInt(size/page+reservedNames, 10)))
	msg := l.message(1)
	l.call(unix.SYS_OPENAT, num(unix.AT_FDCWD), l.str("/"), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0)).out = uintptr(unsafe.Pointer(msg.descriptor(0)))
	l.send(msg, 0)
	l.call(unix.SYS_CLOSE, from(cell(msg.descriptor(0))))
}

// reservedNames are enough for what the launch itself makes.
const reservedNames = 1024

// limits sets those of each process.
func (l *launcher) limits() {
	if lim := new(unix.Rlimit); l.files > 0 && unix.Getrlimit(unix.RLIMIT_NOFILE, lim) == nil {
		l.begin(WallLimits, "restore the limit of open files", "", "")
		lim.Cur = min(l.files, lim.Max)
		l.call(unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_NOFILE), l.ptr(unsafe.Pointer(place(l.plan, *lim))), num(0))
	}
	for _, r := range l.spec.Rlimits {
		l.begin(WallLimits, "limit", r.Name, "")
		lim := place(l.plan, unix.Rlimit{Cur: r.Value, Max: r.Value})
		l.call(unix.SYS_PRLIMIT64, num(0), num(limitNumber(r.Name)), l.ptr(unsafe.Pointer(lim)), num(0))
	}
}

// limitNumber is the kernel's number of a resource limit, or -1.
func limitNumber(name string) int {
	switch name {
	case "core":
		return unix.RLIMIT_CORE
	case "nofile":
		return unix.RLIMIT_NOFILE
	case "nproc":
		return unix.RLIMIT_NPROC
	}
	return -1
}

// Used is what the sandbox has used so far, if something counts it.
func (r *Resident) Used() (limits.Usage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := limits.Unknown()
	if r.proc == nil {
		return u, false
	}
	w := &r.proc.walled
	if w.group != nil {
		u = w.group.Usage()
	}
	if w.disk > 0 {
		u.Disk, u.Full = fill(w.disk)
	}
	return u, w.group != nil || w.disk > 0
}

// Freeze holds everything in the sandbox where it is until the Freezer is closed.
// List names its processes.
func (r *Resident) Freeze(list func() []int) (*limits.Freezer, error) {
	r.mu.Lock()
	ended := r.proc == nil
	var group *limits.Group
	if !ended {
		group = r.proc.walled.group
	}
	r.mu.Unlock()
	if ended {
		return nil, ErrEnded
	}
	return limits.Freeze(group, list)
}
