// Package owner finds the process that has the other end of a connection, for
// events. It answers from what the kernel tells about the sandbox's network and
// its processes; what it cannot find in a bounded time is not known. Nothing is
// decided by it: a process may hand a socket on, or end, while it is looked for.
package owner

// Process is who made a connection. The zero value is nobody known.
type Process struct {
	Pid  int    // as the host numbers it
	Name string // of its program
}
