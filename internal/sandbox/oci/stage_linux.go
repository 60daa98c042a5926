package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// stage is where a guard has its directory in memory, in its own mount namespace.
// Every host has it, nobody keeps programs there, and what is granted of it is opened
// before it is covered.
const stage = "/run"

// taken is a source that is open and not attached yet.
type taken struct {
	Source
	tree int // a detached mount, or -1
}

// prepare leaves the host's mounts and gives this process's namespace a /proc of its
// own, in which runtimes find what they start.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return nil
}

// take opens every source of the host, without following a symbolic link, so that
// none can be exchanged between the decision and now. What lies in an overlay is not
// there yet.
func take(sources []Source, over *spec.Overlay, exe int, userns int) ([]taken, error) {
	list := []taken{{Source: Source{Name: initName, Mount: spec.Mount{Kind: spec.Bind, File: true}}, tree: exe}}
	for _, s := range sources {
		t := taken{Source: s, tree: -1}
		if (s.Mount.Kind == spec.Bind || s.Mount.Kind == spec.Private) && !over.Covers(s.Mount.Source) {
			var err error
			if t.tree, err = open(&s.Mount, userns); err != nil {
				return nil, err
			}
		}
		list = append(list, t)
	}
	return list, nil
}

// open returns a detached copy of what is mounted at a source, with everything below
// it, as the command may have it.
func open(m *spec.Mount, userns int) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, m.Source, how)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", m.Source, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Runtimes and engines would follow it.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return -1, fmt.Errorf("open %s: it has become a symbolic link: %w", m.Source, unix.ELOOP)
	}
	return clone(fd, m, userns)
}

func clone(fd int, m *spec.Mount, userns int) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("copy the mount of %s: %w", m.Source, err)
	}
	// Private: what is unmounted below the copy stays mounted where it was copied from.
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if !m.Devices {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if !isWritable(m) {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return -1, fmt.Errorf("restrict the mount of %s: %w", m.Source, err)
	}
	if userns < 0 || m.Devices {
		return tree, nil
	}
	attr = &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
	if err != nil && isWritable(m) {
		return -1, fmt.Errorf("give %s the sandbox's owner (idmapped mount): %w; use --runtime native", m.Source, err)
	}
	// What can only be read is less without: files that others cannot read.
	return tree, nil
}

// exchange returns a user namespace in which root of the host is the command's user
// and the other way round. Mounts take their owners from it.
func exchange(id Identity, more ...syscall.SysProcIDMap) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, Pdeathsig: unix.SIGKILL,
		UidMappings: append(exchanged(id.First, id.UID), more...), GidMappings: append(exchanged(id.First, id.GID), more...),
	}}
	// It is stopped before its first instruction, and ended there.
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"bailey-owner"}, attr)
	if err != nil {
		return -1, fmt.Errorf("make a user namespace: %w", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		var ws unix.WaitStatus
		if _, again := unix.Wait4(pid, &ws, unix.WALL, nil); again != unix.EINTR && !ws.Stopped() {
			break
		}
	}
	return fd, err
}

func exchanged(first, guest uint32) []syscall.SysProcIDMap {
	f, g := int(first), int(guest)
	list := []syscall.SysProcIDMap{{ContainerID: 0, HostID: f + g, Size: 1}, {ContainerID: g, HostID: f, Size: 1}}
	for _, rest := range [][2]int{{1, g}, {g + 1, rangeSize}} {
		if size := rest[1] - rest[0]; size > 0 {
			list = append(list, syscall.SysProcIDMap{ContainerID: rest[0], HostID: f + rest[0], Size: size})
		}
	}
	return list
}

// listen makes a socket among the sources that is served outside, such as that of the
// network gate. Whoever is led to it may connect: the way is the sandbox's mount.
func listen(dir, name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	at := filepath.Join(dir, sourceName, name)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: at}); err != nil {
		return -1, os.NewSyscallError("bind", err)
	}
	if err := unix.Chmod(at, 0o666); err != nil {
		return -1, os.NewSyscallError("chmod", err)
	}
	return fd, os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
}

