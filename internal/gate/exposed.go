package gate

import (
	"net"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
)

// Dialer connects to a port inside of the sandbox.
type Dialer func(port uint16, patience time.Duration) (*net.TCPConn, error)

// insideTime is how long a server inside may take to accept a connection.
const insideTime = 10 * time.Second

// lastBytesTime is how long clients outside may take what servers inside sent
// before the sandbox ended. Only one that does not read ever uses it up.
const lastBytesTime = 3 * time.Second

// roleExposed is of connections that lead inside. Close leaves them to end by
// themselves: what a server sent right before it ended is still on its way.
const roleExposed config.Role = "exposed"

// Expose leads connections that come to a listener outside to one port inside,
// until the listener or the gate is closed. They count for the limits, as those
// that lead out do.
func (g *Gate) Expose(l net.Listener, port uint16, dial Dialer) error {
	return g.accept(roleExposed, l, func(s *session) { s.serveExposed(port, dial) })
}

// serveExposed connects a client outside with the server inside. One that nobody
// inside waits for is reset: it has been accepted already.
func (s *session) serveExposed(port uint16, dial Dialer) {
	begin := time.Now()
	server, err := dial(port, insideTime)
	if err != nil {
		relay.Reset(s.client.Conn)
		return
	}
	from, _, _ := net.SplitHostPort(s.client.RemoteAddr().String())
	// Seen from the sandbox, in is what the client sends.
	limits := s.relayLimits()
	limits.Gone, limits.Grace = s.gate.ctx.Done(), lastBytesTime
	r := relay.Run(server, s.client.Conn, limits)
	e := event.New(event.Connection)
	e.Op, e.Address, e.Port = event.OpAccept, from, int(port)
	e.BytesIn, e.BytesOut, e.Duration = r.In, r.Out, time.Since(begin)
	e.Rule = "network.exposePorts " + strconv.Itoa(int(port))
	s.gate.emit(e)
}
