package workspace

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

const (
	// sharedFrom is the size from which it is worth while to share blocks.
	sharedFrom = 64 << 10
	// sharedWith is with how many layers files are compared, the newest first.
	sharedWith = 4
	// sharedAtOnce is how much of a file the kernel compares in one call.
	sharedAtOnce = 16 << 20
)

// share lets the files of a layer that came as a stream have their blocks in common
// with those of the same path and size in other layers, where the file system can.
// The kernel compares them. It is only about room on the disk: what does not work is
// left as it is.
func (b *building) share() {
	if _, err := os.Lstat(b.store.layerDir(b.layer.ID)); err == nil || !b.canShare() {
		return
	}
	others := b.store.newest()
	defer func() {
		for _, f := range others {
			_ = f.Close()
		}
	}()
	if len(others) == 0 {
		return
	}
	_ = tree.Walk(b.root, tree.Visitor{Enter: func(n *tree.Node) error {
		if n.IsRegular() && n.Stat.Size >= sharedFrom {
			shareFile(n, others)
		}
		return nil
	}})
}

// canShare says whether files of this file system can have blocks in common.
func (b *building) canShare() bool {
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(b.scratch.Path(), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	return unix.IoctlFileClone(fds[0], fds[1]) == nil
}

// newest opens the layers of the codebases that were made last.
func (s *Store) newest() (trees []*os.File) {
	list, err := s.Codebases()
	if err != nil {
		return nil
	}
	slices.SortFunc(list, func(a, b Codebase) int { return b.Created.Compare(a.Created) })
	var seen []string
	for _, c := range list {
		for _, id := range c.Layers {
			if len(trees) == sharedWith {
				return trees
			}
			if slices.Contains(seen, id) {
				continue
			}
			seen = append(seen, id)
			if f, err := os.Open(s.LayerTree(id)); err == nil { // or it was just removed
				trees = append(trees, f)
			}
		}
	}
	return trees
}

// shareFile shares the blocks of a file with the first that is the same.
func shareFile(n *tree.Node, others []*os.File) {
	to, err := n.Open()
	if err != nil {
		return
	}
	defer to.Close()
	for _, other := range others {
		if from, err := openTwin(other, n); err == nil {
			done := shareBlocksOf(from, to, n.Stat.Size)
			_ = from.Close()
			if done {
				return
			}
		}
	}
}

var errNoTwin = errors.New("another file")

// openTwin opens the file of the same path in another tree, if it has the same size.
func openTwin(other *os.File, n *tree.Node) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(other.Fd()), n.Path, &how)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), n.Path)
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != n.Stat.Size) {
		err = errNoTwin
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// shareBlocksOf makes the blocks of two files the same ones, as far as what is in
// them is. It says whether that is all of it.
func shareBlocksOf(from, to *os.File, size int64) bool {
	for at := int64(0); at < size; at += sharedAtOnce {
		r := unix.FileDedupeRange{
			Src_offset: uint64(at), Src_length: uint64(min(size-at, sharedAtOnce)),
			Info: []unix.FileDedupeRangeInfo{{Dest_fd: int64(to.Fd()), Dest_offset: uint64(at)}},
		}
		if err := unix.IoctlFileDedupeRange(int(from.Fd()), &r); err != nil || r.Info[0].Status != unix.FILE_DEDUPE_RANGE_SAME {
			return false
		}
	}
	return true
}
