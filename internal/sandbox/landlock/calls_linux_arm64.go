package landlock

import "golang.org/x/sys/unix"

var openCalls = [...]openCall{{unix.SYS_OPENAT, 2}}

// oldDateCalls are those that only old architectures have.
var oldDateCalls []uint32
