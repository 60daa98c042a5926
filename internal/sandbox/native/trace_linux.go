package native

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mark is a moment in the child: the end of a part of the launch.
type mark struct {
	name string
	at   *unix.Timespec
}

// mark records when the child gets here. Without a trace it adds nothing.
func (b *builder) mark(name string) {
	if b.trace == nil {
		return
	}
	at := (*unix.Timespec)(b.alloc(int(unsafe.Sizeof(unix.Timespec{}))))
	b.call(unix.SYS_CLOCK_GETTIME, num(unix.CLOCK_MONOTONIC), b.ptr(unsafe.Pointer(at)))
	b.marks = append(b.marks, mark{name, at})
}

// report passes the child's moments on to the trace.
func (b *builder) report() {
	for _, m := range b.marks {
		b.trace.InChild(m.name, m.at.Nano())
	}
}
