package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// Address is where to listen: "unix:/PATH", or "HOST:PORT".
type Address string

// UnixPath returns the path of a unix socket, or that it is none.
func (a Address) UnixPath() (string, bool) { return strings.CutPrefix(string(a), "unix:") }

// Exposure says how far an address reaches, and what is done about it.
type Exposure struct {
	Public    bool // others than this machine may be let in
	Plaintext bool // even without TLS, because a proxy in front has it
	TLS       *tls.Config
}

// Listen opens an address. Without being told so it opens none that another
// machine can reach, and none of those without TLS. What it returns does not
// speak TLS yet: see Secure.
func Listen(a Address, e Exposure) (net.Listener, error) {
	if path, ok := a.UnixPath(); ok {
		return listenUnix(path)
	}
	l, err := net.Listen("tcp", string(a))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a, err)
	}
	if err := e.Allows(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Secure returns the listener with TLS, if there is any and it is not a unix
// socket's, where nobody is in between.
func (e Exposure) Secure(l net.Listener) net.Listener {
	if e.TLS == nil || l.Addr().Network() == "unix" {
		return l
	}
	return tls.NewListener(l, e.TLS)
}

// Allows returns why an address may not be listened at, if so.
func (e Exposure) Allows(a net.Addr) error {
	if tcp, ok := a.(*net.TCPAddr); !ok || tcp.IP.IsLoopback() {
		return nil
	}
	if !e.Public {
		return fmt.Errorf("other machines can reach %s: add --public if they should", a)
	}
	if e.TLS == nil && !e.Plaintext {
		return fmt.Errorf("tokens would cross the network in the clear at %s: add --tls-cert and --tls-key, or --plaintext if a proxy in front has TLS", a)
	}
	return nil
}

// listenUnix makes a socket that only the user can reach. One that a server
// which was killed left behind is replaced; one that answers is not.
func listenUnix(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("a server listens at %s already: stop it first, or give this one another --state", path)
	} else if info, serr := os.Lstat(path); serr == nil && info.Mode()&os.ModeSocket != 0 && errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// The directory is the user's alone, so that nobody is there between the two.
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := markOwn(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
