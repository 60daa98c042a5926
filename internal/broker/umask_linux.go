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
	if k, ok := m.known[n.pid]; ok {
		if unix.PidfdSendSignal(k.pidfd, 0, nil, 0) == nil {
			return k.mask
		}
		m.forget(n.pid)
	}
	mask := readMask(n)
	m.remember(n.pid, mask)
	return mask
}

// umask is performed by the kernel, and from then on known here. Threads share
// it, so what is known of others of the process is forgotten.
func (w *worker) umask() answer {
	m := &w.masks
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = true
	m.forgetAll()
	return pass
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
