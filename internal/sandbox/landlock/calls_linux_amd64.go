package landlock

import "golang.org/x/sys/unix"

var openCalls = [...]openCall{{unix.SYS_OPEN, 1}, {unix.SYS_OPENAT, 2}}

// oldDateCalls are those that only old architectures have.
var oldDateCalls = []uint32{unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}
