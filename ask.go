package bailey

import (
	"context"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// Question is about a host that a command wants to reach, and about which the
// policy says "ask".
type Question struct {
	// Host is a name or an address, in the one spelling that the policy knows.
	Host string
	// Port is the port, or 0 for those of the web, 80 and 443.
	Port int
	// Rule is the rule that asks, as events call it; empty if it is the default
	// action.
	Rule string
}

// Answer is what becomes of connections to a host. Those that wait for it wait
// for no more than two minutes.
type Answer int

const (
	// Deny denies the host for as long as the sandbox stands.
	Deny Answer = iota
	// DenyOnce denies the connections that wait; the next asks again.
	DenyOnce
	// AllowOnce allows the connections that wait; the next asks again.
	AllowOnce
	// Allow allows the host for as long as the sandbox stands.
	Allow
)

// askWith puts the gate's questions to a function of the embedding program. A
// function that does not return when its context ends holds nobody up.
func askWith(ask func(context.Context, Question) Answer) func(context.Context, config.Message) string {
	return func(ctx context.Context, m config.Message) string {
		q := Question{Host: m.Host, Port: int(m.Port)}
		if m.Rule != nil {
			q.Rule = m.Rule.Name
		}
		answer := make(chan Answer, 1)
		go func() { answer <- ask(ctx, q) }()
		select {
		case a := <-answer:
			return a.decision()
		case <-ctx.Done():
			return config.Unanswered
		}
	}
}

func (a Answer) decision() string {
	switch a {
	case DenyOnce:
		return config.Unanswered
	case AllowOnce:
		return config.Once
	case Allow:
		return config.ForRun
	}
	return config.Refusing
}
