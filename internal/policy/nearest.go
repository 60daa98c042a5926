package policy

// Nearest returns the candidate that word most likely was meant to be, or "" if
// none is close.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }
