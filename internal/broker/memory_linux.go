package broker

import (
	"bytes"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pageSize = 4096 // the smallest; a larger one is read in parts

// readString copies a NUL-terminated string out of a thread's memory.
func (w *worker) readString(pid uint32, at uint64) (string, unix.Errno) {
	return w.readText(pid, at, unix.PathMax, unix.ENAMETOOLONG)
}

// readText copies a string that with its end is at most so long, a page at a
// time: behind its own there may be nothing.
func (w *worker) readText(pid uint32, at uint64, longest int, tooLong unix.Errno) (string, unix.Errno) {
	buf := w.text[:0]
	for len(buf) < longest {
		n := min(int(pageSize-at%pageSize), longest-len(buf))
		buf = slices.Grow(buf, n)
		chunk := buf[len(buf) : len(buf)+n]
		if errno := readMemory(pid, at, chunk); errno != 0 {
			return "", errno
		}
		w.text = buf
		if i := bytes.IndexByte(chunk, 0); i >= 0 {
			return string(buf[:len(buf)+i]), 0
		}
		buf = buf[:len(buf)+n]
		at += uint64(n)
	}
	return "", tooLong
}

// readMemory copies len(into) bytes.
func readMemory(pid uint32, at uint64, into []byte) unix.Errno {
	if len(into) == 0 {
		return 0
	}
	local := unix.Iovec{Base: &into[0]}
	local.SetLen(len(into))
	remote := unix.RemoteIovec{Base: uintptr(at), Len: len(into)}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	switch {
	case errno == unix.EPERM || errno == unix.ENOSYS:
		return readMemoryFile(pid, at, into)
	case errno != 0:
		return errno
	case int(n) != len(into):
		return unix.EFAULT
	}
	return 0
}

// readMemoryFile is readMemory where a container's filter refuses the call for
// that. The kernel asks for the same rights.
func readMemoryFile(pid uint32, at uint64, into []byte) unix.Errno {
	fd, err := unix.Open("/proc/"+strconv.Itoa(int(pid))+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Pread(fd, into, int64(at))
	switch {
	case err == unix.EIO || err == nil && n != len(into):
		return unix.EFAULT
	case err != nil:
		return errnoOf(err)
	}
	return 0
}
