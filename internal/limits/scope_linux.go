package limits

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enterScope asks systemd, that of the user or for root that of the system, for a
// scope below which groups can be made, and moves the calling process and one
// more into it. It returns the directory of the caller's group.
//
// The caller lives in the scope from now on, and keeps it alive: systemd removes
// it, with everything that is left in it, when the caller has ended in whatever
// way.
func enterScope(h *hierarchy, pid int) (own string, err error) {
	socket := busSocket()
	if socket == "" {
		return "", errors.New("no D-Bus of this user was found")
	}
	b, err := dialBus(socket)
	if err != nil {
		return "", fmt.Errorf("D-Bus at %s: %w", socket, err)
	}
	defer b.close()
	unit := "bailey-" + strconv.Itoa(unix.Getpid()) + ".scope"
	pids := []uint32{uint32(unix.Getpid())}
	if pid > 0 {
		pids = append(pids, uint32(pid))
	}
	if err := b.startScope(unit, pids); err != nil {
		return "", fmt.Errorf("systemd: %w", err)
	}
	return divide(h, unit, pids)
}

// divide moves the processes of a fresh scope into a group below it, since one
// that holds processes cannot have limited groups beside them.
func divide(h *hierarchy, unit string, pids []uint32) (own string, err error) {
	for _, pid := range pids {
		groups, err := readFile("/proc/" + strconv.Itoa(int(pid)) + "/cgroup")
		if err != nil {
			return "", err
		}
		// The numbers of processes may be others where systemd is.
		at, ok := h.find("/", groups)
		if !ok || path.Base(at) != unit || own != "" && at != own {
			return "", fmt.Errorf("systemd has not moved process %d to %s", pid, unit)
		}
		own = at
	}
	inner := path.Join(own, "caller")
	if err := unix.Mkdir(inner, 0o755); err != nil {
		return "", fmt.Errorf("make %s: %w", inner, err)
	}
	for _, pid := range pids {
		if err := writeFile(path.Join(inner, "cgroup.procs"), strconv.Itoa(int(pid))); err != nil {
			return "", fmt.Errorf("enter %s: %w", inner, err)
		}
	}
	return inner, nil
}

// busSocket is the socket of the bus that the caller's systemd is on, or "".
func busSocket() string {
	if unix.Geteuid() == 0 {
		return "/run/dbus/system_bus_socket"
	}
	for address := range strings.SplitSeq(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), ";") {
		if file, ok := strings.CutPrefix(address, "unix:path="); ok {
			file, _, _ = strings.Cut(file, ",")
			return file
		}
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); path.IsAbs(dir) {
		return path.Join(dir, "bus")
	}
	return "/run/user/" + strconv.Itoa(unix.Geteuid()) + "/bus"
}
