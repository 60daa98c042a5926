// Package trace records the moments of a launch, so that each of its parts can
// be accounted for. It is cheap enough to leave on: a moment costs one clock
// reading, and nothing is written before the end.
package trace

import (
	"cmp"
	"os"
	"slices"
	"strconv"
)

// Log is a list of moments. A nil Log records nothing.
type Log struct {
	file  string
	marks []Mark
}

// Mark is the end of a part: its name, and the monotonic clock in nanoseconds. Child
// says that it is one of the child's, which works beside the launcher.
type Mark struct {
	Name  string
	Nano  int64
	Child bool
}

// Open returns a Log that goes to file, or nil if file is empty. Start, if not
// zero, is when the program was started, on the same clock, as its starter
// saw it.
func Open(file string, start int64) *Log {
	if file == "" {
		return nil
	}
	l := &Log{file: file, marks: make([]Mark, 0, 32)}
	if start != 0 {
		l.At("start", start)
	}
	return l
}

// Mark records that a part has just ended.
func (l *Log) Mark(name string) {
	if l != nil {
		l.At(name, Now())
	}
}

// At records a moment measured elsewhere.
func (l *Log) At(name string, nano int64) {
	if l != nil {
		l.marks = append(l.marks, Mark{Name: name, Nano: nano})
	}
}

// InChild records a moment of the child.
func (l *Log) InChild(name string, nano int64) {
	if l != nil {
		l.marks = append(l.marks, Mark{name, nano, true})
	}
}

// Marks returns what was recorded, in order.
func (l *Log) Marks() []Mark {
	if l == nil {
		return nil
	}
	return l.marks
}

// Close appends the moments to the file by their time, one JSON object a line:
// {"part":"mounts","ns":123456789,"child":true,"took":2345}. A part took the time since
// the one before it in the same process; the first of each has no "took".
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	slices.SortStableFunc(l.marks, func(a, b Mark) int { return cmp.Compare(a.Nano, b.Nano) })
	var b []byte
	before := map[bool]int64{}
	for _, m := range l.marks {
		b = append(b, `{"part":`...)
		b = strconv.AppendQuote(b, m.Name)
		b = append(b, `,"ns":`...)
		b = strconv.AppendInt(b, m.Nano, 10)
		if m.Child {
			b = append(b, `,"child":true`...)
		}
		if last, ok := before[m.Child]; ok {
			b = append(b, `,"took":`...)
			b = strconv.AppendInt(b, m.Nano-last, 10)
		}
		before[m.Child] = m.Nano
		b = append(b, "}\n"...)
	}
	f, err := os.OpenFile(l.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
