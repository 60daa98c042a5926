package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = 0xc000003e // AUDIT_ARCH_X86_64
	hasX32    = true
)

var archModeCalls = []modeCall{
	{nr: unix.SYS_CHMOD, mode: 1, flags: -1, named: true},
	{nr: unix.SYS_OPEN, mode: 2, flags: 1},
	{nr: unix.SYS_CREAT, mode: 1, flags: -1, makes: true},
	{nr: unix.SYS_MKNOD, mode: 1, flags: -1, node: true, makes: true},
}

var archNameCalls = []uint32{
	unix.SYS_MKDIR, unix.SYS_SYMLINK, unix.SYS_LINK, unix.SYS_RENAME,
}

var archRefused = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
	unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}

const nrFstatat = unix.SYS_NEWFSTATAT

var archLookCalls = []uint32{
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_UNLINK, unix.SYS_RMDIR,
	unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}

var archRemoveCalls = []uint32{
	unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}
