package native

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// What follows is for package landlock, which carries a Spec out with the walls
// of this one that need no namespaces, and puts them up in containers.

// LandlockABI asks the kernel for its interface; 0 means Landlock is missing.
func LandlockABI() (int, unix.Errno) { return landlockABI() }

// HandledRights are the file rights that exist from an interface on.
func HandledRights(abi int) uint64 { return handledRights(abi) }

// Rights are what a rule grants.
func Rights(r *spec.LandlockRule) uint64 { return rightsOf(r) }

// StreamRights are the rights to open a command's own streams again. It refuses
// streams that would give the command more than the Spec does.
func StreamRights(s *spec.Spec, streams [3]*os.File, abi int) ([3]uint64, error) {
	return checkStreams(s, streams, abi)
}

// StreamRight are the rights to open one stream again.
func StreamRight(fd int) (uint64, error) { return streamRights(fd) }

// Scopes are what stays within, as far as an interface knows it.
func Scopes(l *spec.Landlock, abi int) uint64 {
	if abi < 6 {
		return 0
	}
	return scopesOf(l)
}

// FilterOptions are what the filter of a Spec asks its broker, and which sockets it allows.
func FilterOptions(s *spec.Spec) seccomp.Options { return filterOptions(s) }

// Families are the numbers of socket families.
func Families(names []string) []uint32 { return families(names) }

// LimitNumber is the kernel's number of a resource limit.
func LimitNumber(name string) (int, bool) {
	n := limitNumber(name)
	return n, n >= 0
}

// Devices are the names of those that every sandbox has.
func Devices() []string { return devices[:] }

// DeviceLinks are the symbolic links beside them: their text and their name.
func DeviceLinks() [][2]string { return deviceLinks[:] }
