package spec

// Runtimes are the names of all that can carry out a Spec on this system.
func Runtimes() []string { return []string{RuntimeSeatbelt} }
