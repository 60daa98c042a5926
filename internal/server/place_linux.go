package server

import (
	"errors"

	"golang.org/x/sys/unix"
)

// smallFile is the largest file that place exchanges: one of a lower layer is
// copied for that.
const smallFile = 64 << 10

// place gives a file that is whole the name it is for, in the same directory. Old
// is what was found there; its mode is 0 if nothing was. Nobody finds the name
// missing, or half a file there.
//
// To rename over a file has some file systems write the new one to the disk first,
// which takes longer than all the rest. To exchange the two and remove the old one
// does not. What is not on the disk yet when the machine ends is lost in any case.
func place(dir int, temporary, entry string, old *unix.Stat_t) error {
	if old.Mode&unix.S_IFMT != unix.S_IFREG || old.Size > smallFile {
		return unix.Renameat(dir, temporary, dir, entry)
	}
	exchange := func() error { return unix.Renameat2(dir, temporary, dir, entry, unix.RENAME_EXCHANGE) }
	if exchange() != nil { // it is gone meanwhile, or the file system cannot
		return unix.Renameat(dir, temporary, dir, entry)
	}
	if err := unix.Unlinkat(dir, temporary, 0); err != nil { // it has become a directory
		return errors.Join(err, exchange())
	}
	return nil
}
