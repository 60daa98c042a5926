package keeper

import (
	"context"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// Question is what a client's user is asked: whether the sandbox may reach a
// host. The client answers with one byte, which signals are no part of.
type Question struct {
	Slot byte
	config.Message
}

// Withdrawn says that nobody waits for the answer any more.
type Withdrawn struct{ Slot byte }

const (
	// maxSlots is how many questions a client can have at a time.
	maxSlots = 32
	// answerBit tells an answer from a signal.
	answerBit = 0x80
)

// decisions are those of package config, as answers number them.
var decisions = [4]string{config.Unanswered, config.Once, config.ForRun, config.Refusing}

func answerByte(slot byte, decision string) byte {
	return answerBit | slot<<2 | byte(max(slices.Index(decisions[:], decision), 0))
}

// questions are those that a client has to answer.
type questions struct {
	mu     sync.Mutex
	open   [maxSlots]chan string
	closed bool
}

// begin finds a place for a question. It says false if there is none.
func (q *questions) begin() (slot byte, answer <-chan string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.open {
		if q.open[i] == nil && !q.closed {
			q.open[i] = make(chan string, 1)
			return byte(i), q.open[i], true
		}
	}
	return 0, nil, false
}

func (q *questions) end(slot byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open[slot] = nil
}

// answer takes a byte of the client's.
func (q *questions) answer(b byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.open[b&^answerBit>>2]; c != nil {
		select {
		case c <- decisions[b&3]:
		default: // it has answered already
		}
	}
}

// close says that the client is gone.
func (q *questions) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, c := range q.open {
		if c != nil {
			close(c)
		}
	}
	q.open = [maxSlots]chan string{}
}

// ask puts a question of the network gate to whom it concerns.
func (b *box) ask(ctx context.Context, m config.Message) string {
	c := b.wait(ctx, m.Pid)
	if c == nil {
		return config.Unanswered
	}
	slot, answer, ok := c.questions.begin()
	if !ok {
		return config.Unanswered
	}
	defer c.questions.end(slot)
	if c.conn.send(tellQuestion, Question{slot, m}) != nil {
		return config.Unanswered
	}
	select {
	case decision, ok := <-answer:
		if ok {
			return decision
		}
	case <-ctx.Done():
		_ = c.conn.send(tellWithdrawn, Withdrawn{slot}) // it may be gone
	}
	return config.Unanswered
}

// wait returns the command whose client is to be asked, nil if there is none. One
// that has only just started is waited for.
func (b *box) wait(ctx context.Context, pid int) *command {
	for {
		c, more := b.concerned(pid)
		if more == nil {
			return c
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// concerned is the command that a process belongs to, if its client waits for it.
// If the process is not known, it is the only command there is. As long as one
// that is not known yet could be it, there is a channel that is closed when more
// are known.
func (b *box) concerned(pid int) (found *command, more <-chan struct{}) {
	var from []uint32
	if pid != 0 {
		from = broker.Ancestors(pid)
	}
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	for _, c := range b.commands {
		if slices.Contains(from, c.pid) || pid == 0 && b.users == 1 {
			found = c
		}
	}
	switch {
	case found == nil && len(b.commands) < b.users:
		if b.added == nil {
			b.added = make(chan struct{})
		}
		return nil, b.added
	case found == nil || found.conn == nil:
		return nil, nil
	}
	return found, nil
}

// announce says that more commands are known. The keeper's mutex is held.
func (b *box) announce() {
	if b.added != nil {
		close(b.added)
		b.added = nil
	}
}

// asked are the questions that this process has to answer.
type asked struct {
	ask     func(context.Context, config.Message) string // nil: nobody can be asked
	group   sync.WaitGroup
	mu      sync.Mutex
	cancels map[byte]context.CancelFunc
}

func (a *asked) begin(c *conn, q Question) {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancels == nil {
		a.cancels = map[byte]context.CancelFunc{}
	}
	a.cancels[q.Slot] = cancel
	a.group.Go(func() {
		decision := config.Unanswered
		if a.ask != nil {
			decision = a.ask(ctx, q.Message)
		}
		if ctx.Err() == nil {
			_, _ = c.file.Write([]byte{answerByte(q.Slot, decision)}) // the keeper may be gone
		}
	})
}

func (a *asked) withdraw(slot byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancels[slot]; cancel != nil {
		cancel()
	}
}

// end withdraws all, and returns when nobody is asked any more.
func (a *asked) end() {
	a.mu.Lock()
	for _, cancel := range a.cancels {
		cancel()
	}
	a.mu.Unlock()
	a.group.Wait()
}
