package transport

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// lookAt says who connected to a unix socket, as the kernel vouches for it. A
// process in a user namespace of its own is no peer of the server's, whatever its
// number: it may be in a sandbox that a policy shows the socket by mistake.
func lookAt(c *net.UnixConn) peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{unix: true}
	}
	var credentials *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return peer{unix: true}
	}
	return peer{unix: true, own: int(credentials.Uid) == os.Geteuid() && sameNamespace(int(credentials.Pid))}
}

func sameNamespace(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	return err == nil && own == other
}
