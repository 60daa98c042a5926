package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// account is what is told about resources at the end of a run. The zero value
// tells nothing.
type account struct {
	begun time.Time
	spec  *spec.Spec
	used  *limits.Usage
}

// tellLimits says which limits were met, and records them.
func (p *prepared) tellLimits() (hits []limits.Hit) {
	if p.account.used == nil {
		return nil
	}
	hits = p.account.used.Hits(p.account.spec.Limits)
	for _, h := range hits {
		say(tagError, h.Text)
		p.report.limit(h)
	}
	return hits
}

// limit records that a limit was met.
func (r *report) limit(h limits.Hit) {
	e := event.New(event.Limit)
	e.Limit, e.Count, e.Fix = h.Name, h.Count, "--"+h.Name
	r.Log(e)
}

// statsJSON is what --stats --json prints. What is not known is null.
type statsJSON struct {
	Wall        float64  `json:"wallSeconds"`
	User        float64  `json:"userSeconds"`
	System      float64  `json:"systemSeconds"`
	Throttled   float64  `json:"throttledSeconds"`
	PeakMemory  *int64   `json:"peakMemoryBytes"`
	PeakOf      string   `json:"peakMemoryOf"` // sandbox, process
	Read        *int64   `json:"readBytes"`
	Written     *int64   `json:"writtenBytes"`
	Processes   *int64   `json:"peakProcesses"`
	Disk        *int64   `json:"diskBytes"`
	Connections *int64   `json:"connections"`
	Refused     *int64   `json:"connectionsRefused"`
	Limits      []string `json:"limitsMet"`
	Status      int      `json:"status"`
}

// stats collects what was used.
func (p *prepared) stats(hits []limits.Hit, expired bool, status int) statsJSON {
	u := p.account.used
	s := statsJSON{
		Wall: time.Since(p.account.begun).Seconds(), User: u.User.Seconds(), System: u.System.Seconds(), Throttled: u.Throttled.Seconds(),
		PeakMemory: known(u.PeakMemory), PeakOf: "sandbox", Read: known(u.Read), Written: known(u.Written),
		Disk:      known(p.diskUsed()),
		Processes: known(int64(u.Peak)), Connections: known(-1), Refused: known(-1), Limits: []string{}, Status: status,
	}
	if u.PeakOfOne {
		s.PeakOf = "process"
	}
	if p.account.spec.Network.IsOwn() {
		s.Connections, s.Refused = known(p.report.connections.Load()), known(p.report.refused.Load())
	}
	for _, h := range hits {
		s.Limits = append(s.Limits, h.Name)
	}
	if expired {
		s.Limits = append(s.Limits, "timeout")
	}
	return s
}

// diskUsed is what files take that the command wrote: to memory, where that is
// limited, or to an overlay.
func (p *prepared) diskUsed() int64 {
	over := p.account.spec.Overlay
	if over == nil || over.InMemory {
		return p.account.used.Disk
	}
	dir, err := os.Open(over.Upper)
	if err != nil {
		return -1
	}
	defer dir.Close()
	u, err := tree.Measure(dir)
	if err != nil {
		return -1
	}
	return u.Bytes
}

// known is nil for what is not.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// tellStats says what the command has used.
func (p *prepared) tellStats(r *request, s statsJSON) {
	if !r.json {
		say(tagNote, s.text())
		return
	}
	line, err := json.Marshal(s)
	if err != nil {
		say(tagError, err.Error())
		return
	}
	_, _ = io.WriteString(os.Stderr, string(line)+"\n") // nobody is left to tell
}

func (s *statsJSON) text() string {
	parts := []string{
		"time " + seconds(s.Wall),
		"processor " + seconds(s.User) + " user, " + seconds(s.System) + " system",
	}
	if s.Throttled > 0 {
		parts = append(parts, "made to wait "+seconds(s.Throttled))
	}
	add := func(name string, n *int64, show func(int64) string) {
		if n != nil {
			parts = append(parts, name+" "+show(*n))
		}
	}
	memory := "peak memory"
	if s.PeakOf == "process" {
		memory = "largest process"
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	add(memory, s.PeakMemory, columns.Size)
	add("read", s.Read, columns.Size)
	add("written", s.Written, columns.Size)
	add("files", s.Disk, columns.Size)
	add("processes at once", s.Processes, number)
	add("connections", s.Connections, number)
	if s.Refused != nil && *s.Refused > 0 {
		add("refused", s.Refused, number)
	}
	return strings.Join(parts, "; ")
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// begins notes what the account at the end will need.
func (p *prepared) begins(s *spec.Spec, proc *native.Process) {
	p.account.spec, p.account.used = s, &proc.Used
}
