package native

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// settled is how long, in milliseconds, a command runs before the program gives
// back what it needed only to start it. A short one does not pay for that.
const settled = 100

// isOwnProgram is true in the command, which began in entry and does nothing but
// to wait. Another program that starts sandboxes keeps its pages.
var isOwnProgram bool

// giveBack lets go of the pages of this program's own file: most are used once,
// and those that are used again come back by themselves, one by one.
func giveBack() {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		if start, end, ok := cleanPages(line, own); ok {
			_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED) // it only helps
		}
	}
}

// cleanPages reads a line of /proc/self/maps, and reports whether it is about
// pages of a file that nobody can have written to:
//
//	00400000-005c1000 r-xp 00000000 fd:00 131 /usr/bin/bailey
func cleanPages(line, file string) (start, end uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || !strings.HasSuffix(strings.TrimSpace(line), " "+file) || strings.Contains(fields[1], "w") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	a, errA := strconv.ParseUint(from, 16, 64)
	b, errB := strconv.ParseUint(to, 16, 64)
	return uintptr(a), uintptr(b), errA == nil && errB == nil && a < b
}
