package server

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What is left free on the machine: below it nothing more is made.
const (
	reserveMemory    = 256 << 20
	reserveDisk      = 256 << 20
	reserveProcesses = 256
	perSandbox       = 4 // descriptors of the server and of the keeper
	reserveFiles     = 256
)

// room says whether the machine has what so many more sandboxes need. Where nothing is
// known of something, nothing is refused for it.
func (s *Server) room(n int) error {
	have := s.count()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil && uint64((have+n)*perSandbox+reserveFiles) > lim.Cur {
		return exhausted("descriptors", fmt.Errorf("%d sandboxes need more open files than the limit of %d", have+n, lim.Cur), "raise it: LimitNOFILE= in the unit, or ulimit -n, and start the server again")
	}
	if free, known := s.memory(); known && free < reserveMemory {
		return exhausted("memory", fmt.Errorf("the machine has only %d MB of memory left", free>>20), "destroy sandboxes that are not needed")
	}
	if left, known := s.processes(); known && left < n+reserveProcesses {
		return exhausted("processes", fmt.Errorf("the machine has place for only %d more processes and threads", left),
			"destroy sandboxes that are not needed, or raise TasksMax= in the unit, or kernel.pid_max")
	}
	if free, known := s.disk(); known && free < reserveDisk {
		return exhausted("disk", fmt.Errorf("the disk of %s has only %d MB left", s.config.Dir, free>>20), "remove sandboxes, snapshots and codebases that are not needed")
	}
	return nil
}

// memory is what the machine has left.
func (s *Server) memory() (bytes int64, known bool) {
	if s.config.Memory != nil {
		return s.config.Memory()
	}
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return available(string(data))
}

// available reads how much memory is left:
//
//	MemAvailable:   12345678 kB
func available(meminfo string) (bytes int64, ok bool) {
	for line := range strings.Lines(meminfo) {
		rest, found := strings.CutPrefix(line, "MemAvailable:")
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return n << 10, err == nil
	}
	return 0, false
}

// disk is what can still be written where sandboxes write.
func (s *Server) disk() (bytes int64, known bool) {
	if s.config.Disk != nil {
		return s.config.Disk()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.config.Dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// processes is how many more processes and threads there may be: of the machine, and in
// the control groups of the server, whose keeper and sandboxes are there too.
func (s *Server) processes() (left int, known bool) {
	if s.config.Processes != nil {
		return s.config.Processes()
	}
	left = math.MaxInt
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if now, ok := tasks(string(load)); ok {
			for _, name := range []string{"pid_max", "threads-max"} {
				if most, ok := number("/proc/sys/kernel/" + name); ok {
					left = min(left, most-now)
				}
			}
		}
	}
	if data, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for dir := unifiedGroup(string(data)); len(dir) > 1; dir = filepath.Dir(dir) {
			most, limited := number("/sys/fs/cgroup" + dir + "/pids.max") // or the word "max"
			now, counted := number("/sys/fs/cgroup" + dir + "/pids.current")
			if limited && counted {
				left = min(left, most-now)
			}
		}
	}
	return left, left < math.MaxInt
}

// tasks reads how many processes and threads there are, which is after the slash:
//
//	0.42 0.35 0.30 2/244 27722
func tasks(loadavg string) (n int, ok bool) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(all)
	return n, err == nil
}

// unifiedGroup reads the control group of version 2, or "":
//
//	0::/system.slice/bailey-server.service
func unifiedGroup(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path
		}
	}
	return ""
}

func number(path string) (n int, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}
