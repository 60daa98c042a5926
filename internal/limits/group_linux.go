package limits

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Group is the control group of one sandbox: a directory in each hierarchy that
// holds one of its limits. Its methods may not be called at the same time, but
// for Usage.
type Group struct {
	parts []part
}

// part is a group in one hierarchy.
type part struct {
	unified     bool
	controllers []string // that it was made for
	dir         string
	lock        int // a descriptor of dir; who holds it owns the group
}

// accounted are the controllers that only count. Both versions are named; what a
// machine lacks is left out.
var accounted = []string{"memory", "pids", "cpuacct", "blkio", "io"}

// Open makes a group with the limits and puts a process into it, which must not
// have started any other yet. The calling process may be moved to another group
// itself; see enterScope. With account, more is counted than the limits need, as
// far as the machine can.
//
// What cannot be held is a *spec.Refused, and then there is no group, nor is there
// one that could only count and can not. Process 0 is none: this tells whether
// the limits can be held.
func Open(l *spec.Limits, account bool, pid int) (*Group, error) {
	m, err := newMachine()
	if err != nil {
		return nil, err
	}
	g := &Group{}
	err = g.open(m, l, account, pid)
	if err == nil && len(g.parts) == 0 {
		err = errNothing
	}
	if err == nil {
		err = g.configure(l)
	}
	if err == nil && pid > 0 {
		err = g.add(pid)
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	startRemover()
	return g, nil
}

var errNothing = errors.New("limits: nothing can be counted here")

// Check says which limits this machine cannot hold for this user, by trying.
func Check(l *spec.Limits) error {
	if !l.NeedGroup() {
		return nil
	}
	g, err := Open(l, false, 0)
	if err == nil {
		g.Close()
	}
	return err
}

// open makes the directories.
func (g *Group) open(m *machine, l *spec.Limits, account bool, pid int) error {
	var refused spec.Refused
	var unified []string
	l.Each(func(key, value string) {
		c := strings.TrimPrefix(key, "resources.")
		if c == "disk" {
			return
		}
		h := m.holder(c)
		switch {
		case h == nil:
			refused.Reasons = append(refused.Reasons, &spec.Unsupported{Key: key, Value: value, Reason: m.absence(c), Fix: fixKernel})
		case h.unified:
			unified = append(unified, c)
		default:
			if err := g.make(h, h.own, c); err != nil {
				reason, fix := m.explain(h, err)
				refused.Reasons = append(refused.Reasons, &spec.Unsupported{Key: key, Value: value, Reason: reason, Fix: fix})
			}
		}
	})
	if len(unified) > 0 && len(refused.Reasons) == 0 {
		if err := g.place(m, unified, account, pid); err != nil {
			reason, fix := m.explain(m.unified(), err)
			l.Each(func(key, value string) {
				if slices.Contains(unified, strings.TrimPrefix(key, "resources.")) {
					refused.Reasons = append(refused.Reasons, &spec.Unsupported{Key: key, Value: value, Reason: reason, Fix: fix})
				}
			})
		}
	}
	if len(refused.Reasons) > 0 {
		return &refused
	}
	if account {
		g.count(m)
	}
	return nil
}

// count adds hierarchies of version 1 that count what the limits do not need.
func (g *Group) count(m *machine) {
	for _, c := range accounted {
		if h := m.holder(c); h != nil && !h.unified && !g.has(c) {
			_ = g.make(h, h.own, c) // what is not counted is not known
		}
	}
	if h := m.unified(); h != nil && len(h.controllers) > 0 && !slices.ContainsFunc(g.parts, func(p part) bool { return p.unified }) {
		_ = g.walk(m, h, nil, true)
	}
}

func (g *Group) has(controller string) bool {
	return slices.ContainsFunc(g.parts, func(p part) bool { return slices.Contains(p.controllers, controller) })
}

// make makes a directory for controllers below a group, unless a hierarchy that
// they share has one already.
func (g *Group) make(h *hierarchy, below string, controllers ...string) error {
	for i := range g.parts {
		if p := &g.parts[i]; path.Dir(p.dir) == below {
			p.controllers = append(p.controllers, controllers...)
			return nil
		}
	}
	if h.readOnly {
		return unix.EROFS
	}
	dir, lock, err := makeLocked(below)
	if err != nil {
		return err
	}
	g.parts = append(g.parts, part{h.unified, controllers, dir, lock})
	sweepOnce(below, dir)
	return nil
}

// prefix begins the names of all groups of this package, and of nothing else: who
// sweeps kills what is left in them.
const prefix = "bailey-group-"

// makeLocked makes a new group and takes the lock on it. Between the two somebody
// may take it for one that was left behind, and remove it; then another is made.
func makeLocked(below string) (dir string, lock int, err error) {
	for range 16 {
		var random [8]byte
		if _, err := unix.Getrandom(random[:], 0); err != nil {
			return "", -1, err
		}
		dir := fmt.Sprintf("%s/%s%x", below, prefix, random)
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return "", -1, err
		}
		if lock, err := lockDir(dir); err == nil {
			return dir, lock, nil
		}
		_ = unix.Rmdir(dir) // unless that somebody has done so
	}
	return "", -1, errors.New("groups vanish as soon as they are made")
}

