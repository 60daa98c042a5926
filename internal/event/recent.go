package event

import (
	"slices"
	"sync"
)

// Recent keeps the latest events for somebody who looks on. Equal denials become
// one that counts them and is as recent as the last of them, so that a command
// that tries the same again and again does not push everything else out. The
// zero value is ready for use.
type Recent struct {
	// Max is how many events are kept; 0 means 100. It is set before the first.
	Max int

	mu      sync.Mutex
	kept    []Numbered
	number  int
	denials int
}

// Numbered is an event by a number that no other of the same Recent has. An equal
// denial that comes later changes the event, and not its number.
type Numbered struct {
	Number int
	Event  Event
}

var _ Sink = (*Recent)(nil)

// Emit implements Sink.
func (r *Recent) Emit(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := Numbered{Event: *e.Bounded()}
	if e.Kind == Deny {
		r.denials += e.times()
		if i := slices.IndexFunc(r.kept, func(k Numbered) bool { return k.Event.Kind == Deny && k.Event.denial() == e.denial() }); i >= 0 {
			next.Number, next.Event.Count = r.kept[i].Number, r.kept[i].Event.times()+e.times()
			r.kept = slices.Delete(r.kept, i, i+1)
		}
	}
	if next.Number == 0 {
		r.number++
		next.Number = r.number
	}
	limit := r.Max
	if limit == 0 {
		limit = 100
	}
	if len(r.kept) == limit {
		r.kept = slices.Delete(r.kept, 0, 1)
	}
	r.kept = append(r.kept, next)
}

// Events returns what is kept, the latest last.
func (r *Recent) Events() []Numbered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// Find returns the event of a number, if it is still kept.
func (r *Recent) Find(number int) (Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.kept {
		if k.Number == number {
			return k.Event, true
		}
	}
	return Event{}, false
}

// Denials returns how many there were, and the last of those that are kept, or
// nil.
func (r *Recent) Denials() (count int, last *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range slices.Backward(r.kept) {
		if k.Event.Kind == Deny {
			return r.denials, &k.Event
		}
	}
	return r.denials, nil
}
