package transport

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	peers "github.com/bailey-sandbox/bailey/internal/peer"
)

// lookAt says who connected to a unix socket, as the kernel vouches for it. A
// confined process is no peer of the server's, whatever its number: it may be in a
// sandbox that a policy shows the socket by mistake.
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
	return peer{unix: true, own: int(credentials.Uid) == os.Geteuid() && peers.CheckFree(int(credentials.Pid)) == nil}
}

// markOwn makes a socket one that only the user reaches, and no broker of a sandbox.
func markOwn(path string) error { return syscall.Chmod(path, peers.Mode) }