// lockDir takes the lock on a group that exists, if nobody has it.
func lockDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := takeLock(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// takeLock takes the lock on an open group. Whoever had it before may have removed
// the group meanwhile; then there is none.
func takeLock(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	return unix.Faccessat(fd, "cgroup.procs", unix.F_OK, 0)
}

// period is the time, in microseconds, over which processor time is shared out.
const period = 100_000

// setting is a file of a group and what is written to it.
type setting struct {
	controller  string
	file, value string
	optional    bool // kernels without swap lack it
}

// settings are the files that hold the limits.
func settings(l *spec.Limits, unified bool) (list []setting) {
	add := func(controller, one, two, value string, optional bool) {
		file := one
		if unified {
			file = two
		}
		list = append(list, setting{controller, file, value, optional})
	}
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		add("memory", "memory.limit_in_bytes", "memory.max", bytes, false)
		if swap := "0"; unified {
			add("memory", "", "memory.swap.max", swap, true)
		} else {
			add("memory", "memory.memsw.limit_in_bytes", "", bytes, true)
		}
	}
	if l.CPU > 0 {
		quota := strconv.FormatInt(l.CPU*period/1000, 10)
		if unified {
			quota += " " + strconv.Itoa(period)
		} else {
			add("cpu", "cpu.cfs_period_us", "", strconv.Itoa(period), false)
		}
		add("cpu", "cpu.cfs_quota_us", "cpu.max", quota, false)
	}
	if l.Pids > 0 {
		add("pids", "pids.max", "pids.max", strconv.Itoa(l.Pids+1), false) // and process 1
	}
	return list
}

// configure sets the limits.
func (g *Group) configure(l *spec.Limits) error {
	if l == nil {
		return nil
	}
	for i := range g.parts {
		p := &g.parts[i]
		for _, s := range settings(l, p.unified) {
			if !slices.Contains(p.controllers, s.controller) {
				continue
			}
			err := p.write(s.file, s.value)
			if s.optional && errors.Is(err, unix.ENOENT) {
				err = checkSwap()
			}
			if err != nil {
				return refuse(l, s, err)
			}
		}
	}
	return nil
}

// checkSwap refuses a limit on memory that could be evaded by swapping.
func checkSwap() error {
	text, err := readFile("/proc/swaps")
	if err == nil && strings.Count(text, "\n") > 1 { // the first line is a heading
		err = errSwap
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // this kernel has no swap
	}
	return err
}

var errSwap = errors.New("this kernel does not count what is swapped out; boot it with swapaccount=1, or switch swap off")

