// Package escape tries to get out of a sandbox. It holds only tests.
//
// A test runs a real attack inside a real sandbox and then looks at the host:
// is the file unchanged, was the listener reached, does the process live. What
// the attacker itself says is shown, never believed. Next to each attack stands
// its control, the same attack where it must succeed: without a sandbox, or
// with the grant given. An attack that cannot succeed anywhere proves nothing.
//
// An attack must be harmless to the machine even if every wall is missing, and
// so must its control: victims are files and processes that the test made, and
// what belongs to the system is opened but not written.
//
// Attacks are functions of the test binary, which is copied into the project
// of the sandbox and started there by name, so that they can make any system
// call without a compiler.
package escape
