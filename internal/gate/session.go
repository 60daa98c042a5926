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

	cancel context.CancelFunc

	mu        sync.Mutex        // requests of HTTP/2 come side by side
	asked     map[question]bool // what a person allowed for this connection
	interrupt func()            // see answerable
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
		g.turnAway(role, c)
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

// newSession is a session for a connection. Its cancel must be called.
func (g *Gate) newSession(c net.Conn) *session {
	s := &session{state: g.current.Load(), gate: g, process: g.clientOf(c)}
	s.ctx, s.cancel = context.WithCancel(g.ctx)
	s.client = s.wireOf(c)
	return s
}

// wireOf is the client's end of the session, as it is or inside of TLS.
func (s *session) wireOf(c net.Conn) *wire {
	w := newWire(c)
	w.idle = s.limits.Idle
	return w
}

func (g *Gate) serve(c net.Conn, serve func(*session)) {
	s := g.newSession(c)
	defer s.cancel()
	if total := s.limits.Total; total > 0 {
		defer time.AfterFunc(total, s.expire).Stop()
		defer time.AfterFunc(total+lastWords, s.end).Stop()
	}
	serve(s)
	_ = c.Close()
	if s.expired.Load() {
		s.emit(limitEvent("limits.total"))
	}
}

// expire is called when the time of the session is over. Where the client can
// still be told why, it is.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired.Store(true)
	if s.interrupt == nil {
		s.end()
		return
	}
	s.interrupt()
}

// end ends the session in whatever state it is.
func (s *session) end() {
	relay.Reset(s.client.Conn)
	s.cancel()
}

// answerable says that until done is called the client can be answered, once
// interrupt has ended what is waited for.
func (s *session) answerable(interrupt func()) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.interrupt
	s.interrupt = interrupt
	if s.expired.Load() {
		interrupt()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.interrupt = before
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
