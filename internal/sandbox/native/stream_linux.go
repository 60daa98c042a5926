package native

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// checkStream refuses a stream that would give the command more than the Spec
// does. A stream stays on the host's own mount, where no read-only flag and no
// cover of the sandbox holds.
func checkStream(s *spec.Spec, fd int, access uint64) error {
	if access != 0 {
		return checkFile(s, fd)
	}
	if s.Network.IsOwn() {
		return checkSocket(fd)
	}
	return nil
}

// checkFile compares what Landlock would grant the file for its place in a
// granted directory with what the Spec grants it.
func checkFile(s *spec.Spec, fd int) error {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	granted, m := s.Access(name)
	if m != nil && m.Kind != spec.Bind && m.Kind != spec.Hide {
		return nil // what stands there inside is not this file
	}
	for i := range s.Landlock.Rules {
		r := &s.Landlock.Rules[i]
		if !spec.Covers(r.Path, name) {
			continue
		}
		if _, base := s.Access(r.Path); base == nil || base.Kind != spec.Bind {
			continue // a rule for the sandbox's own
		}
		if r.Write && granted < spec.AccessWrite || r.Read && granted < spec.AccessRead {
			return ErrProtected
		}
	}
	return nil
}

// checkSocket lets of sockets only connected unix sockets in, which programs use
// as pipes.
func checkSocket(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if errors.Is(err, unix.ENOTSOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if domain != unix.AF_UNIX || kind != unix.SOCK_STREAM && kind != unix.SOCK_SEQPACKET {
		return ErrSocket
	}
	return nil
}
