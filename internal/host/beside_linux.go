package host

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Beside returns the program of this name that is installed beside the running
// one, or "".
func Beside(name string) string {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return ""
	}
	file := filepath.Join(filepath.Dir(self), name)
	if unix.Access(file, unix.X_OK) != nil {
		return ""
	}
	return file
}
