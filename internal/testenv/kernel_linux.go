package testenv

import (
	"os/exec"
	"sync"
	"syscall"
)

const (
	// The number is the same on every architecture: the call is younger than
	// the common table.
	sysLandlockCreateRuleset = 444
	landlockVersionFlag      = 1
)

// LandlockABI is the version of the kernel's Landlock interface, or 0 if it has
// none.
func LandlockABI() int {
	version, _, errno := syscall.Syscall(sysLandlockCreateRuleset, 0, 0, landlockVersionFlag)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// The namespace is made for a real child: AppArmor lets some hosts create one
// and then refuses everything in it, so writing the maps is part of the probe.
var userNamespaces = sync.OnceValue(func() bool {
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: syscall.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: syscall.Getegid(), Size: 1}},
	}
	return probe.Run() == nil
})
