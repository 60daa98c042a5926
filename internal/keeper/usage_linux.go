package keeper

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/processes"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
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
		d := b.describe()
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

// describe is what needs no measuring. The keeper's mutex is held.
func (b *box) describe() Box {
	d := Box{
		Name: b.name, Pid: b.resident.Pid, Dir: b.spec.Dir, Age: time.Since(b.created),
		Linger: b.linger, Leaving: b.leaving, Ports: b.ports,
	}
	if i := b.spec.Image; i != nil {
		d.Image = &spec.Image{Name: i.Name, ID: i.ID, Dir: i.Dir, User: b.spec.Identity.Shown}
	}
	for _, c := range b.commands {
		d.Commands = append(d.Commands, c.argv)
	}
	slices.SortFunc(d.Commands, slices.Compare)
	if b.users == 0 && !b.used.IsZero() {
		d.Idle = time.Since(b.used)
	}
	var last *event.Event
	if d.Denials, last = b.recent.Denials(); last != nil {
		d.LastDenial = event.Summary([]event.Event{*last})[0]
	}
	return d
}

// measure adds up what the processes of each sandbox use. They are told by their
// pid namespace.
func measure(boxes []Box) {
	tallies := make(map[string]*tally, len(boxes))
	for i := range boxes {
		if ns, err := os.Readlink(processes.File(boxes[i].Pid, "ns/pid")); err == nil {
			tallies[ns] = &tally{box: &boxes[i], sockets: connected(boxes[i].Pid)}
		}
	}
	if len(tallies) == 0 {
		return
	}
	processes.Each(func(pid int, ns string) {
		if t := tallies[ns]; t != nil {
			t.add(pid)
		}
	})
}

// tally adds up what one sandbox uses.
type tally struct {
	box     *Box
	sockets map[string]bool // connected ones of its network that were not counted yet
}

func (t *tally) add(pid int) {
	stat, err := os.ReadFile(processes.File(pid, "stat"))
	if err != nil {
		return
	}
	cpu, memory := parseStat(stat)
	b := t.box
	b.CPU += cpu
	b.Memory += memory
	if pid != b.Pid {
		b.Processes++
	}
	if len(t.sockets) > 0 {
		t.addSockets(pid)
	}
}

// addSockets counts connections. Several processes may hold the same.
func (t *tally) addSockets(pid int) {
	dir, err := os.Open(processes.File(pid, "fd"))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		link, err := os.Readlink(processes.File(pid, "fd/"+name))
		if err == nil && t.sockets[link] {
			delete(t.sockets, link)
			t.box.Connections++
		}
	}
}

// connected are the sockets with a connection in a process's network, as links of
// descriptors call them.
func connected(pid int) map[string]bool {
	sockets := make(map[string]bool)
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		table, err := os.ReadFile(processes.File(pid, name))
		if err != nil {
			continue
		}
		parseConnected(table, sockets)
	}
	return sockets
}

// parseConnected reads /proc/PID/net/tcp.
//
//	sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//	 0: 0100007F:03AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 …
func parseConnected(table []byte, sockets map[string]bool) {
	const (
		state       = 3
		inode       = 9
		established = "01"
	)
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) > inode && string(fields[state]) == established {
			sockets["socket:["+string(fields[inode])+"]"] = true
		}
	}
}

// processes are those beside a sandbox's process 1.
func inside(first int) []Process {
	namespace, err := os.Readlink(processes.File(first, "ns/pid"))
	if err != nil {
		return nil
	}
	var list []Process
	processes.Each(func(pid int, ns string) {
		if ns != namespace || pid == first {
			return
		}
		stat, err := os.ReadFile(processes.File(pid, "stat"))
		if err != nil {
			return
		}
		p := Process{Pid: pid, Argv: arguments(pid, stat)}
		p.CPU, p.Memory = parseStat(stat)
		list = append(list, p)
	})
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.Pid, b.Pid) })
	return list
}

// arguments are those of a process, or the name of one that has none left.
func arguments(pid int, stat []byte) []string {
	line, err := os.ReadFile(processes.File(pid, "cmdline"))
	if err == nil && len(line) > 0 {
		return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	}
	_, name, _ := bytes.Cut(stat[:bytes.LastIndexByte(stat, ')')], []byte("("))
	return []string{"(" + string(name) + ")"}
}

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
