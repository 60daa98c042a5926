//go:build linux && !amd64

package probe

import "golang.org/x/sys/unix"

const otherTables = false

func x32() unix.Errno { return unix.ENOSYS }

func int80() int64 { return -int64(unix.ENOSYS) }
