package gate

import (
	"net"
	"net/netip"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
)

// serveRedirected serves a connection that a program believes to be to the
// server itself. The address it wanted tells the name that it looked up.
func (s *session) serveRedirected() {
	c, ok := s.client.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	to, err := s.gate.options.Destination(c)
	if err != nil || to == c.LocalAddr().(*net.TCPAddr).AddrPort() {
		// Not redirected: somebody connects to the gate by its own address.
		relay.Reset(c)
		return
	}
	s.serveMeantFor(to)
}

// serveMeantFor serves a connection that a program believes to be to an address.
func (s *session) serveMeantFor(to netip.AddrPort) {
	host, err := hostname.FromAddr(to.Addr())
	if err != nil {
		relay.Reset(s.client.Conn)
		return
	}
	s.tunnel(host, to.Port(), func(err error) error {
		if err == nil {
			return nil
		}
		return s.refuseRedirected(err)
	})
}

// refuseRedirected tells a client in its own protocol why it gets no connection,
// as it believes to have one. The error is for the caller.
func (s *session) refuseRedirected(err error) error {
	s.client.expect(greetingTime)
	said, _, sniffed := sniff(s.client)
	if sniffed != nil {
		said = speechNone
	}
	t := &tunnel{session: s}
	return t.refuse(said, err)
}
