//go:build !darwin

package spec

// Runtimes are the names of all that can carry out a Spec on this system. The first
// needs nothing but the kernel; which of the others work is another question.
func Runtimes() []string {
	return []string{RuntimeNative, RuntimeLandlock, RuntimeBwrap, "runc", "crun", "gvisor", "docker", "docker+runsc"}
}
