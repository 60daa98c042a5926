package gate

import (
	"context"
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

const askedAndAllowed = "asked, and allowed"

func (g grant) name() (rule, where string) {
	switch {
	case g.asked:
		return askedAndAllowed, ""
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

// Fields by which some servers let a request have another method, or another
// path, than it says.
var (
	methodFields = []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"}
	pathFields   = []string{"X-Original-URL", "X-Rewrite-URL"}
)

// maxReadings is in how many ways a request may be meant.
const maxReadings = 16

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
	readings, err := otherReadings(p.query, fields)
	if err != nil {
		return err
	}
	for _, q := range readings {
		if _, err := s.permit(q); err != nil {
			return err
		}
	}
	return nil
}

// otherReadings are what a request may be taken for besides what it says.
func otherReadings(said rules.Query, fields func(name string) []string) ([]rules.Query, error) {
	methods, paths := []string{said.Method}, []*rules.Path{said.Path}
	for _, name := range methodFields {
		for _, method := range fields(name) {
			methods = append(methods, strings.ToUpper(strings.TrimSpace(method)))
		}
	}
	for _, name := range pathFields {
		for _, text := range fields(name) {
			path, err := rules.NewPath(pathOf(text))
			if err != nil {
				return nil, &head.Error{Status: http.StatusBadRequest, Text: name + ": " + err.Error()}
			}
			paths = append(paths, path)
		}
	}
	if len(methods)*len(paths) > maxReadings {
		return nil, &head.Error{Status: http.StatusBadRequest, Text: "the request says too often what it is"}
	}
	var out []rules.Query
	for i, method := range methods {
		for j, path := range paths {
			if i+j > 0 {
				q := said
				q.Method, q.Path = method, path
				out = append(out, q)
			}
		}
	}
	return out, nil
}

// pathOf is the path in a URL that may be whole or not.
func pathOf(url string) string {
	if _, rest, whole := strings.Cut(url, "://"); whole {
		_, rest, _ = strings.Cut(rest, "/")
		url = rest
	}
	path, _, _ := strings.Cut(strings.TrimSpace(url), "?")
	return "/" + strings.TrimPrefix(path, "/")
}

// ask puts a question to a person, once for a connection.
func (s *session) ask(q rules.Query, v rules.Verdict) error {
	key := questionFor(q, v.Rule)
	if s.wasAsked(key) {
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
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer whenGone(s.client.Conn, cancel)()
	allowed, first, err := s.gate.asker.ask(ctx, key, v.Rule, func() int { return s.process().Pid })
	switch {
	case err != nil:
		d.reason = "nobody answered the question"
		return d
	case !allowed:
		d.reason, d.rule = "refused when asked", "asked, and refused"
		return d
	}
	if first {
		s.emit(d.allowed())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[question]bool{}
	}
	s.asked[key] = true
	return nil
}

func (s *session) wasAsked(key question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[key]
}
