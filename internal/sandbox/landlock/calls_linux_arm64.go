package landlock

import "golang.org/x/sys/unix"

var openCalls = [...]openCall{{unix.SYS_OPENAT, 2}}
