package broker

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openToRead opens a file for reading only. The kernel never performs that: it
// would read the path again.
func (w *worker) openToRead(n *notification, dirfd uint64, text string, flags int, mode uint32) answer {
	if fd, ok := ownDescriptor(text); ok {
		return w.reopenToRead(n, fd, flags)
	}
	start, errno := w.startOf(n, dirfd, text)
	if errno != 0 {
		return refuse(errno)
	}
	creates := flags&(unix.O_CREAT|unix.O_TRUNC) != 0
	if p, ok := w.plain(start, text); ok && !creates {
		if a, ok := w.openPlainToRead(n, p, flags); ok {
			return a
		}
	}
	abs, errno := w.join(n, start, text)
	if errno != 0 {
		return refuse(errno)
	}
	if creates {
		if !w.listener.isValid(n.id) {
			return refuse(unix.ESRCH)
		}
		return w.openNamed(n, abs, flags, mode)
	}
	abs, errno = w.ownProcess(n, abs)
	if errno != 0 {
		return refuse(errno)
	}
	var follow uint64
	if flags&unix.O_NOFOLLOW != 0 {
		follow = unix.O_NOFOLLOW
	}
	fd, errno := w.openInside(abs, follow)
	if errno == unix.ENOENT && follow == 0 {
		fd, errno = w.openThroughLink(n, abs)
	}
	if errno != 0 {
		return refuse(errno)
	}
	defer func() { _ = unix.Close(fd) }()
	if !w.listener.isValid(n.id) {
		return refuse(unix.ESRCH)
	}
	return w.openFound(n, fd, flags)
}

// openThroughLink opens what a link leads to that is about the caller itself,
// such as /etc/mtab.
func (w *worker) openThroughLink(n *notification, abs string) (int, unix.Errno) {
	s, errno := w.locate(abs)
	if errno != 0 {
		return -1, errno
	}
	to, errno := w.follow(&s)
	s.close()
	if errno != 0 {
		return -1, unix.ENOENT
	}
	own, errno := w.ownProcess(n, to)
	if errno != 0 || own == to {
		return -1, unix.ENOENT
	}
	return w.openInside(own, 0)
}

// openFound opens for reading what a descriptor by O_PATH leads to.
func (w *worker) openFound(n *notification, fd, flags int) answer {
	path, errno := w.realPath(fd)
	if errno != 0 {
		return refuse(errno)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return result(err)
	}
	kind := st.Mode & unix.S_IFMT
	if rule := w.judge(reading, -1, path); rule != nil && kind != unix.S_IFDIR {
		return w.denied(n, "open", path, rule)
	}
	switch {
	case kind == unix.S_IFLNK:
		return refuse(unix.ELOOP)
	case kind == unix.S_IFSOCK:
		return refuse(unix.ENXIO)
	case kind == unix.S_IFIFO && flags&unix.O_NONBLOCK == 0:
		return w.waitForPipe(n, fd, flags)
	case kind == unix.S_IFCHR && !w.lendsDevice(n, path, st.Rdev):
		return refuse(unix.EACCES)
	case kind == unix.S_IFCHR && path == "/dev/tty":
		return w.openTerminal(n, flags)
	case strings.HasPrefix(path, "/proc/") && !w.isHarmless(n, path):
		return refuse(unix.EACCES)
	}
	opened, err := unix.Openat(w.self, fdName(fd), flags&^unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return result(err)
	}
	a := w.opened(opened, flags)
	a.read = true
	return a
}

// reopenToRead opens what is behind a descriptor of the caller once more. What
// it could not open by name, such as a pipe or a stream that is a file of the
// host, it gets as it has it.
func (w *worker) reopenToRead(n *notification, fd, flags int) answer {
	behind, errno := w.openOf(n, fd)
	if errno != 0 {
		return refuse(unix.ENOENT)
	}
	defer func() { _ = unix.Close(behind) }()
	if w.isInside(behind) {
		return w.openFound(n, behind, flags)
	}
	same, errno := w.descriptorOf(n, fd)
	if errno != 0 {
		return refuse(errno)
	}
	has, err := unix.FcntlInt(uintptr(same), unix.F_GETFL, 0)
	if err != nil || has&unix.O_ACCMODE == unix.O_WRONLY {
		_ = unix.Close(same)
		return refuse(unix.EACCES)
	}
	return descriptor(same, flags&unix.O_CLOEXEC != 0)
}

