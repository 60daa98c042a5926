package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A server of root's shows its sandboxes files of root's, and processes in them are root's as
// well: of the directories that clients are granted they would read what root's permission bits
// let root alone read. So what other users cannot read is hidden from clients, as far as
// it is there when a sandbox is made.

// closedIn are the directories of the default policy in which people keep files of their
// own. What packages bring to the others is for everybody.
var closedIn = []string{"/etc", "/opt", "/usr/local", "/snap", "/home/linuxbrew"}

const (
	closedStays = 10 * time.Second
	// closedMost is how many files of a directory are looked at. One with more is hidden
	// as a whole.
	closedMost = 500_000
	// closedMounts is how many are hidden one by one, each by a mount.
	closedMounts = 256
)

// closed is what other users of the machine cannot read.
type closed struct {
	mu    sync.Mutex
	paths []string
	at    time.Time
	busy  bool
}

// closedFiles are hidden from clients: nothing, unless the server is root's. What is known is
// looked at again behind, if it is old.
func (s *Server) closedFiles() []string {
	if os.Geteuid() != 0 {
		return nil
	}
	c := &s.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.at.IsZero():
		c.paths, c.at = s.findClosed(), time.Now()
	case time.Since(c.at) > closedStays && !c.busy:
		c.busy = true
		s.behind(func(context.Context) {
			paths := s.findClosed()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.paths, c.at, c.busy = paths, time.Now(), false
		})
	}
	return c.paths
}

func (s *Server) findClosed() (paths []string) {
	for _, dir := range closedIn {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // it is not there
		}
		found, whole := closedBelow(dir, closedMost)
		if found = byDirectory(found, dir); !whole || len(found) > closedMounts {
			s.log.Warn("a directory is hidden from clients, since it holds too many files that may be root's alone", "directory", dir)
			found = []string{dir}
		}
		paths = append(paths, found...)
	}
	return paths
}

// byDirectory is the directories of files in the place of the files, if those are many.
func byDirectory(paths []string, below string) []string {
	if len(paths) <= closedMounts {
		return paths
	}
	var dirs []string
	for _, p := range paths {
		if dir := filepath.Dir(p); dir != below {
			p = dir
		}
		dirs = append(dirs, p)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// closedBelow returns the files and directories below one that are root's, or of root's
// group, and that others cannot read or enter. It is not whole if there are more than most
// to look at, or some that cannot be.
func closedBelow(dir string, most int) (paths []string, whole bool) {
	whole = true
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if most--; most < 0 {
			whole = false
			return fs.SkipAll
		}
		if err != nil {
			// What root may not look at, as on a file system of somebody's, nobody inside can.
			whole = whole && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission))
			return fs.SkipDir
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		need := fs.FileMode(0o4)
		if d.IsDir() {
			need = 0o1
		}
		if info.Mode()&need != 0 {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (st.Uid == 0 || st.Gid == 0) {
			paths = append(paths, p)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return slices.Clip(paths), whole
}
