package gate

import (
	"net"
	"net/netip"

	"github.com/bailey-sandbox/bailey/internal/gate/owner"
)

// findOwners lets events name processes, if that is wanted and can be done.
func (g *Gate) findOwners() (err error) {
	if g.options.Peers == nil {
		return nil
	}
	if g.options.Config.Process == 0 {
		return g.options.Peers.Close()
	}
	g.owners, err = owner.New(g.options.Config.Process, g.options.Peers)
	return err
}

func nobody() owner.Process { return owner.Process{} }

// clientOf finds out who made a connection, beside whatever else is done with it:
// a process may be gone when the connection ends. The function it returns waits
// for the answer.
func (g *Gate) clientOf(c net.Conn) func() owner.Process {
	if u, ok := c.(*net.UnixConn); ok && g.options.Config.Process != 0 {
		p := peerOf(u)
		return func() owner.Process { return p }
	}
	t, ok := c.(*net.TCPConn)
	if !ok || g.owners == nil {
		return nobody
	}
	var p owner.Process
	found := make(chan struct{})
	go func() {
		defer close(found)
		to := t.LocalAddr().(*net.TCPAddr).AddrPort()
		if meant, err := g.options.Destination(t); err == nil {
			to = meant
		}
		p = g.owners.TCP(t.RemoteAddr().(*net.TCPAddr).AddrPort(), to)
	}()
	return func() owner.Process {
		<-found
		return p
	}
}

// lookerUp returns who asked for a name. In the sandbox's network a datagram to
// elsewhere has the same address at both ends.
func (g *Gate) lookerUp(from netip.AddrPort) owner.Process {
	if g.owners == nil || !from.IsValid() {
		return owner.Process{}
	}
	return g.owners.UDP(from, netip.AddrPortFrom(from.Addr(), dnsPort))
}
