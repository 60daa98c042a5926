package limits

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const systemdProgram = "/usr/lib/systemd/systemd"

// TestARealSystemdGivesAScope runs a systemd with a /run and in a group of its
// own.
func TestARealSystemdGivesAScope(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.File(systemdProgram), testenv.Program("dbus-daemon"))
	m, err := newMachine()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("bailey-test-%d", os.Getpid())
	defer func() {
		for i := range m.hierarchies {
			removeTree(filepath.Join(m.hierarchies[i].mount, name))
		}
	}()
	defer func() { // systemd, and what it has started
		p := part{dir: filepath.Join(m.unified().mount, name), unified: true}
		if p.lock, err = lockDir(p.dir); err == nil && p.write("cgroup.kill", "1") == nil {
			p.awaitEmpty()
		}
	}()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), loadVariable+"=scope", "GROUP="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = strings.NewReader("x")
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v\n%s", err, out)
	}
}

// removeTree removes a group and those below it. They are empty, or nothing
// happens.
func removeTree(dir string) {
	names, _ := subdirectories(dir) // none if it does not exist
	for _, name := range names {
		removeTree(filepath.Join(dir, name))
	}
	_ = os.Remove(dir)
}

// scope is the process that wants one.
func scope() {
	if err := enterAndCheck(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func enterAndCheck() error {
	h, err := ownWorld(os.Getenv("GROUP"))
	if err != nil {
		return err
	}
	if err := startOwnSystemd(); err != nil {
		return err
	}
	other := exec.Command("/proc/self/exe")
	other.Env = append(os.Environ(), loadVariable+"=wait")
	in, err := other.StdinPipe()
	if err != nil {
		return err
	}
	if err := other.Start(); err != nil {
		return err
	}
	defer in.Close()
	own, err := enterScope(h, other.Process.Pid)
	if err != nil {
		return err
	}
	if path.Base(own) != "caller" || path.Base(path.Dir(own)) != fmt.Sprintf("bailey-%d.scope", os.Getpid()) {
		return errors.New("got the group " + own)
	}
	for _, pid := range []int{os.Getpid(), other.Process.Pid} {
		groups, err := readFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if at, ok := h.find("/", groups); err != nil || !ok || at != own {
			return fmt.Errorf("process %d is in %s, not in %s (%w)", pid, at, own, err)
		}
	}
	if _, err := enterScope(h, 0); err == nil || !strings.Contains(err.Error(), "systemd: StartTransientUnit: ") {
		return fmt.Errorf("a second scope of that name: got %w, want systemd's own words", err)
	}
	return nil
}

// ownWorld makes this a machine that systemd has booted.
func ownWorld(group string) (*hierarchy, error) {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),

		unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"),
		os.MkdirAll("/run/systemd/system", 0o755), os.Mkdir("/run/dbus", 0o755), os.Mkdir("/run/user", 0o700),
		os.Mkdir(ownUnits, 0o755), os.Symlink("/run/user/bus", "/run/dbus/system_bus_socket"),
	)
	for name, text := range units {
		err = errors.Join(err, os.WriteFile(filepath.Join(ownUnits, name), []byte(text), 0o644))
	}
	if err != nil {
		return nil, err
	}
	m, err := newMachine()
	if err != nil {
		return nil, err
	}
	h := m.unified()
	if h == nil {
		return nil, errors.New("no control groups of version 2 are mounted")
	}
	dir := filepath.Join(h.mount, group, "in")
	return h, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0))
}

const ownUnits = "/run/units"

// units are all that systemd starts.
var units = map[string]string{
	"default.target": "[Unit]\nDefaultDependencies=no\nWants=dbus.socket\n",
	"dbus.socket":    "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=%t/bus\n",
	"dbus.service":   "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nExecStart=dbus-daemon --session --address=systemd: --nofork --nopidfile --systemd-activation\n",
}

// startOwnSystemd starts a systemd, and waits until it is on the bus that it
// starts itself.
func startOwnSystemd() error {
	const notify = "/run/notify"
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	systemd := exec.Command(systemdProgram, "--user")
	systemd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/run", "XDG_RUNTIME_DIR=/run/user", "SYSTEMD_UNIT_PATH=" + ownUnits, "NOTIFY_SOCKET=" + notify}
	if err := systemd.Start(); err != nil {
		return err
	}
	go func() { _ = systemd.Wait(); _ = ready.Close() }()
	buf := make([]byte, 4096)
	for !strings.Contains(string(buf), "READY=1") {
		if _, err := ready.Read(buf); err != nil {
			return fmt.Errorf("systemd has not started: %w", err)
		}
	}
	return awaitSystemd()
}

// awaitSystemd waits until systemd has its name on the bus.
func awaitSystemd() error {
	b, err := dialBus(busSocket())
	if err != nil {
		return err
	}
	defer b.close()
	ask := message{path: "/org/freedesktop/DBus", dest: busName, face: busName, member: "AddMatch", signature: "s"}
	ask.body = marshal("type='signal',sender='" + busName + "',member='NameOwnerChanged',arg0='" + systemdName + "'")
	if _, err := b.call(ask); err != nil {
		return err
	}
	ask.member, ask.body = "NameHasOwner", marshal(systemdName)
	answer, err := b.call(ask)
	if err != nil {
		return err
	}
	if has, err := (&decoder{data: answer.body}).uint32(); err != nil || has == 1 {
		return err
	}
	for {
		if m, err := b.next(); err != nil || m.kind == kindSignal && m.member == "NameOwnerChanged" {
			return err
		}
	}
}
