//go:build !linux

package testenv

// LandlockABI is 0: only Linux has Landlock.
func LandlockABI() int { return 0 }

func userNamespaces() bool { return false }
