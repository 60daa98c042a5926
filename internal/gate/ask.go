package gate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

const (
	// askTime is how long a connection waits for an answer.
	askTime = 2 * time.Minute
	// maxQuestions may be open at a time. Who has to answer would not read more.
	maxQuestions = 16
)

// question is what a person is asked about: a host, and a port if it is not one
// of the web's. Rules that ask for different things ask by themselves.
type question struct {
	host hostname.Host
	port uint16 // 0: those of the web
	rule string // what asks
}

func questionFor(q rules.Query, r *config.Rule) question {
	asked := question{host: q.Host, port: q.Port}
	if q.Port == httpPort || q.Port == httpsPort {
		asked.port = 0
	}
	if r != nil {
		asked.rule = r.Name
	}
	return asked
}

// asker asks each question once, however many connections wait for the answer,
// and remembers answers that hold until the end.
type asker struct {
	control *config.Conn // nil: nobody to ask
	timeout time.Duration

	mu      sync.Mutex
	last    uint64
	pending map[question]*pending
	settled map[question]bool
}

type pending struct {
	id       uint64
	waiting  int
	answered chan struct{} // closed with the answer
	allowed  bool
	err      error // nobody could be asked
}

func newAsker(control *config.Conn) *asker {
	return &asker{control: control, timeout: askTime, pending: map[question]*pending{}, settled: map[question]bool{}}
}

var errNoAnswer = errors.New("nobody answered")

// ask returns what a person says. Of several who ask the same, the first says
// which rule and which process it is about.
func (a *asker) ask(ctx context.Context, q question, rule *config.Rule, pid func() int) (allowed, first bool, err error) {
	if a.control == nil {
		return false, false, errNoAnswer
	}
	p, first, settled := a.join(q)
	if settled {
		return a.remembered(q), false, nil
	}
	if p == nil {
		return false, false, errNoAnswer
	}
	defer a.leave(q, p)
	if first {
		m := config.Message{Type: config.Question, ID: p.id, Host: q.host.String(), Port: q.port, Rule: rule, Pid: pid()}
		if err := a.control.Send(m); err != nil {
			return false, first, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	select {
	case <-p.answered:
		return p.allowed, first, p.err
	case <-ctx.Done():
		return false, first, errNoAnswer
	}
}

// join waits with others who ask the same, unless that is settled. It returns nil
// if too many questions are open.
func (a *asker) join(q question) (p *pending, first, settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.settled[q]; ok {
		return nil, false, true
	}
	if p = a.pending[q]; p == nil {
		if len(a.pending) >= maxQuestions {
			return nil, false, false
		}
		a.last++
		p, first = &pending{id: a.last, answered: make(chan struct{})}, true
		a.pending[q] = p
	}
	p.waiting++
	return p, first, false
}

func (a *asker) remembered(q question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled[q]
}

// leave withdraws a question that nobody waits for any more.
func (a *asker) leave(q question, p *pending) {
	a.mu.Lock()
	p.waiting--
	withdrawn := p.waiting == 0 && a.pending[q] == p
	if withdrawn {
		delete(a.pending, q)
	}
	a.mu.Unlock()
	if withdrawn {
		// Whoever shows the question is gone with the gate otherwise.
		_ = a.control.Send(config.Message{Type: config.Withdrawn, ID: p.id})
	}
}

// answer takes an answer. One to a question that was withdrawn is dropped.
func (a *asker) answer(m config.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for q, p := range a.pending {
		if p.id != m.ID {
			continue
		}
		switch m.Decision {
		case config.Once:
			p.allowed = true
		case config.Unanswered:
			p.err = errNoAnswer
		default:
			p.allowed = m.Decision == config.ForRun
			a.settled[q] = p.allowed
		}
		delete(a.pending, q)
		close(p.answered)
		return
	}
}
