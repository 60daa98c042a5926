package gate

import (
	"context"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/nameserver"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// lookup decides whether a name gets an address of the pool. A name that may be
// allowed is resolved only to learn whether it exists, and not even that if a
// person or a proxy has the last word.
func (g *Gate) lookup(ctx context.Context, host hostname.Host) nameserver.Outcome {
	s := g.current.Load()
	q := rules.Query{Host: host}
	v := s.rules.Foresee(q)
	switch {
	case v.Action == config.Deny, v.Action == config.Ask && !s.config.CanAsk:
		e := explain(s.rules, q, v).event()
		p := g.lookerUp(nameserver.ClientOf(ctx))
		e.Pid, e.Process = p.Pid, p.Name
		g.emit(e)
		return nameserver.Refused
	case v.Action != config.Allow || s.upstream.choose(rules.HTTPS, host, httpsPort) != nil:
		return nameserver.Found
	}
	_, err := g.names.lookup(ctx, host.Name())
	switch {
	case err == nil:
		return nameserver.Found
	case isMissing(err):
		return nameserver.Missing
	}
	return nameserver.Failed
}
