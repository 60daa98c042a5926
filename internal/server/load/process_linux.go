package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	running "github.com/bailey-sandbox/bailey/internal/processes"
)

// processes are those of the server. They are 0 where they cannot be looked at.
type processes struct{ server, keeper int }

// find asks the kernel who listens at a socket. The keeper is the server's child
// unless an earlier server has started it.
func find(address string) (processes, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		return processes{}, nil
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return processes{}, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return processes{}, err
	}
	var peer *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) { peer, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || failure != nil || peer.Pid == 0 || pss(int(peer.Pid)) == 0 {
		return processes{}, err
	}
	for _, pid := range running.Children(int(peer.Pid)) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), "\x00keeper\x00") {
			return processes{int(peer.Pid), pid}, nil
		}
	}
	return processes{}, nil
}

// inits are the processes of sandboxes: how much each has, and how many there
// are.
func (p processes) inits() (mean int64, n int) {
	var sum int64
	for _, pid := range running.Children(p.keeper) {
		if size := pss(pid); size > 0 {
			sum += size
			n++
		}
	}
	return sum / int64(max(n, 1)), n
}

// pss is a process's share of memory, in KB; 0 if nobody may know.
func pss(pid int) int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	return field(string(data), "Pss:")
}

// kernelMemory is what the kernel has for processes, namespaces, mounts and files
// in memory, of the whole machine, in KB.
func kernelMemory() (sum int64) {
	data, _ := os.ReadFile("/proc/meminfo")
	for _, name := range []string{"Slab:", "KernelStack:", "PageTables:", "Percpu:", "Shmem:"} {
		sum += field(string(data), name)
	}
	return sum
}

// field reads a number of a file in which each has a name:
//
//	Pss:                 512 kB
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// size is what the server holds, by which its growth is told.
func (m *run) size(ctx context.Context) ([]Figure, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	data, err := m.do(r)
	if err != nil {
		return nil, err
	}
	figures := []Figure{{Name: "goroutines of the server", Value: metric(string(data), "go_goroutines")}}
	for _, p := range []struct {
		name string
		pid  int
	}{{"the server", m.processes.server}, {"the keeper", m.processes.keeper}} {
		if p.pid == 0 {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
		figures = append(figures,
			Figure{Name: "memory (RSS) of " + p.name, Value: float64(field(string(status), "VmRSS:")) / 1024, Unit: "MB"},
			Figure{Name: "open files of " + p.name, Value: float64(len(open))})
	}
	return figures, nil
}

// metric reads a figure without labels:
//
//	go_goroutines 12
func metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return 0
}