// openTerminal opens the caller's terminal, which to us would be our own.
func (w *worker) openTerminal(n *notification, flags int) answer {
	const pts = 136 // the first of the major numbers of pseudo-terminals
	number, ok := terminalOf(n)
	if !ok || unix.Major(number) < pts || unix.Major(number) > pts+7 {
		return refuse(unix.ENXIO)
	}
	fd, errno := w.openInside("/dev/pts/"+strconv.Itoa(int(unix.Minor(number))), 0)
	if errno != 0 {
		return refuse(unix.ENXIO)
	}
	defer func() { _ = unix.Close(fd) }()
	opened, err := unix.Openat(w.self, fdName(fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return result(err)
	}
	return w.opened(opened, flags)
}

// lendsDevice says whether a device may be opened for the caller, which is a terminal
// if it is in /dev/pts, or leads to one.
func (w *worker) lendsDevice(n *notification, path string, number uint64) bool {
	if path == "/dev/tty" {
		number, _ = terminalOf(n)
	} else if !strings.HasPrefix(path, "/dev/pts/") && path != "/dev/ptmx" {
		return true
	}
	if w.lent(n) > LentNoTerminal {
		return true
	}
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Stat(procOf(n)+"fd/"+fdName(fd), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == number {
			return true
		}
	}
	return false
}

// terminalOf returns the number of the caller's terminal.
func terminalOf(n *notification) (uint64, bool) {
	text := readProc(n, "stat")
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 5 {
		return 0, false
	}
	number, err := strconv.ParseUint(fields[4], 10, 64)
	return number, err == nil && number != 0
}

// ownProcess gives what is about the caller itself in /proc the name that others
// see it by.
func (w *worker) ownProcess(n *notification, abs string) (string, unix.Errno) {
	if !strings.Contains(abs, "/proc") {
		return abs, 0
	}
	clean := path.Clean(abs)
	for _, own := range []struct{ name, is string }{
		{"/proc/self", ""}, {"/proc/thread-self", ""}, {"/proc/mounts", "/mounts"}, {"/proc/net", "/net"},
	} {
		rest, ok := strings.CutPrefix(clean, own.name)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		pids := numbersOf(n)
		if len(pids) == 0 {
			return "", unix.ESRCH
		}
		return "/proc/" + pids[0] + own.is + rest, 0
	}
	return abs, 0
}

// numbersOf returns the numbers of the caller's process and thread inside.
func numbersOf(n *notification) []string {
	var out []string
	status := readProc(n, "status")
	for _, key := range []string{"NStgid", "NSpid"} {
		fields := strings.Fields(field(status, key))
		if len(fields) == 0 {
			return nil
		}
		out = append(out, fields[len(fields)-1])
	}
	return out
}

// statusOf returns a line of the caller's status, without its key; empty if the
// caller is gone.
func statusOf(n *notification, key string) string { return field(readProc(n, "status"), key) }

func field(status, key string) string {
	_, rest, _ := strings.Cut(status, "\n"+key+":\t")
	text, _, _ := strings.Cut(rest, "\n")
	return text
}

// isHarmless says whether we may open a file of /proc in the caller's stead.
// Much of what is there about a process the kernel shows to whoever may trace
// it, and it would let us trace them all.
func (w *worker) isHarmless(n *notification, path string) bool {
	parts := strings.Split(path, "/")[2:]
	if parts[0] == "sysvipc" || len(parts) > 1 && parts[0] == "sys" && (parts[1] == "net" || parts[1] == "user") {
		return false // of the namespace of who opens it
	}
	if parts[0] == "" || parts[0][0] < '0' || parts[0][0] > '9' {
		return true // about no process
	}
	if slices.Contains(numbersOf(n), parts[0]) {
		return true // about itself
	}
	return slices.Contains([]string{
		"status", "stat", "statm", "cmdline", "comm", "cgroup", "limits", "mounts", "mountinfo", "uid_map", "gid_map",
	}, parts[len(parts)-1])
}

func readProc(n *notification, name string) string { return readAbout(int(n.pid), name) }
