package gate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/owner"
)

// ServeHanded serves connections that come over a socket, until that or the gate
// is closed; see config.RoleHanded.
func (g *Gate) ServeHanded(from *net.UnixConn) error {
	if !g.enter(func() {}) {
		return from.Close()
	}
	defer g.wait.Done()
	stop := context.AfterFunc(g.ctx, func() { from.Close() })
	defer stop()
	for {
		c, about, err := receiveHanded(from)
		switch {
		case g.ctx.Err() != nil || errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF):
			if c != nil {
				c.Close()
			}
			return nil
		case err != nil:
			if err := g.acceptFailed(err); err != nil {
				return err
			}
			continue
		}
		g.begin(about.role, c, func(s *session) {
			process := owner.Named(about.pid)
			s.process = func() owner.Process { return process }
			if about.role == config.RoleTCP {
				s.serveMeantFor(about.to)
				return
			}
			s.serveMixed()
		})
	}
}

// handedOver is what is said about a connection.
type handedOver struct {
	role config.Role
	to   netip.AddrPort
	pid  int
}

func receiveHanded(from *net.UnixConn) (net.Conn, handedOver, error) {
	text, oob := make([]byte, 128), make([]byte, syscall.CmsgSpace(4))
	n, control, _, _, err := from.ReadMsgUnix(text, oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, handedOver{}, err
	}
	c, err := connIn(oob[:control])
	if err != nil {
		return nil, handedOver{}, err
	}
	about, err := parseHanded(string(text[:n]))
	if err != nil {
		c.Close()
		return nil, handedOver{}, err
	}
	return c, about, nil
}

// connIn is the connection in a control message. Where this process has no
// descriptor left for it there is none.
func connIn(control []byte) (net.Conn, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil, syscall.EMFILE
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, syscall.EMFILE
	}
	syscall.CloseOnExec(fds[0])
	f := os.NewFile(uintptr(fds[0]), "handed")
	defer f.Close() // package net keeps a descriptor of its own
	return net.FileConn(f)
}

// parseHanded reads "ROLE ADDR:PORT PID".
func parseHanded(text string) (h handedOver, err error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return h, errors.New("a connection was handed over without a word")
	}
	h.role = config.Role(fields[0])
	if h.role != config.RoleMixed && h.role != config.RoleTCP {
		return h, errors.New("a connection was handed over as " + strconv.Quote(fields[0]))
	}
	if h.to, err = netip.ParseAddrPort(fields[1]); err != nil {
		return h, err
	}
	h.pid, err = strconv.Atoi(fields[2])
	return h, err
}
