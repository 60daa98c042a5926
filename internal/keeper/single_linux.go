package keeper

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/processes"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// Singles finds the sandboxes of single commands. Nobody keeps them, so they are
// told by their processes: one called bailey of this user, with the same audit log
// as the caller, and its child that is the first process of a namespace. What was
// denied in them stands in that log.
type Singles struct {
	home   string // where the state is
	log    *event.Log
	recent map[launcher]*event.Recent // of those that are there
}

// launcher is a process that cannot be taken for a later one.
type launcher struct {
	pid   int
	ticks uint64 // since the machine began
}

// NewSingles looks for sandboxes that record what happens where the caller does.
func NewSingles() *Singles {
	home, _ := os.UserHomeDir() // without it nothing is recorded
	state := sandbox.StateHome(home)
	return &Singles{home: state, log: event.OpenLog(event.AuditDir(state)), recent: make(map[launcher]*event.Recent)}
}

// Close closes the log.
func (s *Singles) Close() { s.log.Close() }

// List describes the sandboxes that there are.
func (s *Singles) List() []Box {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	found := make(map[launcher]*event.Recent)
	var boxes []Box
	processes.Each(func(pid int, ns string) {
		if ns != own || !s.isLauncher(pid) {
			return
		}
		for _, child := range processes.Children(pid) {
			if b, l, ok := single(pid, child, own); ok {
				boxes = append(boxes, b)
				found[l] = cmp.Or(s.recent[l], &event.Recent{})
			}
		}
	})
	s.recent = found
	s.read(boxes)
	slices.SortFunc(boxes, func(a, b Box) int { return cmp.Compare(b.Age, a.Age) })
	measure(boxes)
	return boxes
}

// isLauncher says whether a process is bailey at work for this user.
func (s *Singles) isLauncher(pid int) bool {
	program, err := os.Readlink(processes.File(pid, "exe"))
	if err != nil || filepath.Base(strings.TrimSuffix(program, " (deleted)")) != "bailey" {
		return false
	}
	data, err := os.ReadFile(processes.File(pid, "environ"))
	if err != nil {
		return false
	}
	var home, state string
	for v := range bytes.SplitSeq(data, []byte{0}) {
		name, value, _ := strings.Cut(string(v), "=")
		switch name {
		case "HOME":
			home = value
		case "XDG_STATE_HOME":
			state = value
		}
	}
	return cmp.Or(absolutePath(state), filepath.Join(home, ".local/state")) == s.home
}

// absolutePath is a path, or nothing where a relative one would not be taken.
func absolutePath(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return ""
}

// single describes the sandbox whose first process is a child of a launcher.
func single(pid, child int, own string) (b Box, l launcher, ok bool) {
	if ns, err := os.Readlink(processes.File(child, "ns/pid")); err != nil || ns == own || !isFirst(child) {
		return b, l, false
	}
	l = launcher{pid, startOf(pid)}
	age, ok := ageOf(l.ticks)
	if !ok {
		return b, l, false
	}
	b = Box{Name: strconv.Itoa(pid), Pid: child, Launcher: pid, Age: age}
	b.Dir, _ = os.Readlink(processes.File(pid, "cwd")) // it may just have ended
	for _, command := range processes.Children(child) {
		if stat, err := os.ReadFile(processes.File(command, "stat")); err == nil {
			b.Commands = append(b.Commands, arguments(command, stat))
			break // the others were left behind by it
		}
	}
	return b, l, true
}

// isFirst says whether a process is number 1 of its namespace.
func isFirst(pid int) bool {
	status, err := os.ReadFile(processes.File(pid, "status"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	return len(numbers) > 1 && numbers[len(numbers)-1] == "1"
}

// clockTick is the unit of /proc/PID/stat.
const clockTick = time.Second / 100

// startOf is when a process began, in ticks since the machine did; 0 if it is gone.
func startOf(pid int) uint64 {
	const start = 19 // counted from the state, which is 0
	stat, err := os.ReadFile(processes.File(pid, "stat"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[start]), 10, 64) // the kernel writes numbers
	return n
}

func ageOf(ticks uint64) (time.Duration, bool) {
	var now unix.Timespec
	if ticks == 0 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0, false
	}
	return max(time.Duration(now.Nano())-time.Duration(ticks)*clockTick, 0), true
}

// read takes what was recorded since the last time, and says what was denied.
func (s *Singles) read(boxes []Box) {
	if len(boxes) == 0 {
		return
	}
	s.log.Since = time.Now().Add(-slices.MaxFunc(boxes, func(a, b Box) int { return cmp.Compare(a.Age, b.Age) }).Age - time.Second)
	of := make(map[string]*event.Recent)
	for l, recent := range s.recent {
		of[strconv.Itoa(l.pid)] = recent
	}
	_ = s.log.Read(func(line event.Line) { // what was read counts
		if line.Event == nil || line.Event.Time.Before(s.log.Since) {
			return
		}
		_, pid, _ := strings.Cut(line.Event.Sandbox, "-")
		if recent := of[pid]; recent != nil {
			recent.Emit(line.Event)
		}
	})
	for i := range boxes {
		b := &boxes[i]
		var last *event.Event
		if b.Denials, last = of[b.Name].Denials(); last != nil {
			b.LastDenial = event.Summary([]event.Event{*last})[0]
		}
	}
}

// Inspect returns what is inside the sandbox of a launcher, without its policy,
// which only the launcher knows.
func (s *Singles) Inspect(b *Box) *Inside {
	inside := &Inside{Processes: inside(b.Pid)}
	for l, recent := range s.recent {
		if l.pid == b.Launcher {
			inside.Events = recent.Events()
		}
	}
	return inside
}

// EndSingle asks the command of a launcher to end, gives it some time, and ends
// the launcher, and with it everything.
func EndSingle(b *Box, grace time.Duration) error {
	fd, err := unix.PidfdOpen(b.Launcher, 0)
	if err != nil {
		return ErrMissing
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, ok := single(b.Launcher, b.Pid, ""); !ok {
		return ErrMissing // the number is somebody else's now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return ErrMissing
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, int(grace.Milliseconds()))
	if n > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
