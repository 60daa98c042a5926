package bailey

import "strings"

// Change is a path of the project that an Overlay made another.
type Change struct {
	// Path is relative to the project; any bytes but NUL.
	Path string
	// Kind is "added", "changed", "deleted", "mode" (or owner or attributes),
	// "symlink" (where it leads) or "type" (what kind of file it is).
	Kind string
}

// ConflictError is returned by Apply where files of the project were changed by
// others since the command ran, or while it did. Nothing was applied then.
type ConflictError struct {
	Dir   string
	Paths []string
}

func (e *ConflictError) Error() string {
	return "bailey: nothing was applied, since others changed files in " + e.Dir + ": " + strings.Join(e.Paths, ", ")
}
