package event

import (
	"slices"
	"sync"
)

// Fold keeps the denials of a run. Equal ones become one that counts them, and
// of the distinct ones only so many are kept, the first, however many a command
// causes. The zero value is ready for use.
type Fold struct {
	// Max is how many distinct denials are kept; 0 means 100. It is set before
	// the first event.
	Max int

	mu    sync.Mutex
	kept  []Event
	index map[denial]int // into kept
	rest  int            // denials that are not in kept
}

// denial is what makes two denials equal: another process may have caused them.
type denial struct {
	op            Op
	path          string
	host, address string
	port          int
	method        string
	rule          string
}

func (e *Event) denial() denial {
	return denial{e.Op, e.Path, e.Host, e.Address, e.Port, e.Method, e.Rule}
}

var _ Sink = (*Fold)(nil)

// Emit implements Sink. Events of other kinds are ignored.
func (f *Fold) Emit(e *Event) {
	if e.Kind != Deny {
		return
	}
	key := e.denial()
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, known := f.index[key]; known {
		f.kept[i].Count = f.kept[i].times() + e.times()
		return
	}
	limit := f.Max
	if limit == 0 {
		limit = 100
	}
	if len(f.kept) >= limit {
		f.rest += e.times()
		return
	}
	if f.index == nil {
		f.index = map[denial]int{}
	}
	f.index[key] = len(f.kept)
	f.kept = append(f.kept, *e.Bounded())
}

// Denials returns what was kept, in the order it first happened, and how many
// denials came after the limit was reached.
func (f *Fold) Denials() (kept []Event, rest int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept), f.rest
}

// Summary is the Summary of all denials, also of those that were only counted.
func (f *Fold) Summary() []string {
	kept, rest := f.Denials()
	return summary(kept, rest)
}
