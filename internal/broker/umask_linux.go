package broker

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// masks knows the file mode mask of every process. It is inherited, and until
// somebody changes it all have the first one's.
type masks struct {
	mu      sync.Mutex
	initial uint32
	changed bool
	known   map[uint32]known
	// changing are threads that were let go on to change their mask, and have not
	// been heard of since: they may not have come to it yet. What is read
	// meanwhile of others that share it must not be kept.
	changing map[uint32]bool
}

// known is the mask of one process, for as long as its descriptor says that it
// is still the same one.
type known struct {
	mask  uint32
	pidfd int
}

// pidfdThread is PIDFD_THREAD: a descriptor of a thread, since Linux 6.9.
const pidfdThread = unix.O_EXCL

// openThread returns a descriptor of a thread, or of its process if it is the
// first and the kernel is older.
func openThread(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, pidfdThread)
	if err != nil {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	return fd, err
}

// maxKnown bounds the descriptors kept.
const maxKnown = 256

// of returns the mask of the caller.
func (m *masks) of(n *notification) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.changed {
		return m.initial
	}
	delete(m.changing, n.pid)
	if k, ok := m.known[n.pid]; ok {
		if unix.PidfdSendSignal(k.pidfd, 0, nil, 0) == nil {
			return k.mask
		}
		m.forget(n.pid)
	}
	mask := readMask(n)
	if !m.isChanging(n.pid) {
		m.remember(n.pid, mask)
	}
	return mask
}

// umask is performed by the kernel. Threads share their mask, so what is known of
// others is forgotten. Of the caller's own the new one is known at once, unless
// somebody else is about to change it too.
func (w *worker) umask(n *notification) answer {
	m := &w.masks
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = true
	m.forgetAll()
	delete(m.changing, n.pid)
	if !m.isChanging(n.pid) {
		m.remember(n.pid, uint32(n.args[0])&0o777)
	}
	if m.changing == nil {
		m.changing = make(map[uint32]bool)
	}
	m.changing[n.pid] = true
	return pass
}

// isChanging says whether another thread that shares the mask of this one may be
// about to change it. Those that have ended are not.
func (m *masks) isChanging(pid uint32) bool {
	const filesystem = 3 // KCMP_FS
	for other := range m.changing {
		order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(other), uintptr(pid), filesystem, 0, 0, 0)
		switch {
		case errno == unix.ESRCH:
			delete(m.changing, other)
		case errno != 0 || order == 0:
			return true
		}
	}
	return false
}

func (m *masks) forgetAll() {
	for pid := range m.known {
		m.forget(pid)
	}
}

func (m *masks) remember(pid, mask uint32) {
	if len(m.known) >= maxKnown {
		for old := range m.known {
			m.forget(old)
			break
		}
	}
	fd, err := openThread(int(pid))
	if err != nil {
		return
	}
	if m.known == nil {
		m.known = make(map[uint32]known)
	}
	m.known[pid] = known{mask, fd}
}

func (m *masks) forget(pid uint32) {
	_ = unix.Close(m.known[pid].pidfd)
	delete(m.known, pid)
}

// readMask asks the kernel. A process that is gone needs none.
func readMask(n *notification) uint32 {
	mask, err := strconv.ParseUint(statusOf(n, "Umask"), 8, 32)
	if err != nil {
		return 0o777
	}
	return uint32(mask)
}
