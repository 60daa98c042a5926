// Package fault names the steps of operations that must survive a kill between
// any two of them, so that tests can kill a process there.
package fault

// At is called at every step if it is set, which only tests do.
var At func(step string)

// Step marks a place between two changes on the disk.
func Step(name string) {
	if At != nil {
		At(name)
	}
}
