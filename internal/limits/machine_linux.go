package limits

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what this machine has for groups, as the caller sees it.
type machine struct {
	hierarchies []hierarchy
	root        bool // the caller is root
	systemd     bool // which wants to be asked before root makes groups
}

func newMachine() (*machine, error) {
	mounts, err := readFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("limits: read /proc/self/mountinfo: %w", err)
	}
	groups, err := readFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("limits: read /proc/self/cgroup: %w", err)
	}
	m := &machine{hierarchies: parseLayout(mounts, groups), root: unix.Geteuid() == 0}
	m.systemd = unix.Access("/run/systemd/system", unix.F_OK) == nil
	if h := m.unified(); h != nil {
		h.controllers = words(h.mount, "cgroup.controllers")
	}
	return m, nil
}

// unified is the hierarchy of version 2, or nil.
func (m *machine) unified() *hierarchy {
	for i := range m.hierarchies {
		if m.hierarchies[i].unified {
			return &m.hierarchies[i]
		}
	}
	return nil
}

// holder is the hierarchy that a controller belongs to, or nil. It is in one.
func (m *machine) holder(controller string) *hierarchy {
	for i := range m.hierarchies {
		if slices.Contains(m.hierarchies[i].controllers, controller) {
			return &m.hierarchies[i]
		}
	}
	return nil
}

// words reads a file of names.
func words(dir, file string) []string {
	text, _ := readFile(path.Join(dir, file)) // what cannot be read has none
	return strings.Fields(text)
}

// place makes a group of version 2: in what belongs to the caller, else in a
// scope that systemd makes.
func (g *Group) place(m *machine, need []string, account bool, pid int) error {
	h := m.unified()
	err := g.walk(m, h, need, account)
	if err == nil || h.readOnly {
		return err
	}
	own, scopeErr := enterScope(h, pid)
	if scopeErr == nil {
		h.own = own
		return g.walk(m, h, need, account)
	}
	if m.systemd && m.root {
		m.systemd = false // it does not answer, as in a container
		return g.walk(m, h, need, account)
	}
	return &placeError{err, scopeErr}
}

// walk makes a group below the caller's own, or below the nearest one above it
// where that is possible. The caller's own holds processes, and is then only
// possible if it is the root of all.
func (g *Group) walk(m *machine, h *hierarchy, need []string, account bool) error {
	var first error
	for dir := h.own; ; dir = path.Dir(dir) {
		err := g.tryAt(m, h, dir, need, account)
		if err == nil {
			return nil
		}
		// That a controller is missing everywhere says more than that the way up
		// is closed.
		if first == nil || errors.Is(first, unix.EBUSY) {
			first = err
		}
		if dir == h.mount || len(dir) <= len(h.mount) {
			return first
		}
	}
}

// tryAt makes a group below one, where the controllers that are needed can be
// enabled. Those that only count are taken if they are there.
func (g *Group) tryAt(m *machine, h *hierarchy, dir string, need []string, account bool) error {
	if m.root && m.systemd && !isDelegated(h, dir) {
		return errForeign
	}
	if isRoot := unix.Access(path.Join(dir, "cgroup.type"), unix.F_OK) != nil; !isRoot && len(words(dir, "cgroup.procs")) > 0 {
		return unix.EBUSY // some controllers could be enabled, but no process could enter
	}
	have := words(dir, "cgroup.controllers")
	for _, c := range need {
		if !slices.Contains(have, c) {
			return &missingError{c}
		}
	}
	enabled := words(dir, "cgroup.subtree_control")
	for _, c := range need {
		if slices.Contains(enabled, c) {
			continue
		}
		if err := writeFile(path.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return err
		}
	}
	if account {
		for _, c := range accounted {
			if slices.Contains(have, c) && !slices.Contains(enabled, c) {
				_ = writeFile(path.Join(dir, "cgroup.subtree_control"), "+"+c) // then it is not counted
			}
		}
	}
	return g.make(h, dir, need...)
}

// isDelegated says whether systemd has given the group, or one above it, to
// whoever runs in it.
func isDelegated(h *hierarchy, dir string) bool {
	var value [8]byte
	for ; len(dir) > len(h.mount); dir = path.Dir(dir) {
		for _, name := range []string{"trusted.delegate", "user.delegate"} {
			if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
				return true
			}
		}
	}
	return false
}

func writeFile(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(text))
	return err
}

// errForeign says that a group is systemd's own.
var errForeign = errors.New("systemd has not delegated a control group to this process")

// missingError says that a controller is not there for the caller.
type missingError struct{ controller string }

func (e *missingError) Error() string {
	return "the controller " + e.controller + " is not available to this process"
}

// placeError says why there is no place for a group of version 2.
type placeError struct{ walk, scope error }

func (e *placeError) Error() string {
	reason := "no control group belongs to this user"
	var missing *missingError
	if errors.As(e.walk, &missing) {
		reason = missing.Error()
	}
	return reason + ", and systemd gives none: " + e.scope.Error()
}

func (e *placeError) Unwrap() []error { return []error{e.walk, e.scope} }

const (
	fixKernel   = "mount the control groups of this controller, or boot a kernel that has it"
	fixDelegate = "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu memory pids\\n' >/etc/systemd/system/user@.service.d/bailey.conf && systemctl daemon-reload; then log in again"
	fixUser     = "log in so that systemd runs for the user (loginctl enable-linger), or run as root"
	fixOne      = "run as root, or boot with systemd.unified_cgroup_hierarchy=1"
	fixReadOnly = "give the container its control groups for writing (docker: --privileged), or limit the container itself"
	fixBusy     = "start it in a group of its own, for example: systemd-run --scope -p Delegate=yes bailey …"
)

func (m *machine) absence(controller string) string {
	if len(m.hierarchies) == 0 {
		return "no control groups are mounted"
	}
	return "no control groups have the controller " + controller
}

// explain says why a hierarchy takes no group, and what to do.
func (m *machine) explain(h *hierarchy, err error) (reason, fix string) {
	var missing *missingError
	denied := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	switch {
	case h.readOnly || errors.Is(err, unix.EROFS):
		return "the control groups can only be read here, as in a container", fixReadOnly
	case !h.unified && denied:
		return "control groups of version 1 are for root alone", fixOne
	case errors.As(err, &missing) && !m.root:
		return err.Error(), fixDelegate
	case errors.As(err, &missing):
		return err.Error(), fixKernel
	case errors.Is(err, unix.EBUSY):
		return "the control group of this process cannot be divided while processes are in it", fixBusy
	case m.root:
		return err.Error(), fixBusy
	}
	return err.Error(), fixUser
}
