package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64
	hasX32    = false
)

var mknodCalls = [...]mknodCall{{unix.SYS_MKNODAT, 2}}

var refused = commonRefused[:]
