package main

import (
	"sync/atomic"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// report is the record of a run, and tells of it as the caller wants.
type report struct {
	sandbox.Record
	monitor *monitor // if not nil, it tells about denials as they happen
	// connections are those that the network gate let through, and refused those
	// that it did not.
	connections, refused atomic.Int64
}

// denied takes a call that the broker refused. Several threads call it.
func (r *report) denied(d broker.Denial) { r.deniedTo(d, broker.ProcessName(d.Pid)) }

// deniedTo is denied for a process whose name is known.
func (r *report) deniedTo(d broker.Denial, process string) {
	e := r.LogDenial(d, process)
	if r.monitor != nil {
		r.monitor.denied(e)
		return
	}
	r.Keep(e)
}

// network takes what the network gate tells.
func (r *report) network(e *event.Event) {
	r.Log(e)
	r.count(e)
	if r.monitor != nil {
		r.monitor.network(e)
		return
	}
	r.Keep(e) // what it denied
}

// count counts connections, for --stats.
func (r *report) count(e *event.Event) {
	switch e.Kind {
	case event.Connection:
		r.connections.Add(int64(max(e.Count, 1)))
	case event.Deny:
		r.refused.Add(int64(max(e.Count, 1)))
	}
}

// show says at the end what was denied, each thing once.
func (r *report) show() {
	for _, line := range r.Summary() {
		say(tagWarning, line)
	}
}
