package keeper

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// list describes the sandboxes.
func (k *Keeper) list() []Box {
	k.mu.Lock()
	var boxes []Box
	residents := make(map[int]*native.Resident)
	for b := range k.all {
		select {
		case <-b.ready:
		default:
			continue // it is being made
		}
		if b.err != nil {
			continue
		}
		d := Box{
			Name: b.name, Pid: b.resident.Pid, Dir: b.spec.Dir, Age: time.Since(b.created),
			Linger: b.linger, Leaving: b.leaving, Ports: b.ports,
		}
		for _, c := range b.commands {
			d.Commands = append(d.Commands, c.argv)
		}
		if b.users == 0 && !b.used.IsZero() {
			d.Idle = time.Since(b.used)
		}
		if b.spec.Limits != nil {
			d.Limits = *b.spec.Limits
			residents[d.Pid] = b.resident
		}
		boxes = append(boxes, d)
	}
	k.mu.Unlock()
	slices.SortFunc(boxes, func(a, b Box) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(b.Age, a.Age)) })
	measure(boxes)
	for i := range boxes {
		if r := residents[boxes[i].Pid]; r != nil {
			if u, ok := r.Used(); ok {
				boxes[i].count(u)
			}
		}
	}
	return boxes
}

// measure adds up what the processes of each sandbox use. They are told by their
// pid namespace.
func measure(boxes []Box) {
	byNamespace := make(map[string]*Box, len(boxes))
	for i := range boxes {
		if ns, err := os.Readlink(procFile(boxes[i].Pid, "ns/pid")); err == nil {
			byNamespace[ns] = &boxes[i]
		}
	}
	if len(byNamespace) == 0 {
		return
	}
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
		ns, err := os.Readlink(procFile(pid, "ns/pid"))
		if err != nil {
			continue
		}
		if b := byNamespace[ns]; b != nil {
			b.add(pid)
		}
	}
}

func (b *Box) add(pid int) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return
	}
	cpu, memory := parseStat(stat)
	b.CPU += cpu
	b.Memory += memory
	if pid != b.Pid {
		b.Processes++
	}
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// parseStat reads time used and memory of /proc/PID/stat. The program's name, in
// parentheses, may hold anything.
//
//	1234 (name) S 1 1234 1234 0 -1 4194560 … utime stime … rss
func parseStat(stat []byte) (cpu time.Duration, memory int64) {
	const (
		utime = 11 // counted from the state, which is 0
		stime = 12
		rss   = 21
		tick  = time.Second / 100
	)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= rss {
		return 0, 0
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes numbers
		return n
	}
	return time.Duration(number(utime)+number(stime)) * tick, number(rss) * int64(os.Getpagesize())
}
