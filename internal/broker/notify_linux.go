package broker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is the kernel's struct seccomp_notif: a call that waits for an
// answer.
type notification struct {
	id    uint64
	pid   uint32 // the calling thread, in our numbering
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id       uint64
	flags    uint32
	source   uint32
	target   uint32
	newFlags uint32
}

// Requests to the listener.
const (
	requestReceive  = 0xc0502100
	requestSend     = 0xc0182101
	requestIsValid  = 0x40082102
	requestAdd      = 0x40182103
	requestSetFlags = 0x40082104

	flagContinue = 1 // let the kernel perform the call
	flagSyncWake = 1 // run on the caller's processor
)

// listener is the descriptor over which the kernel asks.
type listener int

func (l listener) request(code uintptr, arg unsafe.Pointer) (int, unix.Errno) {
	r, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l), code, uintptr(arg))
	return int(r), errno
}

// receive takes the next call, and blocks if none waits. Without one, n stays
// zero: the caller was killed, or no call can come any more.
func (l listener) receive(n *notification) {
	*n = notification{}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), requestReceive, uintptr(unsafe.Pointer(n)))
	if errno != 0 {
		*n = notification{}
	}
}

// isValid says whether the caller still waits. What was read about it before
// that through its number belongs to it and not to a successor.
func (l listener) isValid(id uint64) bool {
	_, errno := l.request(requestIsValid, unsafe.Pointer(&id))
	return errno == 0
}

// add puts a descriptor of ours into the caller's table and returns its number
// there.
func (l listener) add(id uint64, fd int, cloexec bool) (int, unix.Errno) {
	a := addition{id: id, source: uint32(fd)}
	if cloexec {
		a.newFlags = unix.O_CLOEXEC
	}
	return l.request(requestAdd, unsafe.Pointer(&a))
}

// put puts a descriptor of ours into the caller's table, in the place of one that
// it has there.
func (l listener) put(id uint64, fd, number int, cloexec bool) unix.Errno {
	const atNumber = 1 // SECCOMP_ADDFD_FLAG_SETFD
	a := addition{id: id, flags: atNumber, source: uint32(fd), target: uint32(number)}
	if cloexec {
		a.newFlags = unix.O_CLOEXEC
	}
	_, errno := l.request(requestAdd, unsafe.Pointer(&a))
	return errno
}

// addAndSend is add, and answers the call with the number.
func (l listener) addAndSend(id uint64, fd int, cloexec bool) unix.Errno {
	const send = 2 // SECCOMP_ADDFD_FLAG_SEND
	a := addition{id: id, flags: send, source: uint32(fd)}
	if cloexec {
		a.newFlags = unix.O_CLOEXEC
	}
	_, errno := l.request(requestAdd, unsafe.Pointer(&a))
	return errno
}

// send answers a call. That the caller is gone is no error.
func (l listener) send(r *response) { _, _ = l.request(requestSend, unsafe.Pointer(r)) }

// wakeOnSameProcessor saves the cost of waking another one for every call.
// Kernels before 6.6 do not know it.
func (l listener) wakeOnSameProcessor() {
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(l), requestSetFlags, flagSyncWake)
}
