package limits

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Freezer holds the processes of a sandbox where they are.
type Freezer struct {
	part part
	own  bool // the group is there for this alone
}

// ErrNoFreezer says that nothing here can hold processes.
var ErrNoFreezer = errors.New("this machine has no control group in which this user could hold processes; run the server as root, or with a delegated group (Delegate=yes in its unit)")

// Freeze holds all processes that list names, also those that they start
// meanwhile, and returns when all stand still. The group is the sandbox's own, or
// nil.
func Freeze(g *Group, list func() []int) (*Freezer, error) {
	m, err := newMachine()
	if err != nil {
		return nil, err
	}
	f, err := newFreezer(m, g)
	if err != nil {
		return nil, err
	}
	if err := f.freeze(list); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// SweepFrozen ends what owners that were killed have left frozen. In version 2 the groups
// of limits are the same, and are swept with them.
func SweepFrozen() {
	m, err := newMachine()
	if err != nil {
		return
	}
	if h := m.holder("freezer"); h != nil && !h.unified {
		sweepOnce(h.own, "")
	}
}

// newFreezer finds a group. Version 1 has a hierarchy for it; in version 2 every
// group can, and a process is in one only, so that it must be the one that holds
// the limits if there is such.
func newFreezer(m *machine, g *Group) (*Freezer, error) {
	if h := m.holder("freezer"); h != nil && !h.unified {
		dir, lock, err := makeLocked(h.own)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoFreezer, err)
		}
		startRemover()
		return &Freezer{part: part{dir: dir, lock: lock}, own: true}, nil
	}
	if g != nil {
		for _, p := range g.parts {
			if !p.unified {
				continue
			}
			lock, err := unix.Dup(p.lock)
			if err != nil {
				return nil, err
			}
			unix.CloseOnExec(lock)
			p.lock = lock
			return &Freezer{part: p}, nil
		}
	}
	h := m.unified()
	if h == nil {
		return nil, ErrNoFreezer
	}
	fresh := &Group{}
	if err := fresh.place(m, nil, false, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFreezer, err)
	}
	startRemover()
	return &Freezer{part: fresh.parts[0], own: true}, nil
}

// freeze closes the group first: who enters it then is held, so that none can
// start another one outside for ever.
func (f *Freezer) freeze(list func() []int) error {
	if err := f.set(true); err != nil {
		return err
	}
	if f.own {
		if err := f.fill(list); err != nil {
			return err
		}
	}
	return f.settle()
}

func (f *Freezer) set(frozen bool) error {
	file, value := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	if f.part.unified {
		file, value = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	if err := f.part.write(file, value); err != nil {
		return fmt.Errorf("limits: %s: %w", path.Join(f.part.dir, file), err)
	}
	return nil
}

// fill moves processes into the group until none is left outside. One that has ended, and
// whose parent stands still before it takes notice of that, is never seen in there.
func (f *Freezer) fill(list func() []int) error {
	moved := make(map[int]bool)
	for {
		inside := strings.Fields(f.part.read("cgroup.procs"))
		missing := false
		for _, pid := range list() {
			text := strconv.Itoa(pid)
			if moved[pid] || slices.Contains(inside, text) {
				continue
			}
			moved[pid] = true
			err := f.part.write("cgroup.procs", text)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("limits: enter %s: %w", f.part.dir, err)
			}
			missing = missing || err == nil
		}
		if !missing {
			return nil
		}
	}
}

// settle waits until all stand still. Version 2 tells; version 1 has to be asked,
// and each question makes it try again.
func (f *Freezer) settle() error {
	const patience = 5 * time.Second // some process may be stuck in the kernel
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if f.stands() {
			return nil
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return errors.New("limits: some process does not stand still; it may wait for a disk")
		}
	}
}

func (f *Freezer) stands() bool {
	if f.part.unified {
		n, ok := field(f.part.read("cgroup.events"), "frozen")
		return ok && n == 1
	}
	return strings.TrimSpace(f.part.read("freezer.state")) == "FROZEN"
}

// Close lets everything go on. The processes of a group of its own go back to
// where groups begin.
func (f *Freezer) Close() {
	_ = f.set(false) // a group that is gone holds nobody
	if f.own {
		f.empty()
		done := make(chan struct{})
		remover.work <- func() { f.part.remove(); close(done) }
		<-done
	}
	_ = unix.Close(f.part.lock)
}

// empty moves the processes out of the group, so that it can be removed while
// they run.
func (f *Freezer) empty() {
	outer := path.Dir(f.part.dir)
	for {
		inside := strings.Fields(f.part.read("cgroup.procs"))
		moved := false
		for _, pid := range inside {
			moved = writeFile(path.Join(outer, "cgroup.procs"), pid) == nil || moved
		}
		if !moved {
			return
		}
	}
}
