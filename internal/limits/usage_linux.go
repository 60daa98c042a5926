package limits

import (
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage reads what the group has used so far. After the end of everything in it,
// before Close, that is all.
func (g *Group) Usage() Usage {
	u := Unknown()
	for i := range g.parts {
		p := &g.parts[i]
		if p.unified {
			p.readTwo(&u)
		} else {
			p.readOne(&u)
		}
	}
	return u
}

// UsageAt reads what groups have counted that somebody else made: those of one name, from
// the root of each hierarchy on. How many processes there were is left out, since whoever
// made them knows what is in there besides the command.
func UsageAt(group string) Usage {
	m, err := newMachine()
	if err != nil {
		return Unknown()
	}
	var dirs []hierarchy
	for _, h := range m.hierarchies {
		h.own = path.Join(h.mount, group)
		dirs = append(dirs, h)
	}
	return usageIn(dirs)
}

// UsageOf is UsageAt for the groups that a process is in, which must be its own.
func UsageOf(pid int) (Usage, error) {
	mounts, err := readFile("/proc/self/mountinfo")
	if err != nil {
		return Unknown(), err
	}
	groups, err := readFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return Unknown(), err
	}
	return usageIn(parseLayout(mounts, groups)), nil
}

func usageIn(list []hierarchy) Usage {
	g := &Group{}
	for _, h := range list {
		if h.own == h.mount {
			continue // everybody's
		}
		fd, err := unix.Open(h.own, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has none there
		}
		defer func() { _ = unix.Close(fd) }()
		g.parts = append(g.parts, part{unified: h.unified, dir: h.own, lock: fd})
	}
	u := g.Usage()
	u.Processes, u.Peak = -1, -1
	return u
}

// readTwo reads a group of version 2. A file is missing if its controller is, or
// if the kernel is too old for it.
func (p *part) readTwo(u *Usage) {
	micro := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	stat := p.read("cpu.stat")
	setField(stat, "user_usec", func(n int64) { u.User = micro(n) })
	setField(stat, "system_usec", func(n int64) { u.System = micro(n) })
	setField(stat, "throttled_usec", func(n int64) { u.Throttled = micro(n) })
	setNumber(p.read("memory.current"), func(n int64) { u.Memory = n })
	setNumber(p.read("memory.peak"), func(n int64) { u.PeakMemory = n })
	setField(p.read("memory.events"), "oom_kill", func(n int64) { u.Killed = int(n) })
	if io := p.read("io.stat"); io != "" {
		u.Read, u.Written = transferred(io)
	}
	p.readPids(u)
}

// readOne reads a group of version 1, which has the files of some controllers.
func (p *part) readOne(u *Usage) {
	setNumber(p.read("cpuacct.usage_user"), func(n int64) { u.User = time.Duration(n) })
	setNumber(p.read("cpuacct.usage_sys"), func(n int64) { u.System = time.Duration(n) })
	setField(p.read("cpu.stat"), "throttled_time", func(n int64) { u.Throttled = time.Duration(n) })
	setNumber(p.read("memory.usage_in_bytes"), func(n int64) { u.Memory = n })
	setNumber(p.read("memory.max_usage_in_bytes"), func(n int64) { u.PeakMemory = n })
	setField(p.read("memory.oom_control"), "oom_kill", func(n int64) { u.Killed = int(n) })
	if io := p.read("blkio.throttle.io_service_bytes_recursive"); io != "" {
		u.Read, u.Written = transferred(io)
	}
	p.readPids(u)
}

// readPids reads what both versions have. Process 1 is not counted.
func (p *part) readPids(u *Usage) {
	setNumber(p.read("pids.current"), func(n int64) { u.Processes = max(int(n)-1, 0) })
	setNumber(p.read("pids.peak"), func(n int64) { u.Peak = max(int(n)-1, 0) })
	setField(p.read("pids.events"), "max", func(n int64) { u.Refused = int(n) })
}

func setNumber(text string, set func(int64)) {
	if n, ok := number(text); ok {
		set(n)
	}
}

func setField(text, name string, set func(int64)) {
	if n, ok := field(text, name); ok {
		set(n)
	}
}

// Complete fills in what no group has counted from what the kernel tells about
// every process at its end, with those that it has waited for.
func (u *Usage) Complete(r *unix.Rusage) {
	if u.User == 0 && u.System == 0 {
		u.User, u.System = time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
	}
	if u.PeakMemory < 0 {
		u.PeakMemory, u.PeakOfOne = r.Maxrss<<10, true
	}
	const block = 512
	if u.Read < 0 {
		u.Read, u.Written = r.Inblock*block, r.Oublock*block
	}
}
