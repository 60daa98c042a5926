package bwrap

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Start builds a sandbox with the help of bubblewrap and starts the command in it,
// under the same terms as native.Start.
func Start(s *spec.Spec, o native.Options) (*native.Process, error) {
	e, err := Begin(o)
	if err != nil {
		return nil, err
	}
	return e.Start(s)
}

// Begin starts bubblewrap, which then waits for a Spec, under the same terms as
// native.Begin.
func Begin(o native.Options) (*native.Embryo, error) {
	help, err := helper()
	if err != nil {
		return nil, err
	}
	return native.BeginIn(o, help)
}

// Open builds a sandbox that stays with the help of bubblewrap, under the same terms
// as native.Open.
func Open(s *spec.Spec, o native.Options) (*native.Resident, error) {
	help, err := helper()
	if err != nil {
		return nil, err
	}
	return native.OpenIn(s, o, help)
}

// helper is bubblewrap as package native calls it.
func helper() (native.Helper, error) {
	program, err := Program()
	return native.Helper{
		Runtime: spec.RuntimeBwrap,
		Argv:    []string{program, "--args", strconv.Itoa(native.FDOrder), "--", "/proc/self/fd/" + strconv.Itoa(native.FDStage)},
		Refuses: Refuses,
		Order: func(s *spec.Spec, outer []spec.Mount) []byte {
			return []byte(strings.Join(Arguments(s, outer), "\x00") + "\x00")
		},
	}, err
}

// Program finds bubblewrap in PATH.
func Program() (string, error) {
	const name = "bwrap"
	var last error
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || unix.Access(file, unix.X_OK) != nil {
			continue
		}
		if last = checkProgram(file); last == nil {
			return file, nil
		}
	}
	if last != nil {
		return "", last
	}
	return "", errors.New("runtime bwrap: bubblewrap is not installed; install the package bubblewrap, or use --runtime native")
}

// checkProgram refuses a program that gets privileges of its own: as setuid it
// keeps process 1 from making the rest of the sandbox.
func checkProgram(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSetuid != 0 {
		return errors.New("runtime bwrap: " + file + " is setuid root, with which this runtime does not work; remove that bit, where users may make namespaces, or use --runtime native")
	}
	return nil
}

// Refuses is nil if bubblewrap and process 1 together hold every part of a Spec,
// and otherwise a *spec.Refused with each part that they cannot hold.
func Refuses(s *spec.Spec) error {
	var reasons []*spec.Unsupported
	refuse := func(key, value, reason string) {
		reasons = append(reasons, &spec.Unsupported{Key: key, Value: value, Reason: "the bwrap runtime " + reason, Fix: "remove it, or use --runtime native"})
	}
	if u := s.Rules.Refused(spec.RuntimeBwrap); u != nil {
		reasons = append(reasons, u)
	}
	if s.Limits != nil && s.Limits.Disk > 0 {
		refuse("resources.disk", strconv.FormatInt(s.Limits.Disk, 10), "makes each private directory by itself, and cannot limit them together")
	}
	const firstFree = 1024
	for _, e := range s.Expose {
		if e.Inside < firstFree {
			refuse("network.exposePorts", strconv.Itoa(int(e.Inside)), "cannot let the command have a port below 1024")
		}
	}
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Hide && spec.Covers("/dev/pts", m.Target) {
			key, entry, _ := strings.Cut(m.Why, " ")
			refuse(key, entry, "mounts pseudo-terminals over what is hidden there")
		}
	}
	if len(reasons) > 0 {
		return &spec.Refused{Reasons: reasons}
	}
	return nil
}

