package peer

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// Mode is that of Bailey's own sockets: reached by nobody but the user, and marked by
// a bit that means nothing to the kernel for a socket.
const Mode = 0o600 | sticky

const sticky = 0o1000 // S_ISVTX

// IsMarked says whether the mode of a socket is that of one of Bailey's own.
func IsMarked(mode uint32) bool { return mode&sticky != 0 }

var errConfined = errors.New("the other end is confined, perhaps in a sandbox")

// CheckNamespace refuses a process in another user namespace than ours.
func CheckNamespace(pid int) error {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return err
	}
	other, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	if err != nil || other != own {
		return errors.New("the other end is in another user namespace, perhaps in a sandbox")
	}
	return nil
}

// CheckFree refuses a process in another user namespace, and one under more filters of
// system calls than we are: where a sandbox has no namespaces, its filter is what there
// is to see of it. Many programs are started without a way to new privileges, by
// services for example, and are welcome.
func CheckFree(pid int) error {
	if err := CheckNamespace(pid); err != nil {
		return err
	}
	own, err := filters("self")
	if err != nil {
		return err
	}
	other, err := filters(strconv.Itoa(pid))
	if err == nil && other > own {
		return errConfined
	}
	return err
}

// filters grows with how many a process is under. Before Linux 5.9 the kernel tells
// only whether there are any.
func filters(process string) (int, error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key != "Seccomp" && key != "Seccomp_filters" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}
