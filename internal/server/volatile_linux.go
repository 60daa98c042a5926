package server

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// unmark lets an overlay that was volatile be laid again, which the kernel refuses
// because the machine may have ended meanwhile and half of a file be missing. Of
// what a sandbox writes, nothing is promised to survive that; of a snapshot it is.
// The mark means nothing to an overlay that stands.
func unmark(work string) error {
	// Nobody but overlayfs is meant to look in there, not even the owner.
	marks := []string{work + "/work", work + "/work/incompat", work + "/work/incompat/volatile"}
	for _, dir := range marks {
		err := os.Chmod(dir, 0o700)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(marks[1])
}

// snapshotFiles keeps the files of a sandbox that does not run. They become a
// snapshot as they are, which they have to be on the disk for: the end of the
// overlay did not wait for that.
func (s *Server) snapshotFiles(id string) (workspace.Snapshot, error) {
	if err := s.settleFiles(id); err != nil {
		return workspace.Snapshot{}, err
	}
	return s.files.Snapshot(id)
}

func (s *Server) settleFiles(id string) error {
	d, err := s.files.Store.Open(id, delta.Read)
	if err != nil {
		return err
	}
	defer d.Close()
	upper, err := os.Open(d.Upper())
	if err != nil {
		return err
	}
	defer upper.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(upper.Fd())))
}
