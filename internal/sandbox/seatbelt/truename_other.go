//go:build unix && !darwin

package seatbelt

// truename is the path itself: on other systems a file has the names it was given.
func truename(p string) (string, error) { return p, nil }
