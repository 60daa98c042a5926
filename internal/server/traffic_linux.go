package server

import (
	"os"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/processes"
)

// outside is the number that a process of the sandbox has on the host, of one that
// process 1 has started; 0 if it is not found.
func (b *box) outside(inside int) int {
	if b.partial { // it has a kernel of its own, with processes that the host does not know
		return 0
	}
	for _, pid := range processes.Children(b.pid) {
		status, err := os.ReadFile(processes.File(pid, "status"))
		if err == nil && innermost(string(status)) == inside {
			return pid
		}
	}
	return 0
}

// innermost reads the number that a process has in its own namespace, which is the last:
//
//	NSpid:	4711	2
func innermost(status string) int {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0
			}
			n, _ := strconv.Atoi(fields[len(fields)-1]) // the kernel's own number
			return n
		}
	}
	return 0
}

// traffic is what a process, and those of its children that it waited for, have read from
// disks and written to them; 0 where the kernel does not tell.
func traffic(pid int) (read, written int64) {
	if pid == 0 {
		return 0, 0
	}
	data, err := os.ReadFile(processes.File(pid, "io"))
	if err != nil {
		return 0, 0
	}
	return disk(string(data))
}

// disk reads that from what the kernel says of a process:
//
//	rchar: 323934931
//	read_bytes: 4096
//	write_bytes: 323932160
func disk(io string) (read, written int64) {
	for line := range strings.Lines(io) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseInt(value, 10, 64) // the kernel's own number
		switch name {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}
