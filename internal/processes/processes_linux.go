package processes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// File is the path of what /proc has about a process.
func File(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// Each passes on the number and the pid namespace of every process that this one
// may look at.
func Each(f func(pid int, space string)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what was read counts
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if space, err := os.Readlink(File(pid, "ns/pid")); err == nil {
			f(pid, space)
		}
	}
}

// Children are the processes that any thread of a process has started: who forks
// is the parent.
func Children(pid int) (list []int) {
	dir := File(pid, "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		data, _ := os.ReadFile(filepath.Join(dir, thread.Name(), "children")) // it may have ended
		for word := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
