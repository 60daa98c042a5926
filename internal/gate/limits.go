package gate

import (
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

const (
	defaultConnections = 512
	defaultHeaderBytes = 64 << 10

	// greetingTime is how long a client may take to say what it wants, once it
	// is connected or has begun to.
	greetingTime = 30 * time.Second
	// keepAliveTime is how long a connection is kept for another request.
	keepAliveTime = 2 * time.Minute

	maxAnswerHead = 256 << 10
)

// withDefaults sets what must have a limit. A connection may be idle for as long
// as it wants, unless the policy says otherwise: who waits for a person, or for
// events, is none of the gate's business, and the kernel finds peers that are
// gone.
func withDefaults(l config.Limits) config.Limits {
	if l.Connections <= 0 {
		l.Connections = defaultConnections
	}
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = defaultHeaderBytes
	}
	l.HeaderBytes = min(l.HeaderBytes, 1<<20)
	return l
}

// limitEvent reports that a limit was met.
func limitEvent(limit string) *event.Event {
	e := event.New(event.Limit)
	e.Limit = "network." + limit
	return e
}
