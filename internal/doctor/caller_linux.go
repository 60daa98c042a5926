package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sudoer is the user who called sudo. Nil is who runs this program: what keeps
// users from building sandboxes does not bind root, so that a report of root's
// says nothing about them.
type sudoer struct {
	*user.User
	uid, gid uint32
	groups   []uint32
}

// caller is who called sudo, or nil if this is not root or nobody did.
func caller(euid int, getenv func(string) string) (*sudoer, error) {
	id := getenv("SUDO_UID")
	if euid != 0 || id == "" || id == "0" {
		return nil, nil
	}
	found, err := user.LookupId(id)
	if err != nil {
		return nil, fmt.Errorf("doctor: SUDO_UID: %w; to examine for root: env -u SUDO_UID bailey doctor --fix", err)
	}
	names, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("doctor: groups of user %s: %w", id, err)
	}
	s := &sudoer{User: found}
	numbers := []*uint32{&s.uid, &s.gid}
	for i, text := range append([]string{found.Uid, found.Gid}, names...) {
		n, err := strconv.ParseUint(text, 10, 32)
		switch {
		case err != nil:
			return nil, fmt.Errorf("doctor: groups of user %s: %w", id, err)
		case i < len(numbers):
			*numbers[i] = uint32(n)
		default:
			s.groups = append(s.groups, uint32(n))
		}
	}
	return s, nil
}

// examine is Examine by that user, in a process of theirs.
func (s *sudoer) examine() (*Report, error) {
	if s == nil {
		return Examine(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "doctor", "--json")
	cmd.Dir = "/"
	cmd.Env = s.environ(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.gid, Groups: s.groups}}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitNotFull {
		err = nil
	}
	report := &Report{}
	if err == nil {
		err = json.Unmarshal(out, report)
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: examine for user %s: %w; to examine for root: env -u SUDO_UID bailey doctor --fix", s.Uid, err)
	}
	return report, nil
}

// environ is the environment of the user, as far as sudo has not kept it.
func (s *sudoer) environ(own []string) []string {
	env := slices.DeleteFunc(slices.Clone(own), func(v string) bool { return strings.HasPrefix(v, "SUDO_") })
	return append(env, "HOME="+s.HomeDir, "USER="+s.Username, "LOGNAME="+s.Username, "XDG_RUNTIME_DIR=/run/user/"+s.Uid)
}
