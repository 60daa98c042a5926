package host

import "syscall"

// Failure is a step of a launch that the kernel refused.
type Failure struct {
	Wall  string // the layer the step belongs to
	Step  string
	Errno syscall.Errno
}

// Diagnosis is why, and the command or the line of a policy that mends it. Both
// are empty if nothing is known.
type Diagnosis struct {
	Cause string
	Fix   string
}
