package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unneeded are capabilities of root that neither the server nor anything it starts
// has a use for: to change the kernel, its clock or its log, to reach hardware, and
// to undo the rules of security modules.
var unneeded = []uint{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_PACCT, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_TTY_CONFIG,
	unix.CAP_AUDIT_CONTROL, unix.CAP_MAC_OVERRIDE, unix.CAP_MAC_ADMIN, unix.CAP_SYSLOG, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND,
}

// dropPrivileges gives them up, in every thread and for every program that is
// started from here on. A program that was built with cgo cannot, and keeps them.
// That the keeper starts engines, whose files may have privileges of their own, is
// why no_new_privs is not set.
func dropPrivileges() error {
	if os.Geteuid() != 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	bounded := sets[0].Effective&(1<<unix.CAP_SETPCAP) != 0
	for _, c := range unneeded {
		if bounded {
			if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 && errno != unix.ENOTSUP {
				return fmt.Errorf("give up capability %d: %w", c, errno)
			}
		}
		set, bit := &sets[c/32], uint32(1)<<(c%32)
		set.Effective &^= bit
		set.Permitted &^= bit
		set.Inheritable &^= bit
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	if errno != 0 && errno != unix.ENOTSUP {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}
