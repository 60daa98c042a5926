package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64
	hasX32    = false

	nrFstatat = unix.SYS_FSTATAT
)

var archModeCalls []modeCall

var archRefused, archNameCalls, archLookCalls, archRemoveCalls []uint32
