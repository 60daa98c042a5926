package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

var archRefusedByName = map[string]uint32{
	"iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM, "modify_ldt": unix.SYS_MODIFY_LDT,
	"uselib": unix.SYS_USELIB, "ustat": unix.SYS_USTAT, "sysfs": unix.SYS_SYSFS, "_sysctl": unix.SYS__SYSCTL,
	"create_module": unix.SYS_CREATE_MODULE, "get_kernel_syms": unix.SYS_GET_KERNEL_SYMS,
	"query_module": unix.SYS_QUERY_MODULE,
}

var archSamples = slices.Concat(
	nodeSamples(unix.SYS_MKNOD, 1),
	modeSamples(unix.SYS_CHMOD, 1),
	modeSamples(unix.SYS_CREAT, 1),
	openSamples(unix.SYS_OPEN, 1),
)
