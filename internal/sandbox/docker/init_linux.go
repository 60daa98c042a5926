package docker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// firstOrder is what the first process is to do. It is in a file: the command's
// environment may be longer than an argument can be.
type firstOrder struct {
	First   oci.First
	Umask   int
	Termios *unix.Termios
	Size    *unix.Winsize
	// Mounts are those that must be found. Second says that gVisor describes them,
	// which knows nothing of the host's options.
	Mounts []expected
	Second bool
	// Leave, if not empty, is the socket by which it is told that it may start the command, and
	// with whose other end it ends.
	Leave string
}

// expected is a mount, and the options that it must have.
type expected struct {
	Path    string
	Options []string
}

// first is the first process of a container, which is this program, as the command's user
// and without privileges. It returns the status to exit with.
func first() int {
	data, err := os.ReadFile(orderPath)
	if err != nil {
		return 1
	}
	var o firstOrder
	if err := wire.Decode(data, &o); err != nil {
		return 1
	}
	status, err := os.OpenFile(statusPath, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 1
	}
	if err := o.prepare(); err != nil {
		// The guard, which hears of no start, says it.
		_, _ = status.Write(append([]byte(complaint), err.Error()...))
		return 1
	}
	return oci.RunFirst(status, o.First)
}

// complaint begins what the first process writes instead of how the command fares. It is
// longer than a record, and no record begins like it.
const complaint = "the container is not as it was to be: "

func (o *firstOrder) prepare() error {
	if o.Leave != "" {
		if err := oci.AwaitLeave(o.Leave); err != nil {
			return err
		}
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if err := checkMounts(string(table), o.Mounts, o.Second); err != nil {
		return err
	}
	unix.Umask(o.Umask)
	if o.First.Stream < 0 {
		return nil
	}
	if o.Termios != nil {
		if err := unix.IoctlSetTermios(o.First.Stream, unix.TCSETS, o.Termios); err != nil {
			return os.NewSyscallError("set up the terminal", err)
		}
	}
	if o.Size != nil {
		return os.NewSyscallError("set up the terminal", unix.IoctlSetWinsize(o.First.Stream, unix.TIOCSWINSZ, o.Size))
	}
	return nil
}

// engineFiles are names on which engines mount files of their own.
var engineFiles = []string{"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}

// engineMounts are what engines mount by themselves.
var engineMounts = append([]string{"/", "/proc", "/dev", "/sys"}, engineFiles...)

// checkMounts looks for every mount in a table in the format of /proc/self/mountinfo,
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
//
// with its options, and for those that nobody asked for.
func checkMounts(table string, list []expected, second bool) error {
	options := make(map[string][]string)
	var found []error
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return errors.New("the mount table has a short line")
		}
		at := spec.UnescapeMount(f[4])
		options[at] = strings.Split(f[5], ",") // the last is the one that is seen
		if !isExpected(at, list) {
			found = append(found, fmt.Errorf("something is mounted on %s", at))
		}
	}
	for _, m := range list {
		has, ok := options[m.Path]
		if !ok {
			found = append(found, fmt.Errorf("nothing is mounted on %s", m.Path))
			continue
		}
		for _, o := range m.Options {
			if !second && !slices.Contains(has, o) {
				found = append(found, fmt.Errorf("the mount on %s is not %s", m.Path, o))
			}
		}
	}
	return errors.Join(found...)
}

// isExpected says whether something may be mounted on a path: what is shown of the host
// is shown with all that is mounted below it.
func isExpected(at string, list []expected) bool {
	for _, p := range engineMounts {
		if at == p || (p == "/proc" || p == "/dev" || p == "/sys") && spec.Covers(p, at) {
			return true
		}
	}
	return slices.ContainsFunc(list, func(m expected) bool { return spec.Covers(m.Path, at) })
}
