package keeper

import "sync"

// maxLog is how much of what detached commands write is kept.
const maxLog = 1 << 20

// output keeps the end of what was written, and lets readers follow it.
type output struct {
	mu      sync.Mutex
	data    []byte
	written int64         // in total; data ends there
	changed chan struct{} // closed at the next write, or nil if nobody waits
	closed  bool
}

// Write implements io.Writer. It cannot fail.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written += int64(len(p))
	o.data = append(o.data, p...)
	if over := len(o.data) - maxLog; over > 0 {
		o.data = append(o.data[:0], o.data[over:]...)
	}
	o.wake()
	return len(p), nil
}

func (o *output) wake() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// end says that nothing more will come.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake()
}

// after returns what was written after a place, the place after that, and a
// channel that is closed when there is more; nil if there never will be.
func (o *output) after(place int64) (data []byte, next int64, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.written - int64(len(o.data)); place < first {
		place = first
	}
	data = append([]byte(nil), o.data[len(o.data)-int(o.written-place):]...)
	if o.closed {
		return data, o.written, nil
	}
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return data, o.written, o.changed
}
