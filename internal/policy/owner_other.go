//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package policy

import (
	"io/fs"
	"os"
)

// fileOwner knows no owners here.
func fileOwner(fs.FileInfo) (uid int, ok bool) { return 0, false }

// lockFile has nothing to lock with. No sandbox runs on these systems; they can
// read and check policies.
func lockFile(*os.File) error { return nil }