func refuse(l *spec.Limits, s setting, err error) error {
	var refused spec.Refused
	l.Each(func(key, value string) {
		if strings.TrimPrefix(key, "resources.") == s.controller {
			refused.Reasons = append(refused.Reasons, &spec.Unsupported{
				Key: key, Value: value, Reason: "the kernel does not take it (" + s.file + "): " + err.Error(),
				Fix: "the group around this process may have less; ask for less",
			})
		}
	})
	return &refused
}

// add moves a process into the group. Nothing that it starts can leave it: the
// sandbox sees no control groups.
func (g *Group) add(pid int) error {
	for i := range g.parts {
		if err := g.parts[i].write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("limits: enter %s: %w", g.parts[i].dir, err)
		}
	}
	return nil
}

// Close removes the group. Its processes must have ended; one of version 2 ends
// those that have not.
func (g *Group) Close() {
	done := make(chan struct{})
	remover.work <- func() { g.remove(); close(done) }
	<-done
}

// remover is a thread on which groups are removed. It is there before any of them
// is used: the thread that waits for a sandbox, and those that it starts, may have
// given up the capabilities that it takes.
var remover struct {
	once sync.Once
	work chan func()
}

func startRemover() {
	remover.once.Do(func() {
		remover.work = make(chan func())
		running := make(chan struct{})
		go func() {
			runtime.LockOSThread() // never unlocked
			close(running)
			for work := range remover.work {
				work()
			}
		}()
		<-running
	})
}

func (g *Group) remove() {
	for i := range g.parts {
		p := &g.parts[i]
		p.remove()
		_ = unix.Close(p.lock)
	}
	g.parts = nil
}

// remove removes a group whose lock is held. What is still ending, or stuck, is
// left for the next sweep.
func (p *part) remove() {
	if unix.Rmdir(p.dir) != unix.EBUSY {
		return
	}
	switch {
	case p.unified:
		if p.write("cgroup.kill", "1") == nil && p.awaitEmpty() {
			_ = unix.Rmdir(p.dir)
		}
	case p.release():
		_ = unix.Rmdir(p.dir)
	}
}

// release ends the processes that a killed owner has left frozen in a group of version
// 1: in there they do not even end when they are killed. While they stand still, no
// other process can have one of their numbers. It says whether there were any.
func (p *part) release() bool {
	switch strings.TrimSpace(p.read("freezer.state")) { // no other hierarchy has it
	case "FROZEN", "FREEZING":
	default:
		return false
	}
	var ending []unix.PollFd
	for _, text := range strings.Fields(p.read("cgroup.procs")) {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 { // of another pid namespace
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			ending = append(ending, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = p.write("freezer.state", "THAWED")
	for i := range ending {
		_, _ = unix.Poll(ending[i:i+1], endPatience)
		_ = unix.Close(int(ending[i].Fd))
	}
	return true
}

// endPatience is how many milliseconds a killed process may take to end. Some may be stuck in
// the kernel.
const endPatience = 1000

// awaitEmpty waits until the processes of a killed group are gone, which the
// kernel tells by an event on a file.
func (p *part) awaitEmpty() bool {
	fd, err := unix.Openat(p.lock, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		text, err := readAll(fd)
		if n, ok := field(text, "populated"); err != nil || ok && n == 0 {
			return err == nil
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, endPatience); n == 0 || err != nil && err != unix.EINTR {
			return false
		}
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return false
		}
	}
}

func (p *part) write(file, value string) error {
	fd, err := unix.Openat(p.lock, file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(value))
	return err
}

// read returns a file of the group, or nothing if there is none.
func (p *part) read(file string) string {
	fd, err := unix.Openat(p.lock, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	text, _ := readAll(fd) // what was read counts
	return text
}

// readFile reads a small file, without the poller that package os would start.
func readFile(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return readAll(fd)
}

func readAll(fd int) (string, error) {
	var b []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return string(b), err
		}
		b = append(b, buf[:n]...)
	}
}
