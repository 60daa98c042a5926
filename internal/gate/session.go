package gate

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/owner"
	"github.com/bailey-sandbox/bailey/internal/gate/relay"
	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

// session serves one connection from inside.
type session struct {
	*state
	gate    *Gate
	ctx     context.Context
	client  *wire
	process func() owner.Process // who made it
	expired atomic.Bool          // the limit on its time was met
	idled   atomic.Bool          // the limit on its idle time was met

	mu    sync.Mutex        // requests of HTTP/2 come side by side
	asked map[question]bool // what a person allowed for this connection
}

// acceptFailed waits where descriptors are short, since accepting again at once
// would fail again, and returns what cannot be waited out.
func (g *Gate) acceptFailed(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNABORTED):
		return nil
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS):
		g.emit(limitEvent("descriptors"))
		select {
		case <-time.NewTimer(100 * time.Millisecond).C:
		case <-g.ctx.Done():
		}
		return nil
	}
	return err
}

// begin serves a connection if there is room for it.
func (g *Gate) begin(role config.Role, c net.Conn, serve func(*session)) {
	select {
	case g.slots <- struct{}{}:
	default:
		g.emit(limitEvent("limits.connections"))
		if role == config.RoleHTTP {
			// The kernel takes so few bytes without waiting.
			_, _ = c.Write(plainAnswer(503, "Bailey: too many connections at once; see network.limits.connections.\n", true))
		}
		_ = c.Close()
		return
	}
	if !g.track(role, c) {
		<-g.slots
		relay.Reset(c)
		return
	}
	go func() {
		defer func() {
			g.untrack(c)
			<-g.slots
		}()
		g.serve(c, serve)
	}()
}

func (g *Gate) serve(c net.Conn, serve func(*session)) {
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	s := &session{state: g.current.Load(), gate: g, ctx: ctx, client: newWire(c), process: g.clientOf(c)}
	if total := s.limits.Total; total > 0 {
		defer time.AfterFunc(total, func() {
			s.expired.Store(true)
			relay.Reset(c)
			cancel()
		}).Stop()
	}
	serve(s)
	_ = c.Close()
	if s.expired.Load() {
		s.emit(limitEvent("limits.total"))
	}
}

// track remembers a connection, so that Close can end it. It says false once
// the gate is closed.
func (g *Gate) track(role config.Role, c net.Conn) bool {
	return g.enter(func() { g.open[c] = role })
}

// enter has Close wait for one more, and for what is to be known by then. It says
// false once the gate is closed.
func (g *Gate) enter(remember func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	remember()
	g.wait.Add(1)
	return true
}

func (g *Gate) untrack(c net.Conn) {
	g.mu.Lock()
	delete(g.open, c)
	g.mu.Unlock()
	g.wait.Done()
}

// serveMixed tells SOCKS from HTTP by the first byte.
func (s *session) serveMixed() {
	s.client.expect(greetingTime)
	first, err := s.client.peek(1)
	if err != nil {
		return
	}
	if socks.Begins(first[0]) {
		s.serveSOCKS()
		return
	}
	s.serveProxy()
}

func (s *session) serveNames() {
	// How it ends is of no interest.
	_ = s.gate.server.ServeStream(s.ctx, s.client)
}

// relayLimits are for bytes that are only carried. The limit on the total time
// holds for the session.
func (s *session) relayLimits() relay.Limits {
	return relay.Limits{Idle: s.limits.Idle, Bucket: s.bucket}
}

// emit records an event of this gate's sandbox.
func (g *Gate) emit(e *event.Event) {
	e.Sandbox = g.current.Load().config.Sandbox
	g.events.Emit(e)
}

// emit records an event of this connection's process.
func (s *session) emit(e *event.Event) {
	p := s.process()
	e.Pid, e.Process = p.Pid, p.Name
	s.gate.emit(e)
}

// isTimeout says whether a deadline passed.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
