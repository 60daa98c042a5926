//go:build !linux

package host

// InSandbox is false: there is no runtime for this system yet.
func InSandbox() bool { return false }
