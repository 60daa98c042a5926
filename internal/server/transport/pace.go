package transport

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// pace bounds how fast the requests of each owner come: as many in a second as rate
// says, on average, and those of one second at once. A rate of 0 is no bound. Who may
// act for every owner is not held back: somebody must be able to look.
type pace struct {
	rate float64
	now  func() time.Time

	mu     sync.Mutex
	owners map[string]allowance
}

// allowance is how many requests an owner could send at a moment.
type allowance struct {
	left float64
	at   time.Time
}

// check counts a request, or refuses it.
func (p *pace) check(w http.ResponseWriter, c caller.Caller) *refusal {
	if p.rate <= 0 || c.May(caller.Admin) {
		return nil
	}
	wait := p.take(c.Owner)
	if wait == 0 {
		return nil
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return &refusal{http.StatusTooManyRequests, problem.New(connect.CodeResourceExhausted, "requests_exhausted",
		fmt.Errorf("%s sends more than %v requests in a second", c.Owner, p.rate),
		problem.Retryable(), problem.Remedy("send the request again in %v, and fewer at once", wait.Round(time.Millisecond)))}
}

// take counts a request of an owner: 0 if it may come now, or else when it may.
func (p *pace) take(owner string) (wait time.Duration) {
	most := max(p.rate, 1)
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.owners[owner]
	if !known {
		a = allowance{most, now}
	}
	a.left = min(most, a.left+now.Sub(a.at).Seconds()*p.rate)
	a.at = now
	if a.left < 1 {
		wait = time.Duration(math.Ceil((1 - a.left) / p.rate * float64(time.Second)))
	} else {
		a.left--
	}
	p.owners[owner] = a
	return wait
}
