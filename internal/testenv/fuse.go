package testenv

import "os"

// FUSE is met where this user can open the device by which file systems are
// served. Most hosts let everybody.
var FUSE = Requirement{"/dev/fuse", func() bool {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}}
