package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64
	hasX32    = false
)

var modeCalls = commonModeCalls[:]

var refused = commonRefused[:]

var nameCalls = commonNameCalls[:]

const nrFstatat = unix.SYS_FSTATAT

var lookCalls = commonLookCalls[:]

var removeCalls = commonRemoveCalls[:]
