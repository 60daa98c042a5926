package broker

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lead puts a connected socket in the place of the one that the caller wants to
// connect. The caller's own is never connected to anything, so nothing that was
// done to it matters, nor which one it is by the time that it is replaced: a
// process can exchange its own descriptors anyway.
func (w *worker) lead(n *notification, a address) answer {
	number := int(int32(n.args[0]))
	flags, errno := w.socketFlags(n, number)
	if errno != 0 {
		return refuse(errno)
	}
	fd, denied, errno := w.options.Lead(a, int(n.pid))
	if denied != nil {
		w.report(n, *denied)
	}
	if errno != 0 {
		return refuse(errno)
	}
	err := unix.SetNonblock(fd, flags&unix.O_NONBLOCK != 0)
	if err == nil {
		errno = w.listener.put(n.id, fd, number, flags&unix.O_CLOEXEC != 0)
	}
	_ = unix.Close(fd)
	if err != nil {
		return result(err)
	}
	return refuse(errno)
}

// socketFlags are those that a socket of the caller's was opened with.
func (w *worker) socketFlags(n *notification, number int) (int, unix.Errno) {
	link, err := os.Readlink(procOf(n) + "fd/" + fdName(number))
	if err != nil {
		return 0, unix.EBADF
	}
	if !strings.HasPrefix(link, "socket:") {
		return 0, unix.ENOTSOCK
	}
	info, err := os.ReadFile(procOf(n) + "fdinfo/" + fdName(number))
	if err != nil {
		return 0, unix.EBADF
	}
	if !w.listener.isValid(n.id) {
		return 0, unix.ESRCH
	}
	return parseFlags(info), 0
}

// parseFlags reads the flags, in octal, of /proc/PID/fdinfo/FD.
//
//	pos:	0
//	flags:	02004002
func parseFlags(info []byte) int {
	for line := range bytes.Lines(info) {
		if text, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			flags, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 8, 64) // the kernel writes numbers
			return int(flags)
		}
	}
	return 0
}
