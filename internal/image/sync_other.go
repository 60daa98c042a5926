//go:build unix && !linux

package image

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFileSystem(*os.File) error {
	unix.Sync()
	return nil
}
