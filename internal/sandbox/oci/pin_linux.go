package oci

import (
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// LinksOf are the symbolic links of a Spec that are to stay what they are, by their paths
// inside; see PinLinks.
func LinksOf(s *spec.Spec) (list []string) {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Link {
			list = append(list, m.Target)
		}
	}
	return list
}

// PinLinks keeps links in the mount namespace of a process, of which it is given a descriptor:
// the first of a container, which must wait meanwhile. A protected path that is a link is mounted on itself, like every
// other: what is a mountpoint is neither removed nor renamed, nor is something put in its
// place. Runtimes cannot be told to do it, since they follow links in the paths they are
// given.
func PinLinks(pidfd int, links []string) (err error) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err = pinLinks(pidfd, links)
	}()
	<-made
	return err
}

func pinLinks(pidfd int, links []string) error {
	// A thread that shares its working directory with others cannot change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the other threads: %w", err)
	}
	if err := unix.Setns(pidfd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the sandbox's mount namespace: %w", err)
	}
	for _, link := range links {
		if err := pin(link); err != nil {
			return fmt.Errorf("keep the link %s: %w", link, err)
		}
	}
	return nil
}

// pin mounts what a path is, whatever that is by now, read-only on itself.
func pin(path string) error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(root, strings.TrimPrefix(path, "/"), how)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("copy its mount: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("make its mount read-only: %w", err)
	}
	if err := unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it on itself: %w", err)
	}
	return nil
}
