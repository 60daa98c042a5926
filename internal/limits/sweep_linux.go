package limits

import (
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// swept are the groups below which this process has looked for remains.
var swept struct {
	sync.Mutex
	dirs map[string]bool
}

// sweepOnce removes groups that killed processes left below a group, once for
// each process: who makes many sandboxes does not look at all of them each time.
func sweepOnce(below, except string) {
	swept.Lock()
	defer swept.Unlock()
	if swept.dirs[below] {
		return
	}
	if swept.dirs == nil {
		swept.dirs = make(map[string]bool)
	}
	swept.dirs[below] = true
	sweep(below, except)
}

// sweep removes the groups whose lock nobody holds. Several may do so at once:
// the lock decides who removes, and what is gone is gone.
func sweep(below, except string) {
	names, err := subdirectories(below)
	if err != nil {
		return // what cannot be seen cannot be removed either
	}
	for _, name := range names {
		dir := path.Join(below, name)
		if dir == except || !strings.HasPrefix(name, prefix) {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue // in use, or gone
		}
		p := part{unified: isUnified(lock), dir: dir, lock: lock}
		p.remove()
		_ = unix.Close(lock)
	}
}

func subdirectories(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	var names []string
	for _, e := range list {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// isUnified says whether an open directory is of a hierarchy of version 2.
func isUnified(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && int64(st.Type) == unix.CGROUP2_SUPER_MAGIC
}
