package probe

import "golang.org/x/sys/unix"

// otherTables says that the processor has further ways to make system calls.
const otherTables = true

// x32 makes a call by its number in the table of x32 programs.
func x32() unix.Errno {
	const bit = 0x40000000
	_, _, errno := unix.RawSyscall(unix.SYS_GETPID|bit, 0, 0, 0)
	return errno
}

// int80 makes a call as a 32-bit program does, and returns what it returned.
// Where the filter looks at the architecture the process dies.
func int80() int64