// furnish fills the stage: the root directory, the sources, and the bundle's
// configuration.
func furnish(list []taken, layers *layers, config []byte, id Identity) error {
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", stage, err)
	}
	f := furnisher{dir: stage, id: id, layers: layers}
	if err := f.furnish(list); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(stage, "config.json"), config, 0o644)
}

type furnisher struct {
	dir    string
	id     Identity
	serial int
	layers *layers // nil without an overlay
}

// furnish makes the root directory and the sources.
func (f *furnisher) furnish(list []taken) error {
	// Whoever is root inside reads these, and is nobody here.
	for _, name := range []string{rootName, sourceName, stateName} {
		if err := os.Mkdir(filepath.Join(f.dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := f.layers.attach(f.dir); err != nil {
		return err
	}
	for i := range list {
		if err := f.place(&list[i]); err != nil {
			return err
		}
	}
	return f.layers.show(f.dir, list)
}

func (f *furnisher) place(t *taken) error {
	if t.Name == "" {
		return f.fill(filepath.Join(f.dir, rootName), &t.Source, false)
	}
	at := filepath.Join(f.dir, sourceName, t.Name)
	m := &t.Mount
	switch {
	case t.Name == initName && t.tree < 0:
		return os.WriteFile(at, native.GuestProgram(), 0o555)
	case f.layers.covers(m.Source) && t.tree < 0:
		var err error
		if t.tree, err = f.layers.open(f.dir, m); err != nil {
			return err
		}
	}
	switch {
	case m.Kind == spec.Hide:
		return hidden(at, m.File)
	case m.Kind == spec.Tmpfs:
		return f.fill(at, &t.Source, true)
	}
	if err := point(at, m.File); err != nil {
		return err
	}
	if m.Kind == spec.Private {
		return f.overlay(t, at)
	}
	if err := unix.MoveMount(t.tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s: %w", m.Source, err)
	}
	return unix.Close(t.tree)
}

// point makes what something is mounted on.
func point(at string, file bool) error {
	if !file {
		return os.Mkdir(at, 0o755)
	}
	return os.WriteFile(at, nil, 0o444)
}

// hidden is an empty file or directory that nobody may open.
func hidden(at string, file bool) error {
	if file {
		return os.WriteFile(at, nil, 0)
	}
	return os.Mkdir(at, 0)
}

// fill makes what is in the root directory or in a private one. What is in a private
// one belongs to the command.
func (f *furnisher) fill(at string, s *Source, own bool) error {
	make := func(p string, how func(string) error) error {
		name := filepath.Join(at, strings.TrimPrefix(p, s.Mount.Target))
		if err := how(name); err != nil || !own {
			return err
		}
		return os.Lchown(name, f.host(f.id.UID), f.host(f.id.GID))
	}
	if own {
		mode := modeOf(&s.Mount)
		if err := make(s.Mount.Target, func(n string) error { return unix.Mkdir(n, mode) }); err != nil {
			return err
		}
		if err := unix.Chmod(at, mode); err != nil { // Mkdir leaves out the sticky bit of a user
			return err
		}
	}
	for _, p := range s.Dirs {
		if err := make(p, func(n string) error { return os.Mkdir(n, 0o755) }); err != nil {
			return err
		}
	}
	for _, p := range s.Files {
		if err := make(p, func(n string) error { return os.WriteFile(n, nil, 0o444) }); err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := make(l.Target, func(n string) error { return os.Symlink(l.Source, n) }); err != nil {
			return err
		}
	}
	return nil
}

// host is what an id of the command's is here.
func (f *furnisher) host(id uint32) int {
	if f.id.Count == 1 {
		return -1 // it is this process's own
	}
	return int(f.id.First + id)
}

// overlay shows a directory of the host whose changes stay in memory.
func (f *furnisher) overlay(t *taken, at string) error {
	f.serial++
	base := filepath.Join(f.dir, "private"+strconv.Itoa(f.serial))
	lower, upper, work := base+"/lower", base+"/upper", base+"/work"
	for _, dir := range []string{base, lower, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(t.tree, "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s: %w", t.Mount.Source, err)
	}
	if err := os.Chown(upper, f.host(f.id.UID), f.host(f.id.GID)); err != nil {
		return err
	}
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay %s: %w", t.Mount.Source, err)
	}
	return nil
}
