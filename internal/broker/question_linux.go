package broker

import (
	"strings"

	"golang.org/x/sys/unix"
)

// ask answers whether a name may be made or written, without anything being made
// or reported. A sandbox inside this one cannot have a broker of its own and asks
// so whether this one holds what its policy wants held (see docs/nested.md).
//
// The question is the call that would make a directory by mknod. The kernel
// performs that for nobody, and answers EPERM; so does the broker, but for a name
// that it refuses.
//
// Without a name it is asked whether the caller is lent no terminal any more.
func (w *worker) ask(n *notification, dirfd, name uint64) answer {
	text, errno := w.readString(n.pid, name)
	switch {
	case errno != 0:
		return refuse(unix.EPERM)
	case text == "" && w.lent(n) <= LentNoTerminal:
		return refuse(unix.EACCES)
	}
	path, ok := w.asked(n, dirfd, text)
	if ok && w.rules.inArea(path) && w.judge(writing, -1, path) != nil {
		return refuse(unix.EACCES)
	}
	return refuse(unix.EPERM)
}

// asked returns the path that a question is about. Where a directory on the way is
// still missing, that is the path as it is written.
func (w *worker) asked(n *notification, dirfd uint64, text string) (string, bool) {
	abs, errno := w.absolute(n, dirfd, text)
	if errno != 0 {
		return "", false
	}
	s, errno := w.locate(abs)
	if errno != 0 {
		path, ok := w.plain("", abs)
		return strings.Clone(path), ok
	}
	defer s.close()
	return s.path(), !s.isDots()
}
