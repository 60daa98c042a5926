package broker

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pageSize = 4096 // the smallest; a larger one is read in parts

// readString copies a NUL-terminated string out of a thread's memory.
func (w *worker) readString(pid uint32, at uint64) (string, unix.Errno) {
	buf := w.text[:0]
	for len(buf) < unix.PathMax {
		n := int(pageSize - at%pageSize)
		n = min(n, unix.PathMax-len(buf))
		chunk := buf[len(buf) : len(buf)+n]
		if errno := readMemory(pid, at, chunk); errno != 0 {
			return "", errno
		}
		if i := bytes.IndexByte(chunk, 0); i >= 0 {
			return string(buf[:len(buf)+i]), 0
		}
		buf = buf[:len(buf)+n]
		at += uint64(n)
	}
	return "", unix.ENAMETOOLONG
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
	case errno != 0:
		return errno
	case int(n) != len(into):
		return unix.EFAULT
	}
	return 0
}
