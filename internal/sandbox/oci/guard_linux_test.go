package oci

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// pretending is a place in which a script is gVisor.
func pretending(t *testing.T, script func(dir string) string) *place {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "runsc"), []byte("#!/bin/sh\n"+script(dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return newPlace(t, &Engine{Gvisor, "runsc", []string{"systrap"}})
}

// A runtime whose sandbox dies early waits until nothing is left of that process, which
// as an orphan belongs to the guard.
func TestARuntimeWhoseSandboxDiesIsNotWaitedForForEver(t *testing.T) {
	p := pretending(t, func(dir string) string {
		return `orphan=` + dir + `/orphan.$$
(sh -c 'echo $$ >"$0"' "$orphan" &)
until [ -s "$orphan" ]; do :; done
read -r pid <"$orphan"
while kill -0 "$pid" 2>/dev/null; do :; done
exit 1
`
	})
	out, err := p.command("true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "could not start the sandbox") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestARuntimeThatSendsNoTerminalIsNotWaitedForForEver(t *testing.T) {
	p := pretending(t, func(string) string { return "exit 0\n" })
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	defer master.Close()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	slave := os.NewFile(peer, "pts")
	c := p.command("true")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	out, _ := io.ReadAll(master) // which ends with an error when the last one closes it
	_ = c.Wait()
	if got := c.ProcessState.ExitCode(); got != foreground.Own {
		t.Errorf("status %d, want %d\n%s", got, foreground.Own, out)
	}
}

func TestAnUnusualUmaskIsNobodysButTheCommands(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	each(t, func(p *place) {
		if got := p.output("sh", "-c", "umask"); strings.TrimLeft(got, "0") != "77\n" {
			p.Errorf("the command's is %q", got)
		}
	})
}
