package nameserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"
)

const (
	// maxQueries is how many look-ups may be under way. A program that asks
	// more at once has to ask again.
	maxQueries = 128
	// maxQuery is more than a name, with all that may stand around it.
	maxQuery = 2048
	// maxFailures is how often in a row a socket may fail before it is taken
	// for broken.
	maxFailures = 100
	// maxControl holds what the kernel tells with a packet, for both families.
	maxControl = 128
	// idle is how long a TCP connection may say nothing.
	idle = 10 * time.Second
)

// ServePacket answers queries until the socket is closed. A question is told
// from where it came, and answered from where it went.
func (s *Server) ServePacket(ctx context.Context, c *net.UDPConn) error {
	replyFromSameAddress(c)
	free := make(chan struct{}, maxQueries)
	for failures := 0; ; {
		packet, control := make([]byte, maxQuery), make([]byte, maxControl)
		n, oob, _, from, err := c.ReadMsgUDPAddrPort(packet, control)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// One may come from a client that was gone when its answer came.
			if failures++; failures > maxFailures {
				return err
			}
			continue
		}
		failures = 0
		select {
		case free <- struct{}{}:
		default:
			continue
		}
		go func() {
			defer func() { <-free }()
			s.reply(context.WithValue(ctx, clientKey{}, from), c, packet[:n], control[:oob], from)
		}()
	}
}

// clientKey is for who asks, in the context of a look-up.
type clientKey struct{}

// ClientOf returns who sent the datagram that a look-up answers; the zero value
// if it did not come in one.
func ClientOf(ctx context.Context) netip.AddrPort {
	from, _ := ctx.Value(clientKey{}).(netip.AddrPort)
	return from
}

func (s *Server) reply(ctx context.Context, c *net.UDPConn, query, control []byte, to netip.AddrPort) {
	if response := s.Answer(ctx, query); response != nil {
		// Whoever asked may be gone by now.
		_, _, _ = c.WriteMsgUDPAddrPort(response, answerFrom(control), to)
	}
}

// ServeStream answers the queries of one TCP connection, one after the other.
func (s *Server) ServeStream(ctx context.Context, c net.Conn) error {
	for {
		if err := c.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxQuery {
			return errors.New("the query is too long")
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(c, query); err != nil {
			return err
		}
		response := s.Answer(ctx, query)
		if response == nil {
			return errors.New("not a query")
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...)); err != nil {
			return err
		}
	}
}
