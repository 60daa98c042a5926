package gate

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// passage is a connection or a request that was let through, for its event.
type passage struct {
	query   rules.Query
	path    string
	grant   grant
	address netip.Addr
	begin   time.Time
	in, out int64
}

// report records how a connection or a request that was granted has ended.
func (s *session) report(p *passage, err error) {
	if errors.Is(err, errReported) {
		return
	}
	var d *denial
	if errors.As(err, &d) {
		d.path = p.path
		s.emit(d.event())
		return
	}
	e := event.New(event.Connection)
	e.Host, e.Port = p.query.Host.String(), int(p.query.Port)
	if p.address.IsValid() {
		e.Address = p.address.String()
	}
	e.Method, e.URLPath = p.query.Method, p.path
	e.BytesIn, e.BytesOut = p.in, p.out
	e.Duration = time.Since(p.begin)
	e.Rule, e.Where = p.grant.name()
	s.emit(e)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		limit := limitEvent("limits.idle")
		limit.Host, limit.Port = e.Host, e.Port
		s.emit(limit)
	}
}
