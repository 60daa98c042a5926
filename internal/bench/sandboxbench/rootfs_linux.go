package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/pull"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Paths inside a bundle's root directory that the bench adds.
const (
	probePath = "/bench-probe"
	treePath  = "/bench-tree"
)

// stageRoot makes the root directory of the bundles and says what it is.
func stageRoot(o *options, dir string) (what string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	switch {
	case o.image != "":
		what, err = unpackImage(o.image, dir)
	case o.rootfs != "":
		what, err = o.rootfs, copyTree(o.rootfs, dir)
	default:
		what, err = "busybox, static", stageBusybox(dir)
	}
	if err != nil {
		return "", fmt.Errorf("the root directory: %w", err)
	}
	if err := plant(dir + treePath); err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return what, copyFile(self, dir+probePath, 0o755)
}

// stageBusybox makes a root directory of one program, or of none where it is not
// installed: the probe needs no other.
func stageBusybox(dir string) error {
	for _, d := range []string{"bin", "etc", "lib", "usr"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(dir+"/etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"), 0o644); err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil
	}
	if err := copyFile(busybox, dir+"/bin/busybox", 0o755); err != nil {
		return err
	}
	return os.Symlink("busybox", dir+"/bin/sh")
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// copyTree copies files, directories and links. What else there is no probe needs.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		switch d.Type() {
		case fs.ModeDir:
			return os.MkdirAll(at, 0o755)
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, at)
		case 0:
			info, err := d.Info()
			if err != nil {
				return err
			}
			return copyFile(path, at, info.Mode().Perm())
		}
		return nil
	})
}

// unpackImage unpacks an image, as "bailey run --image" does, and says what it is by
// digest.
func unpackImage(ref, dir string) (what string, err error) {
	store := image.Store{Dir: filepath.Join(filepath.Dir(dir), "images")}
	if err := os.Mkdir(store.Dir, 0o700); err != nil {
		return "", err
	}
	id, err := pull.Pull(context.Background(), store, ref, func(string) {})
	if err != nil {
		return "", err
	}
	i, err := store.Find(id)
	if err != nil {
		return "", err
	}
	return "image " + ref + " (" + id + ")", copyTree(i.Dir, dir)
}

// dropCaches has the kernel forget what it has read of files. Only root can.
func dropCaches() error {
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0)
}

// bundleSpec is the Spec of a root directory: everything in it, read-only, with a private
// /tmp, no network, and the limits.
func bundleSpec(root, runtime string, o *options) (spec.Spec, error) {
	s := spec.Spec{
		Version: 1, Runtime: runtime, Dir: "/", Env: []string{"PATH=/bin:/usr/bin", "HOME=/tmp"}, Network: spec.NetworkNone,
		Identity: spec.Identity{UID: os.Geteuid(), GID: os.Getegid(), Full: os.Geteuid() == 0},
		Seccomp:  spec.Seccomp{Families: []string{"unix", "inet", "inet6", "netlink"}},
		Broker:   &spec.Broker{},
	}
	if o.memoryMB > 0 {
		s.Limits = &spec.Limits{Memory: int64(o.memoryMB) << 20, CPU: int64(o.cpus * 1000)}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return s, err
	}
	own := []string{"proc", "dev", "tmp", "sys", "run"}
	for _, e := range entries {
		target, source := "/"+e.Name(), filepath.Join(root, e.Name())
		switch {
		case slices.Contains(own, e.Name()):
		case e.Type() == fs.ModeSymlink:
			text, err := os.Readlink(source)
			if err != nil {
				return s, err
			}
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Symlink, Target: target, Source: text})
		default:
			s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Bind, Target: target, Source: source, File: !e.IsDir()})
			s.Landlock.Rules = append(s.Landlock.Rules, spec.LandlockRule{Path: target, File: !e.IsDir(), Read: true, Execute: true})
		}
	}
	s.Mounts = append(s.Mounts, spec.Mount{Kind: spec.Dev, Target: "/dev"}, spec.Mount{Kind: spec.Proc, Target: "/proc"}, spec.Mount{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777})
	slices.SortStableFunc(s.Mounts, func(a, b spec.Mount) int { return strings.Compare(a.Target, b.Target) })
	return s, nil
}
