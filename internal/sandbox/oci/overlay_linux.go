package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Names in the stage of a sandbox with an overlay.
const (
	layersName = "layers" // what the overlay is made of
	mergedName = "merged" // the overlay
	seenName   = "seen"   // it again, as the command sees it, for who is outside
)

// layers are those of an overlay. They are opened before the stage covers what may lie
// below it, and attached there. A nil pointer is none.
type layers struct {
	over   *spec.Overlay
	lowers []int // detached mounts
	delta  int   // that of upper and work, which overlayfs wants in one
}

// rootsOwn is the id by which files of root of the host are kept for a moment while
// overlayfs copies a file: it makes the copy as whoever mounted it, and only then gives it
// to its owner. The exchange leaves no id for root.
const rootsOwn = rangeSize

// takeLayers opens the layers of an overlay, with the owners that the command sees.
func takeLayers(over *spec.Overlay, id Identity) (*layers, error) {
	if over == nil {
		return nil, nil
	}
	userns := -1
	if id.Count > 1 {
		var err error
		if userns, err = exchange(id, syscall.SysProcIDMap{ContainerID: rootsOwn, HostID: 0, Size: 1}); err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(userns) }()
	}
	l := &layers{over: over}
	for _, dir := range over.Lowers {
		tree, err := open(&spec.Mount{Kind: spec.Bind, Source: dir}, userns)
		if err != nil {
			return nil, err
		}
		l.lowers = append(l.lowers, tree)
	}
	var err error
	l.delta, err = open(&spec.Mount{Kind: spec.Bind, Source: filepath.Dir(over.Upper), Write: true}, userns)
	return l, err
}

// attach makes the overlay.
func (l *layers) attach(stage string) error {
	if l == nil {
		return nil
	}
	base := filepath.Join(stage, layersName)
	merged := filepath.Join(stage, mergedName)
	for _, dir := range []string{base, merged, filepath.Join(stage, seenName)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	var lowers []string
	for i, tree := range l.lowers {
		at := filepath.Join(base, strconv.Itoa(i))
		if err := attach(tree, at); err != nil {
			return err
		}
		lowers = append(lowers, at)
	}
	delta := filepath.Join(base, "delta")
	if err := attach(l.delta, delta); err != nil {
		return err
	}
	options := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + filepath.Join(delta, filepath.Base(l.over.Upper)) +
		",workdir=" + filepath.Join(delta, filepath.Base(l.over.Work)) + ",userxattr"
	if l.over.Volatile {
		options += ",volatile"
	}
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay %s: %w", l.over.Source, err)
	}
	return nil
}

// attach puts a detached mount in its place.
func attach(tree int, at string) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach a layer: %w", err)
	}
	return unix.Close(tree)
}

func (l *layers) covers(source string) bool { return l != nil && l.over.Covers(source) }

// open is open for what lies in the overlay, whose layers have the owners already.
func (l *layers) open(stage string, m *spec.Mount) (int, error) {
	there := *m
	there.Source = filepath.Join(stage, mergedName, strings.TrimPrefix(m.Source, l.over.Source))
	return open(&there, -1)
}

// show puts everything that the command sees of the overlay, with what is read-only or
// hidden in it, where somebody outside finds it by the same path.
func (l *layers) show(stage string, list []taken) error {
	if l == nil {
		return nil
	}
	seen := filepath.Join(stage, seenName)
	if err := os.MkdirAll(filepath.Join(seen, l.over.Source), 0o755); err != nil {
		return err
	}
	for i := range list {
		t := &list[i]
		if t.Name == "" || !l.covers(t.Mount.Target) {
			continue
		}
		at := filepath.Join(stage, sourceName, t.Name)
		tree, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("copy the mount of %s: %w", t.Mount.Target, err)
		}
		to := filepath.Join(seen, t.Mount.Target)
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("show %s: %w", t.Mount.Target, err)
		}
		_ = unix.Close(tree)
	}
	return nil
}
