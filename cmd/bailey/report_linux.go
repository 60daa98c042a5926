package main

import (
	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/monitor"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// report is the record of a run, and tells of it as the caller wants.
type report struct {
	sandbox.Record
	monitor *monitor.Monitor // if not nil, it tells about denials as they happen
	account account.Account
}

func newMonitor(r *report, asJSON bool) *monitor.Monitor {
	voice := monitor.Voice{Warn: func(text string) { say(tagWarning, text) }, Note: func(text string) { say(tagNote, text) }}
	return monitor.New(&r.Record, voice, asJSON)
}

// denied takes a call that the broker refused. Several threads call it.
func (r *report) denied(d broker.Denial) { r.deniedTo(d, broker.ProcessName(d.Pid)) }

// deniedTo is denied for a process whose name is known.
func (r *report) deniedTo(d broker.Denial, process string) {
	e := r.LogDenial(d, process)
	if r.monitor != nil {
		r.monitor.Denied(e)
		return
	}
	r.Keep(e)
}

// network takes what the network gate tells.
func (r *report) network(e *event.Event) {
	r.Log(e)
	r.account.Count(e)
	if r.monitor != nil {
		r.monitor.Network(e)
		return
	}
	r.Keep(e) // what it denied
}

// show says at the end what was denied, each thing once.
func (r *report) show() {
	for _, line := range r.Summary() {
		say(tagWarning, line)
	}
}
