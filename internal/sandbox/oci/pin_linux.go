package oci

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A protected path that is a symbolic link is mounted on itself, like every other: what is a
// mountpoint is neither removed nor renamed, nor is something put in its place. Runtimes
// cannot be told to do it, since they follow links in the paths they are given. So the guard
// does it in the container's mount namespace, while the first process waits. A daemon's
// container cannot be made to wait, but its runtime shows what is mounted in a source, so
// there it is done before; see Furnish.

// linksOf are the links of a Spec that are to stay what they are.
func linksOf(s *spec.Spec) (list []string) {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Link {
			list = append(list, m.Target)
		}
	}
	return list
}

// pinLinks keeps links where the sandbox's first process sees them.
func (g *keeper) pinLinks() error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		made <- g.pinLinksHere()
	}()
	err := <-made
	if err == nil {
		g.say(saysPinned, nil)
	}
	return err
}

func (g *keeper) pinLinksHere() error {
	// A thread that shares its working directory with others cannot change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the other threads: %w", err)
	}
	if err := enter(g.pid, "mnt", unix.CLONE_NEWNS); err != nil {
		return err
	}
	for _, at := range g.Links {
		if err := pinLink("/", at); err != nil {
			return err
		}
	}
	return nil
}

// enter has the calling thread enter a namespace of a process.
func enter(pid int, name string, kind int) error {
	space, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(space, kind)
		_ = unix.Close(space)
	}
	if err != nil {
		return fmt.Errorf("enter the sandbox (%s): %w", name, err)
	}
	return nil
}

// pinShown keeps the links in a source that stands at a path.
func (s *Source) pinShown(at string) error {
	for _, link := range s.Pins {
		if err := pinLink(at, strings.TrimPrefix(link, s.Mount.Target)); err != nil {
			return err
		}
	}
	return nil
}

// pinLink mounts what a path in a directory is, whatever that is by now, read-only on
// itself.
func pinLink(dir, path string) error {
	base, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(base) }()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(base, strings.TrimPrefix(path, "/"), how)
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Join(dir, path), err)
	}
	defer func() { _ = unix.Close(fd) }()
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("copy the mount of %s: %w", filepath.Join(dir, path), err)
	}
	defer func() { _ = unix.Close(tree) }()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("restrict the mount of %s: %w", filepath.Join(dir, path), err)
	}
	if err := unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s on itself: %w", filepath.Join(dir, path), err)
	}
	return nil
}
