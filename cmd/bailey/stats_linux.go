package main

import (
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// tellLimits says which limits were met, and records them.
func (p *prepared) tellLimits() []limits.Hit {
	hits := p.report.Account.Hits()
	for _, h := range hits {
		say(tagError, h.Text)
		p.report.Log(account.Event(h))
	}
	return hits
}

// tellStats says what the command has used.
func (p *prepared) tellStats(r *request, s account.Stats) {
	if !r.json {
		say(tagNote, s.Text())
		return
	}
	line, err := s.JSON()
	if err != nil {
		say(tagError, err.Error())
		return
	}
	_, _ = io.WriteString(os.Stderr, line) // nobody is left to tell
}

// begins notes what the account at the end will need.
func (p *prepared) begins(s *spec.Spec, proc *native.Process) {
	p.report.Account.Spec, p.report.Account.Used = s, &proc.Used
}
