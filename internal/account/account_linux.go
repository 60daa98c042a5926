package account

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Account is what is told about resources at the end of a run. The zero value
// tells nothing.
type Account struct {
	Begun time.Time
	Spec  *spec.Spec
	Used  *limits.Usage
	// connections are those that the network gate let through, and refused those
	// that it did not.
	connections, refused atomic.Int64
}

// Count counts connections that the network gate tells of. Several threads call it.
func (a *Account) Count(e *event.Event) {
	switch e.Kind {
	case event.Connection:
		a.connections.Add(int64(max(e.Count, 1)))
	case event.Deny:
		a.refused.Add(int64(max(e.Count, 1)))
	}
}

// Hits are the limits that were met, if that is known.
func (a *Account) Hits() []limits.Hit {
	if a.Used == nil {
		return nil
	}
	return a.Used.Hits(a.Spec.Limits)
}

// Event records that a limit was met.
func Event(h limits.Hit) *event.Event {
	e := event.New(event.Limit)
	e.Limit, e.Count, e.Fix = h.Name, h.Count, "--"+h.Name
	return e
}

// Stats is what --stats --json prints. What is not known is null.
type Stats struct {
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

// Stats collects what was used. There must be something: see Used.
func (a *Account) Stats(hits []limits.Hit, expired bool, status int) Stats {
	u := a.Used
	s := Stats{
		Wall: time.Since(a.Begun).Seconds(), User: u.User.Seconds(), System: u.System.Seconds(), Throttled: u.Throttled.Seconds(),
		PeakMemory: known(u.PeakMemory), PeakOf: "sandbox", Read: known(u.Read), Written: known(u.Written),
		Disk:      known(a.diskUsed()),
		Processes: known(int64(u.Peak)), Connections: known(-1), Refused: known(-1), Limits: []string{}, Status: status,
	}
	if u.PeakOfOne {
		s.PeakOf = "process"
	}
	if a.Spec.Network.IsOwn() {
		s.Connections, s.Refused = known(a.connections.Load()), known(a.refused.Load())
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
func (a *Account) diskUsed() int64 {
	over := a.Spec.Overlay
	if over == nil || over.InMemory {
		return a.Used.Disk
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

// JSON is the line for programs.
func (s *Stats) JSON() (string, error) {
	line, err := json.Marshal(s)
	return string(line) + "\n", err
}

// Text is the line for people.
func (s *Stats) Text() string {
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
