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

// CheckFree refuses a process in another user namespace, and one that has given up
// more than we have: where a sandbox has no namespaces, its filter is what there is
// to see of it.
func CheckFree(pid int) error {
	if err := CheckNamespace(pid); err != nil {
		return err
	}
	own, err := boundsOf("self")
	if err != nil {
		return err
	}
	other, err := boundsOf(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	for i := range own {
		if other[i] > own[i] {
			return errConfined
		}
	}
	return nil
}

// boundKeys are lines of /proc/PID/status whose numbers grow with what a process can
// no longer do. Linux tells the number of filters since 5.9.
var boundKeys = [...]string{"NoNewPrivs", "Seccomp", "Seccomp_filters"}

// bounds are their numbers.
type bounds [len(boundKeys)]int

func boundsOf(process string) (b bounds, err error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return b, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		for i, want := range boundKeys {
			if key != want {
				continue
			}
			if b[i], err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}