// Arguments are bubblewrap's, for the mounts of a Spec that it makes.
func Arguments(s *spec.Spec, mounts []spec.Mount) []string {
	a := &arguments{made: make(map[string]bool)}
	a.add("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")
	if s.Network.IsOwn() {
		a.add("--unshare-net")
	}
	if !s.Identity.Full { // else it is in one already, where every id is mapped
		uid, gid := s.Identity.Inside()
		a.add("--unshare-user", "--uid", strconv.Itoa(uid), "--gid", strconv.Itoa(gid))
	}
	// Process 1 gives all of them up when it has made the rest.
	a.add("--cap-add", "ALL")
	a.add("--as-pid-1", "--die-with-parent", "--block-fd", strconv.Itoa(native.FDBlock))
	a.add("--proc", "/proc")
	a.dev()
	if s.Gate != nil && s.Gate.Socket != "" {
		a.directory(path.Dir(s.Gate.Socket), 0o755)
	}
	for i := range mounts {
		a.mount(&mounts[i])
	}
	for i := range mounts {
		if mounts[i].Way { // what is in it stands by now
			a.add("--remount-ro", mounts[i].Target)
		}
	}
	return a.list
}

// arguments are a list of them, and what they make.
type arguments struct {
	list []string
	// tree is every mount so far that covers what is below, and whether
	// directories can be made in it.
	tree []covered
	made map[string]bool
}

type covered struct {
	target string
	fresh  bool
}

func (a *arguments) add(list ...string) { a.list = append(a.list, list...) }

// dev makes the same /dev as the native runtime. That of bubblewrap's own would
// show the caller's terminal. Process 1 adds pseudo-terminals.
func (a *arguments) dev() {
	for _, name := range native.Devices() {
		a.parents("/dev/"+name, 0o755)
		a.add("--dev-bind", "/dev/"+name, "/dev/"+name)
	}
	for _, link := range native.DeviceLinks() {
		a.add("--symlink", link[0], "/dev/"+link[1])
	}
	a.directory("/dev/pts", 0o755)
	a.mount(&spec.Mount{Kind: spec.Tmpfs, Target: "/dev/shm", Mode: 0o1777})
}

func (a *arguments) mount(m *spec.Mount) {
	mode := m.Mode
	if mode == 0 {
		mode = 0o755
	}
	switch m.Kind {
	case spec.Proc, spec.Dev: // stand already
	case spec.Dir:
		a.directory(m.Target, mode)
	case spec.Symlink:
		a.parents(m.Target, 0o755)
		a.add("--symlink", m.Source, m.Target)
	case spec.Tmpfs:
		a.parents(m.Target, 0o755)
		a.add("--perms", octal(mode), "--tmpfs", m.Target)
		a.cover(m.Target, true)
	case spec.Bind:
		a.bind(m)
	}
}

// bind shows a path of the host. What is written beside a granted directory would
// vanish, so there nothing can be.
func (a *arguments) bind(m *spec.Mount) {
	mode := uint32(0o755)
	if m.Write && !m.File {
		mode = 0o555
	}
	a.parents(m.Target, mode)
	switch {
	case m.Devices:
		a.add("--dev-bind", m.Source, m.Target)
		if !m.Write {
			a.add("--remount-ro", m.Target)
		}
	case m.Write:
		a.add("--bind", m.Source, m.Target)
	default:
		a.add("--ro-bind", m.Source, m.Target)
	}
	a.cover(m.Target, false)
}

func (a *arguments) cover(target string, fresh bool) {
	a.made[target] = true
	a.tree = append(a.tree, covered{target, fresh})
}

// directory makes one, with its parents.
func (a *arguments) directory(target string, mode uint32) {
	if target == "/" || a.made[target] || !a.fresh(target) {
		return
	}
	a.parents(target, mode)
	a.made[target] = true
	a.add("--perms", octal(mode), "--dir", target)
}

// parents makes the directories above a path, as far as they are not the host's.
func (a *arguments) parents(target string, mode uint32) { a.directory(path.Dir(target), mode) }

// fresh says whether a path is in a directory that was made here. The last mount
// that covers it decides.
func (a *arguments) fresh(target string) bool {
	for i := len(a.tree) - 1; i >= 0; i-- {
		if c := a.tree[i]; spec.Covers(c.target, target) {
			return c.fresh && target != c.target
		}
	}
	return true
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }
