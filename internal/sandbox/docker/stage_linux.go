package docker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
)

// stages is where guards have their directories, each called after its owner.
const stages = "/run/bailey-docker"

// ownerName tells a process from all others of this machine, also from later ones with
// its number: the process namespace, the number in it, and when it began.
func ownerName(pid int) (string, error) {
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	began, err := beganAt(pid)
	if err != nil {
		return "", err
	}
	number := strings.TrimSuffix(strings.TrimPrefix(space, "pid:["), "]")
	return number + "-" + strconv.Itoa(pid) + "-" + began, nil
}

// beganAt is when a process began, in the kernel's ticks: the twenty-second field of its
// stat file, counted after the name, which may hold anything. One that has ended is none, also
// while nobody has taken it in.
func beganAt(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const field = 22 - 3
	if len(fields) <= field {
		return "", errors.New("the kernel's description of a process is too short")
	}
	if fields[0] == "Z" {
		return "", os.ErrNotExist
	}
	return fields[field], nil
}

// isOrphan says whether an owner is known to have ended. Of processes in another
// namespace nothing is known.
func isOrphan(owner string) bool {
	parts := strings.Split(owner, "-")
	if len(parts) != 3 {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	switch now, err := ownerName(pid); {
	case err == nil:
		return now != owner && strings.HasPrefix(now, parts[0]+"-")
	case errors.Is(err, os.ErrNotExist):
		self, err := ownerName(os.Getpid())
		return err == nil && strings.HasPrefix(self, parts[0]+"-")
	}
	return false
}

// makeStage makes the directory of an owner: in memory, for root only, and in no other
// mount namespace.
func makeStage(owner string) (string, error) {
	dir := filepath.Join(stages, owner)
	err := error(os.ErrNotExist)
	// Whoever removes the last stage removes the directory around it, at any moment.
	for errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(stages, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		_ = os.Remove(dir)
		return "", fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return "", errors.Join(fmt.Errorf("make %s private: %w", dir, err), removeStage(dir))
	}
	return dir, nil
}

// removeStage takes a stage down with everything that is mounted in it.
func removeStage(dir string) error {
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // nothing is mounted there any more
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_ = os.Remove(stages) // if this was the last
	return nil
}

// sweepStages removes what guards have left that were killed.
func sweepStages() {
	entries, _ := os.ReadDir(stages)
	for _, e := range entries {
		if isOrphan(e.Name()) {
			_ = removeStage(filepath.Join(stages, e.Name()))
		}
	}
}

// furnish fills a stage with what a plan shows.
func (p *plan) furnish(dir string, order []byte) error {
	if err := oci.Furnish(dir, p.sources, identity); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "order"), order, 0o444); err != nil {
		return err
	}
	for _, c := range p.copies {
		if err := c.make(); err != nil {
			return err
		}
	}
	if err := p.furnishSystem(dir); err != nil {
		return err
	}
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o600); err != nil {
		return err
	}
	return os.Chown(status, int(identity.UID), int(identity.GID))
}

// furnishSystem makes a /sys in which there is room for what is mounted there.
func (p *plan) furnishSystem(dir string) error {
	for _, m := range p.below {
		at := filepath.Join(dir, m.Target)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		var err error
		if m.File {
			err = os.WriteFile(at, nil, 0o444)
		} else {
			err = os.Mkdir(at, 0o755)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, "sys"), 0o755)
}

// make copies the file, with its owner as a mount would show it. What is missing, or no file, is
// empty. No link is followed: it may have become one by now.
func (c *copied) make() error {
	to, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil || c.from == "" {
		return errors.Join(err, to.Close())
	}
	defer to.Close()
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, c.from, how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: c.from, Err: err}
	}
	from := os.NewFile(uintptr(fd), c.from)
	defer from.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return os.NewSyscallError("stat", err)
	}
	if _, err := io.Copy(to, io.LimitReader(from, copiedSize)); err != nil {
		return err
	}
	return errors.Join(to.Chown(exchanged(st.Uid), exchanged(st.Gid)), to.Chmod(os.FileMode(st.Mode).Perm()))
}

// copiedSize is more than such a file has.
const copiedSize = 1 << 20

// exchanged is an owner as mounts show it: what is root's is the command's.
func exchanged(id uint32) int {
	switch id {
	case 0:
		return oci.Guest
	case oci.Guest:
		return 0
	}
	return int(id)
}

// narrow gives everything on a stage its options.
func (p *plan) narrow() error {
	for _, r := range p.restrict {
		if err := r.apply(); err != nil {
			return err
		}
	}
	return nil
}

var attributes = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV, "noexec": unix.MOUNT_ATTR_NOEXEC,
}

// apply makes a path a mount, if it is none, with the options.
func (r *restriction) apply() error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, r.path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st); err != nil {
		return fmt.Errorf("look at %s: %w", r.path, err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		if err := unix.Mount(r.path, r.path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", r.path, err)
		}
	}
	attr := unix.MountAttr{}
	for _, o := range r.options {
		attr.Attr_set |= attributes[o]
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, r.path, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("restrict %s: %w", r.path, err)
	}
	return nil
}
