package main

import "github.com/bailey-sandbox/bailey/internal/monitor"

// report is what is told of a run.
type report struct{ monitor.Report }

func newMonitor(r *report, asJSON bool) *monitor.Monitor {
	voice := monitor.Voice{Warn: func(text string) { say(tagWarning, text) }, Note: func(text string) { say(tagNote, text) }}
	return monitor.New(&r.Record, voice, asJSON)
}

// show says at the end what was denied, each thing once.
func (r *report) show() {
	for _, line := range r.Summary() {
		say(tagWarning, line)
	}
}
