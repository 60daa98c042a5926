package gate

import (
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// grant is a permission to reach a host.
type grant struct {
	rule *config.Rule // nil if the default action granted it
	// proxied says that only the upstream proxy may be asked for it.
	proxied bool
	// asked says that a person allowed it.
	asked bool
}

func (g grant) name() (rule, where string) {
	switch {
	case g.asked:
		return "asked, and allowed", ""
	case g.proxied:
		return "network.defaultAction proxy", ""
	case g.rule == nil:
		return "", ""
	}
	return g.rule.Name, g.rule.Where
}

// permit decides about a connection or a request of which no more will be known.
// The error is a *denial.
func (s *session) permit(q rules.Query) (grant, error) {
	return s.act(q, s.rules.Decide(q))
}

// foresee decides about a connection of which more will be known: it lets pass
// what could turn out to be allowed.
func (s *session) foresee(q rules.Query) (grant, error) {
	return s.act(q, s.rules.Foresee(q))
}

func (s *session) act(q rules.Query, v rules.Verdict) (grant, error) {
	switch v.Action {
	case config.Allow:
		return grant{rule: v.Rule}, nil
	case config.Proxy:
		if s.upstream.choose(q.Scheme, q.Host, q.Port) == nil {
			return grant{}, explain(s.rules, q, v)
		}
		return grant{proxied: true}, nil
	case config.Ask:
		if err := s.ask(q, v); err != nil {
			return grant{}, err
		}
		return grant{rule: v.Rule, asked: true}, nil
	}
	return grant{}, explain(s.rules, q, v)
}

// overrides are fields by which some servers let a request have another method
// than it says.
var overrides = []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"}

// decideRequest decides about a request, as whatever the server may take it for.
// The passage has its host, port, scheme and method, and gets its path and the
// grant.
func (s *session) decideRequest(p *passage, local string, fields func(name string) []string) error {
	if local != "*" {
		p.path, _, _ = strings.Cut(local, "?")
		path, err := rules.NewPath(p.path)
		if err != nil {
			return &head.Error{Status: http.StatusBadRequest, Text: err.Error()}
		}
		p.query.Path = path
	}
	g, err := s.permit(p.query)
	if err != nil {
		return err
	}
	p.grant = g
	for _, name := range overrides {
		for _, method := range fields(name) {
			q := p.query
			q.Method = strings.ToUpper(method)
			if _, err := s.permit(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask puts a question to a person, once for a connection.
func (s *session) ask(q rules.Query, v rules.Verdict) error {
	key := questionFor(q)
	if s.asked[key] {
		return nil
	}
	d := explain(s.rules, q, v)
	if v.Rule != nil {
		d.fix = "change " + v.Rule.Name
	}
	if !s.config.CanAsk {
		d.reason = "the policy asks, and nobody can be asked here"
		return d
	}
	allowed, err := s.gate.asker.ask(s.ctx, key)
	switch {
	case err != nil:
		d.reason = "nobody answered the question"
		return d
	case !allowed:
		d.reason, d.rule = "refused when asked", "asked, and refused"
		return d
	}
	if s.asked == nil {
		s.asked = map[question]bool{}
	}
	s.asked[key] = true
	return nil
}
