package event

import (
	"io"
	"sync"
)

// Writer writes events as JSON, one a line, each with one call of Write.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

var _ Sink = (*Writer)(nil)

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Emit implements Sink.
func (w *Writer) Emit(e *Event) {
	line := e.AppendLine(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(line); err != nil && w.err == nil {
		w.err = err
	}
}

// Err returns the first error of w.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
