package gate

import (
	"net"
	"net/http"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

const (
	defaultConnections = 512
	defaultHeaderBytes = 64 << 10

	// greetingTime is how long a client may take to say what it wants, once it
	// is connected or has begun to.
	greetingTime = 30 * time.Second
	// keepAliveTime is how long a connection is kept for another request.
	keepAliveTime = 2 * time.Minute

	maxAnswerHead = 256 << 10

	// lastWords is how long a client has to take in that a limit was met.
	lastWords = time.Second
	// As many clients at once are told that there is no room, and have this long to
	// say in which protocol they want to hear it.
	maxTurnedAway = 64
	turnAwayTime  = 5 * time.Second
)

// withDefaults sets what must have a limit. A connection may be idle for as long
// as it wants, unless the policy says otherwise: who waits for a person, or for
// events, is none of the gate's business, and the kernel finds peers that are
// gone.
func withDefaults(l config.Limits) config.Limits {
	if l.Connections <= 0 {
		l.Connections = defaultConnections
	}
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = defaultHeaderBytes
	}
	l.HeaderBytes = min(l.HeaderBytes, 1<<20)
	return l
}

// limitEvent reports that a limit was met.
func limitEvent(limit string) *event.Event {
	e := event.New(event.Limit)
	e.Limit = "network." + limit
	return e
}

// The errors for what a limit ends, as clients are told.
func errTotal(status int) error { return overLimit(status, "the connection lasts longer", "total") }

func errIdle() error {
	return overLimit(http.StatusGatewayTimeout, "the server says nothing for longer", "idle")
}

func overLimit(status int, what, limit string) error {
	return &head.Error{Status: status, Text: what + " than network.limits." + limit + " allows"}
}

// turnAway tells a client in its own protocol that there is no room for it.
func (g *Gate) turnAway(role config.Role, c net.Conn) {
	select {
	case g.away <- struct{}{}:
	default:
		relay.Reset(c)
		return
	}
	if !g.track(role, c) {
		<-g.away
		relay.Reset(c)
		return
	}
	go func() {
		defer func() {
			_ = c.Close()
			g.untrack(c)
			<-g.away
		}()
		s := g.newSession(c)
		defer s.cancel()
		s.turnAway(role)
	}()
}

func (s *session) turnAway(role config.Role) {
	if role == config.RoleDNSTCP || role == roleExposed {
		return // there is no way to say it
	}
	s.client.expect(turnAwayTime)
	first, err := s.client.peek(1)
	if err != nil {
		return
	}
	if role != config.RoleTCP && socks.Begins(first[0]) {
		if q, err := socks.Accept(s.client.buffered(), s.client); err == nil {
			_ = q.Answer(s.client, socks.Failed) // who is gone need not know
		}
		return
	}
	said, _, err := sniff(s.client)
	if err != nil {
		return
	}
	t := &tunnel{session: s}
	_ = t.refuse(said, &head.Error{Status: http.StatusServiceUnavailable, Text: "there are as many connections at once as network.limits.connections allows"})
	(&exchange{session: s, client: s.client}).linger()
}
