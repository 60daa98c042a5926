package monitor

import (
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// Report is the record of a run, and tells of it as whoever runs the command wants.
type Report struct {
	sandbox.Record
	Monitor *Monitor // if not nil, it tells about denials as they happen
	Account account.Account
}

// Denied takes a call that the broker refused. Several threads call it.
func (r *Report) Denied(d broker.Denial) { r.DeniedTo(d, broker.ProcessName(d.Pid)) }

// DeniedTo is Denied for a process whose name is known.
func (r *Report) DeniedTo(d broker.Denial, process string) {
	e := r.LogDenial(d, process)
	if r.Monitor != nil {
		r.Monitor.Denied(e)
		return
	}
	r.Keep(e)
}

// Network takes what the network gate tells.
func (r *Report) Network(e *event.Event) {
	r.Log(e)
	r.Account.Count(e)
	if r.Monitor != nil {
		r.Monitor.Network(e)
		return
	}
	r.Keep(e) // what it denied
}

// Ended takes how the command has ended. That is recorded where something else is, and
// of every command that is monitored.
func (r *Report) Ended(wait unix.WaitStatus, killed bool) {
	if r.Monitor == nil && !r.HasAny() {
		return
	}
	status, signal := wait.ExitStatus(), "" // -1 unless it exited
	switch {
	case killed:
		status = -1
	case wait.Signaled():
		signal = unix.SignalName(wait.Signal())
	}
	if e := r.End(status, signal); e != nil && r.Monitor != nil {
		r.Monitor.ended(e)
	}
}
