package oci

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keepNull puts a device of our own in the place of every stream that is the host's
// /dev/null. A runtime gives the streams to the user inside, and to root that
// succeeds: afterwards the host's device would belong to an id that nobody has.
func (s *streams) keepNull() error {
	if os.Geteuid() != 0 {
		return nil // it may not give away what is not its own
	}
	var own *os.File
	for i, f := range s.inner {
		if !isNull(f) {
			continue
		}
		if own == nil {
			var err error
			if own, err = newNull(); err != nil {
				return fmt.Errorf("make a null device for the streams: %w", err)
			}
			s.ours = append(s.ours, own)
		}
		s.inner[i] = own
	}
	return nil
}

func isNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// newNull makes a null device in a file system that is mounted nowhere, and goes with
// the descriptor.
func newNull() (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	dir, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer func() { _ = unix.Close(dir) }()
	if err := unix.Mknodat(dir, "null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return nil, os.NewSyscallError("mknodat", err)
	}
	fd, err := unix.Openat(dir, "null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil
}
