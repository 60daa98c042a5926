package probe

import (
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tokenPrefix begins the name of everything that an audit makes on the host. Its
// process and the time it began follow, so that the next audit can tell what one
// that was killed has left.
const tokenPrefix = ".bailey-audit-"

func newToken() string {
	return tokenPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// sweep removes what audits that were killed left in a directory. What it cannot
// remove stays.
func sweep(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // what could be read is better than nothing
	for _, name := range names {
		if isLeft(name) {
			_ = unix.Unlink(path.Join(dir, name)) // fails for a directory
		}
	}
}

// isLeft says whether a name is that of an audit that has ended. One takes seconds:
// what is older has another process's number.
func isLeft(name string) bool {
	rest, ok := strings.CutPrefix(name, tokenPrefix)
	number, rest, _ := strings.Cut(rest, "-")
	stamp, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.ParseUint(number, 10, 31)
	began, errBegan := strconv.ParseInt(stamp, 36, 64)
	if !ok || err != nil || errBegan != nil || pid == 0 {
		return false
	}
	return unix.Kill(int(pid), 0) == unix.ESRCH || time.Since(time.Unix(0, began)) > 10*maxDuration
}
