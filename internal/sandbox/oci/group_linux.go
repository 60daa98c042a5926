package oci

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// groupPrefix begins the names of the control groups that runtimes make for sandboxes
// of root. The number of the process that started it follows, and if that starts more
// than one a dash and a serial number.
const groupPrefix = "bailey-oci-"

// hierarchies are where control groups are mounted.
func hierarchies() (list []string) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			list = append(list, f[1])
		}
	}
	return list
}

// removeGroup removes a sandbox's control group, which nothing is in any more.
func removeGroup(group string) {
	if group == "" {
		return
	}
	for _, at := range hierarchies() {
		removeTree(filepath.Join(at, group))
	}
}

// removeTree removes a group and those that a runtime made in it.
func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// sweepGroups removes the groups of sandboxes whose owner was killed. Those of
// others have their owner's number, and what still has processes cannot be removed.
func sweepGroups() {
	if os.Geteuid() != 0 {
		return
	}
	for _, at := range hierarchies() {
		entries, _ := filepath.Glob(filepath.Join(at, groupPrefix+"*"))
		for _, dir := range entries {
			owner, _, _ := strings.Cut(filepath.Base(dir)[len(groupPrefix):], "-")
			pid, err := strconv.Atoi(owner)
			if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
				removeTree(dir)
			}
		}
	}
}
