package main

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/probe"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// exitThrough is the status of an audit in which an attack was not stopped.
const exitThrough = 1

// runAudit attacks the sandbox that a command would get. The same verb, in that
// sandbox and with an argument nobody types, is the attacker.
func runAudit(r *request) int {
	if insideSandbox() {
		if len(r.args) > 0 && r.args[0] == probe.InsideWord {
			return probe.Inside(r.args[1:])
		}
		return fail(errInside)
	}
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	report, status := r.audit()
	if report == nil {
		return status
	}
	text, err := report.Text(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(os.Stdout)), error(nil)
	if r.json {
		text, err = report.JSON()
	}
	if err != nil {
		return fail(err)
	}
	if status = answer(text); status == 0 && !report.Held() {
		status = exitThrough
	}
	return status
}

// audit finds the policy as for a command, and returns no report but a status if
// nothing ran.
func (r *request) audit() (probe.Report, int) {
	c, err := r.config()
	if err != nil {
		return nil, fail(err)
	}
	c.Environ = probe.Environ(os.Environ())
	m := sandbox.New(c)
	if err := m.Initialize(); err != nil {
		return nil, fail(err)
	}
	w, err := dryWorkspace(m)
	if err != nil {
		return nil, fail(err)
	}
	defer w.abandon()
	if w != nil {
		m.Loaded().Policy.Resources.Disk = nil // what is made must be found, and in memory it is not
	}
	s, err := m.CompileOver(probe.Argv(), w.overlay())
	if err != nil {
		return nil, fail(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fail(err)
	}
	if !r.json && !r.settledQuiet() {
		say(tagNote, describeChain(m.Loaded()))
	}
	home, _ := os.UserHomeDir() // without one there is nothing to look for in it
	report, err := probe.Run(probe.Config{
		Spec: s, Policy: m.Loaded().Policy, Program: self, Home: home,
		PolicyFiles: m.Loaded().Files, OwnDirs: sandbox.OwnDirs(home),
		Started: func(p *native.Process) { foreground.ForwardSignals(p, forwardTo(p), nil) },
	})
	if err != nil {
		return nil, startFailed(s, err)
	}
	return report, 0
}
