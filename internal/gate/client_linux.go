package gate

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/owner"
)

// peerOf returns who connected to a unix socket.
func peerOf(c *net.UnixConn) owner.Process {
	raw, err := c.SyscallConn()
	if err != nil {
		return owner.Process{}
	}
	var pid int
	_ = raw.Control(func(fd uintptr) { // without an answer it stays unknown
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return owner.Named(pid)
}

// whenGone calls a function when the other end of a connection is closed. It
// reads nothing, and stop returns when the function is not called any more.
func whenGone(c net.Conn, call func()) (stop func()) {
	file, ok := c.(interface{ File() (*os.File, error) })
	if !ok {
		return func() {}
	}
	f, err := file.File() // another descriptor, that nobody else waits for
	if err != nil {
		return func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if raw.Read(isGone) == nil {
			call()
		}
	}()
	return func() {
		_ = f.Close()
		<-done
	}
}

func isGone(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
