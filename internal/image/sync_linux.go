package image

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFileSystem(f *os.File) error { return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) }
