package broker

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessName is the name of the program that a thread belongs to, as the kernel
// has it: threads often have names of their own.
func ProcessName(thread int) string {
	if pid, err := strconv.Atoi(field(readAbout(thread, "status"), "Tgid")); err == nil {
		thread = pid
	}
	return strings.TrimSuffix(readAbout(thread, "comm"), "\n")
}

// maxAncestors is more than any tree of processes has that is not made to be
// long.
const maxAncestors = 64

// Ancestors are the process of a thread and those it descends from, up to but
// without the first one of its sandbox, as they are numbered inside.
func Ancestors(thread int) []uint32 {
	var list []uint32
	for pid := thread; len(list) < maxAncestors; {
		status := readAbout(pid, "status")
		inside := field(status, "NStgid")
		n, err := strconv.ParseUint(inside[strings.LastIndexByte(inside, '\t')+1:], 10, 32)
		if err != nil || n <= 1 {
			break
		}
		list = append(list, uint32(n))
		if pid, err = strconv.Atoi(field(status, "PPid")); err != nil || pid == 0 {
			break
		}
	}
	return list
}

// readAbout returns the beginning of a file about a process, or "" if that is
// gone.
func readAbout(pid int, name string) string {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [2048]byte
	n, _ := unix.Read(fd, buf[:])
	return string(buf[:max(n, 0)])
}
