package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// AskFunc answers a question of the gate with one of the decisions that package
// config has. It may take its time, and several may be asked at once; when the
// context ends nobody waits for the answer any more.
type AskFunc func(ctx context.Context, question config.Message) (decision string)

// Asks says whether a question could come up.
func (g *Gate) Asks() bool { return g != nil && g.config.Asks() }

// record has events of a sandbox reported. To find out which process an event is
// about costs something, which who records none need not pay.
func (g *Gate) record(process int, report func(*event.Event)) {
	if g.report = report; report == nil {
		g.report = func(*event.Event) {}
		return
	}
	g.process = process
}

// now is the configuration that holds.
func (g *Gate) now() config.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config
}

// told is the configuration with what only this process knows.
func (g *Gate) told(c config.Config) config.Config {
	c.CanAsk, c.Process = g.Ask != nil, g.process
	if c.Environ == nil {
		c.Environ = g.Environ
	}
	return c
}

// converse takes what the gate says on its control socket, until that is closed
// and nobody is asked any more.
func (g *Gate) converse(l *life) {
	c := l.messages
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(l.hungUp)
	all, cancel := context.WithCancel(context.Background())
	defer cancel()
	open := map[uint64]context.CancelFunc{}
	for {
		m, err := c.Receive()
		var bad *config.MessageError
		switch {
		case errors.As(err, &bad):
			continue // from another release
		case err != nil:
			return
		}
		switch m.Type {
		case config.Question:
			ctx, done := context.WithCancel(all)
			open[m.ID] = done
			asking.Go(func() { g.answer(ctx, c, m) })
		case config.Withdrawn:
			if done := open[m.ID]; done != nil {
				done()
				delete(open, m.ID)
			}
		case config.Ready:
			l.ready = true
		case config.Reloaded:
			l.reloaded <- m.Error
		}
	}
}

func (g *Gate) answer(ctx context.Context, c *config.Conn, q config.Message) {
	decision := config.Unanswered
	if g.Ask != nil {
		decision = g.Ask(ctx, q)
	}
	// If it fails the gate is gone, and nobody waits.
	_ = c.Send(config.Message{Type: config.Answer, ID: q.ID, Decision: decision})
}

// Reload gives the gate another configuration, which holds for connections that
// come from now on. If it returns an error, the old one still holds. The
// environment stays as it was unless the configuration has one.
func (g *Gate) Reload(c config.Config) error {
	if g == nil {
		return errors.New("the sandbox has no network gate")
	}
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if c.Environ == nil {
		c.Environ = g.environ()
	}
	var asked *life
	for {
		l, err := g.keepFor(asked, c)
		if l == nil || err != nil {
			return err
		}
		told := g.told(c)
		if l.messages.Send(config.Message{Type: config.Reload, Config: &told}) == nil {
			select {
			case text := <-l.reloaded:
				if text != "" {
					return errors.New(text)
				}
			case <-l.hungUp: // the next one begins with it
			}
		}
		asked = l
	}
}

// environ is the environment that the gate has, or would have.
func (g *Gate) environ() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.config.Environ != nil {
		return g.config.Environ
	}
	return g.Environ
}

// keepFor keeps a configuration for the next gate, unless there is one that must be
// asked first, which it returns: any but the one that was.
func (g *Gate) keepFor(asked *life, c config.Config) (*life, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.broken != nil:
		return nil, fmt.Errorf("the network gate of the sandbox does not run: %w; start the sandbox again", g.broken)
	case g.closed:
		return nil, errors.New("the sandbox has ended")
	case g.life != nil && g.life != asked:
		return g.life, nil
	}
	g.config = c
	return nil, nil
}
