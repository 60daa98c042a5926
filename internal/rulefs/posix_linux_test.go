package rulefs

import (
	"maps"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// notPOSIX wants two locks of one process to be in each other's way, which they
// are on no file system of the kernel's; see TestLocksAreBetweenProcesses.
const notPOSIX = "FcntlFlockLocksFile"

func TestPOSIX(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		if name != notPOSIX {
			t.Run(name, func(t *testing.T) {
				if name == "XAttrLarge" {
					t.Setenv("TMPDIR", "/dev/shm") // most disks have no room for so large an attribute
				}
				posixtest.All[name](t, newWorld(t).mnt)
			})
		}
	}
}
