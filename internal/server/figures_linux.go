package server

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bailey-sandbox/bailey/internal/processes"
)

// figures are what /metrics shows of sandboxes. Those of processes are read from
// /proc when somebody asks, for all sandboxes in one go, and not more often than
// once in a second. No figure is of a single sandbox: there may be thousands, each
// for a moment only.
type figures struct {
	server  *Server
	made    prometheus.Histogram
	started prometheus.Histogram

	mu    sync.Mutex
	taken time.Time
	now   used            // of all sandboxes together
	seen  map[string]used // of each, when it was last looked at
	total used            // grows only
}

var _ prometheus.Collector = (*figures)(nil)

// used is what processes use, or have used.
type used struct {
	cpu           time.Duration
	read, written int64 // bytes from and to disks
	memory        int64
	processes     int
	threads       int // of these
	mounts        int
}

var (
	memoryFigure    = prometheus.NewDesc("bailey_sandbox_memory_bytes", "Memory that processes of all sandboxes have in use (RSS).", nil, nil)
	processesFigure = prometheus.NewDesc("bailey_sandbox_processes", "Processes of all sandboxes, the first of each included.", nil, nil)
	mountsFigure    = prometheus.NewDesc("bailey_sandbox_mounts", "Mounts in all sandboxes.", nil, nil)
	cpuFigure       = prometheus.NewDesc("bailey_sandbox_cpu_seconds_total", "Processor time of sandboxes, without those that came and went between two scrapes.", nil, nil)
	readFigure      = prometheus.NewDesc("bailey_sandbox_read_bytes_total", "Bytes that sandboxes read from disks, without those that came and went between two scrapes.", nil, nil)
	writtenFigure   = prometheus.NewDesc("bailey_sandbox_written_bytes_total", "Bytes that sandboxes wrote to disks, without those that came and went between two scrapes.", nil, nil)
	execsFigure     = prometheus.NewDesc("bailey_execs_running", "Commands under way, those of sessions included.", nil, nil)
)

// buckets are from a quarter of a millisecond to ten seconds.
var buckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newFigures(s *Server) *figures {
	return &figures{
		server:  s,
		made:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bailey_sandbox_create_seconds", Help: "Time to make a sandbox and start it, those of batches and forks included.", Buckets: buckets}),
		started: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "bailey_exec_start_seconds", Help: "Time to start a command in a sandbox, without the command's own.", Buckets: buckets}),
		seen:    make(map[string]used),
	}
}

// Collector has the server's figures for Prometheus.
func (s *Server) Collector() prometheus.Collector { return s.figures }

// Describe implements prometheus.Collector.
func (f *figures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryFigure, processesFigure, mountsFigure, cpuFigure, readFigure, writtenFigure, execsFigure} {
		to <- d
	}
	f.made.Describe(to)
	f.started.Describe(to)
	f.server.pool.waits.Describe(to)
	f.server.pool.takes.Describe(to)
}

// Collect implements prometheus.Collector.
func (f *figures) Collect(to chan<- prometheus.Metric) {
	now, total := f.take()
	for _, g := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{memoryFigure, prometheus.GaugeValue, float64(now.memory)},
		{processesFigure, prometheus.GaugeValue, float64(now.processes)},
		{mountsFigure, prometheus.GaugeValue, float64(now.mounts)},
		{cpuFigure, prometheus.CounterValue, total.cpu.Seconds()},
		{readFigure, prometheus.CounterValue, float64(total.read)},
		{writtenFigure, prometheus.CounterValue, float64(total.written)},
		{execsFigure, prometheus.GaugeValue, float64(f.server.execsUnderWay())},
	} {
		to <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value)
	}
	f.made.Collect(to)
	f.started.Collect(to)
	f.server.pool.waits.Collect(to)
	f.server.pool.takes.Collect(to)
}

func (s *Server) execsUnderWay() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.execs {
		if !isClosed(e.done) {
			n++
		}
	}
	return n
}

const leastBetween = time.Second

// take looks at all sandboxes, unless that was done just now.
func (f *figures) take() (now, total used) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.taken) >= leastBetween {
		f.add(census(f.server.firsts()))
		f.taken = time.Now()
	}
	return f.now, f.total
}

// add takes over what was found. The mutex is held.
func (f *figures) add(found map[string]*used) {
	seen := make(map[string]used, len(found))
	f.now = used{}
	for id, u := range found {
		before := f.seen[id]
		f.now.memory += u.memory
		f.now.processes += u.processes
		f.now.mounts += u.mounts
		// A process that nobody waited for takes its time with it: what is less
		// than before adds nothing.
		f.total.cpu += max(u.cpu-before.cpu, 0)
		f.total.read += max(u.read-before.read, 0)
		f.total.written += max(u.written-before.written, 0)
		seen[id] = *u
	}
	f.seen = seen
}

// firsts are the first processes of sandboxes that run.
func (s *Server) firsts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := make(map[string]int, len(s.boxes))
	for id, b := range s.boxes {
		pids[id] = b.pid
	}
	return pids
}

// census adds up what the processes of each sandbox use. They are told by their
// pid namespace, so that one look at every process is enough for all sandboxes.
func census(firsts map[string]int) map[string]*used {
	found := make(map[string]*used, len(firsts))
	spaces := make(map[string]*used, len(firsts))
	for id, pid := range firsts {
		space, err := os.Readlink(processes.File(pid, "ns/pid"))
		if err != nil {
			continue // it has just ended
		}
		mounts, _ := os.ReadFile(processes.File(pid, "mountinfo"))
		u := &used{mounts: bytes.Count(mounts, []byte("\n"))}
		found[id], spaces[space] = u, u
	}
	if len(spaces) == 0 {
		return found
	}
	processes.Each(func(pid int, space string) {
		if u := spaces[space]; u != nil {
			u.count(pid)
		}
	})
	return found
}

// count adds a process. One that ends meanwhile is left out.
func (u *used) count(pid int) {
	stat, err := os.ReadFile(processes.File(pid, "stat"))
	if err != nil {
		return
	}
	cpu, memory, threads, ok := parseStat(stat)
	if !ok {
		return
	}
	u.processes++
	u.threads += threads
	u.cpu += cpu
	u.memory += memory
	if io, err := os.ReadFile(processes.File(pid, "io")); err == nil {
		read, written := parseIO(io)
		u.read += read
		u.written += written
	}
}

// parseStat reads the time that a process, and the children it waited for, have
// used, its memory, and how many threads it has. The program's name, in parentheses, may
// hold anything.
//
//	1234 (name) S 1 1234 1234 0 -1 4194560 … utime stime cutime cstime priority nice num_threads … rss
func parseStat(stat []byte) (cpu time.Duration, memory int64, threads int, ok bool) {
	const (
		utime      = 11 // counted from the state, which is 0
		numThreads = 17
		rss        = 21
		tick       = time.Second / 100
	)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= rss {
		return 0, 0, 0, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes numbers
		return n
	}
	for i := range 4 {
		cpu += time.Duration(number(utime+i)) * tick
	}
	return cpu, number(rss) * int64(os.Getpagesize()), int(number(numThreads)), true
}

// parseIO reads what a process, and the children it waited for, moved from and to
// disks.
//
//	rchar: 323934931
//	…
//	read_bytes: 4096
//	write_bytes: 8192
//	cancelled_write_bytes: 0
func parseIO(io []byte) (read, written int64) {
	for line := range bytes.Lines(io) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		n, _ := strconv.ParseInt(string(value), 10, 64)
		switch string(name) {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}
