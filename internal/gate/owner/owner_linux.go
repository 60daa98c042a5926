package owner

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxLooks bounds how many descriptors are looked at for one answer.
	maxLooks = 4096
	// maxRecent is how many processes are tried first: who made a connection is
	// likely to make another.
	maxRecent = 8
)

// Finder finds processes of one sandbox. It may be used by several goroutines at
// once.
type Finder struct {
	root int // first process of the sandbox

	mu     sync.Mutex // of all below: one question at a time
	diag   int        // socket of sock_diag in the sandbox's network
	seq    uint32
	recent []int
}

// New makes a Finder of the first process of a sandbox and a netlink socket of
// the family sock_diag that was made in its network. It takes the socket over.
func New(root int, diag *os.File) (*Finder, error) {
	defer diag.Close()
	fd, err := unix.FcntlInt(diag.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Finder{root: root, diag: fd}, nil
}

// TCP returns the process with the socket that is connected from one address to
// another, as that process sees them.
func (f *Finder) TCP(from, to netip.AddrPort) Process {
	return f.find(unix.IPPROTO_TCP, from, to)
}

// UDP returns the process with the socket that sent a datagram. In this question
// the kernel takes the two ends the other way round.
func (f *Finder) UDP(from, to netip.AddrPort) Process {
	return f.find(unix.IPPROTO_UDP, to, from)
}

func (f *Finder) find(protocol byte, from, to netip.AddrPort) Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	inode := f.inode(protocol, from, to)
	if inode == 0 {
		return Process{}
	}
	pid := f.holder("socket:[" + strconv.FormatUint(uint64(inode), 10) + "]")
	if pid == 0 {
		return Process{}
	}
	f.recent = append([]int{pid}, slices.DeleteFunc(f.recent, func(p int) bool { return p == pid })...)
	f.recent = f.recent[:min(len(f.recent), maxRecent)]
	return Named(pid)
}

// Named returns a process with the name of its program.
func Named(pid int) Process {
	if pid == 0 {
		return Process{}
	}
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm") // it may have ended
	return Process{pid, string(bytes.TrimSuffix(data, []byte("\n")))}
}

// Sizes and places in messages of sock_diag.
const (
	requestSize = unix.NLMSG_HDRLEN + 56
	byFamily    = 20 // SOCK_DIAG_BY_FAMILY
	inodeAt     = unix.NLMSG_HDRLEN + 68
	answerSize  = unix.NLMSG_HDRLEN + 72
)

// inode asks for the number of a socket, which is 0 if there is none. The kernel
// answers before the request returns.
func (f *Finder) inode(protocol byte, from, to netip.AddrPort) uint32 {
	f.seq++
	if unix.Sendto(f.diag, request(f.seq, protocol, from, to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return 0
	}
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(f.diag, buf, unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < unix.NLMSG_HDRLEN {
			return 0
		}
		ne := binary.NativeEndian
		if ne.Uint32(buf[8:]) != f.seq {
			continue // an answer that came too late
		}
		if n < answerSize || ne.Uint16(buf[4:]) != byFamily {
			return 0
		}
		return ne.Uint32(buf[inodeAt:])
	}
}

func request(seq uint32, protocol byte, from, to netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	ne, be := binary.NativeEndian, binary.BigEndian
	ne.PutUint32(b, requestSize)
	ne.PutUint16(b[4:], byFamily)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], seq)
	r := b[unix.NLMSG_HDRLEN:]
	source, target := from.Addr().Unmap(), to.Addr().Unmap()
	r[0], r[1] = unix.AF_INET6, protocol
	if source.Is4() {
		r[0] = unix.AF_INET
	}
	ne.PutUint32(r[4:], 1<<32-1) // in whatever state
	be.PutUint16(r[8:], from.Port())
	be.PutUint16(r[10:], to.Port())
	copy(r[12:28], source.AsSlice())
	copy(r[28:44], target.AsSlice())
	ne.PutUint64(r[48:], 1<<64-1) // no cookie
	return b
}

// holder returns a process of the sandbox that has a descriptor of this name.
func (f *Finder) holder(link string) int {
	looks := maxLooks
	for _, pid := range f.recent {
		if holds(pid, link, &looks) {
			return pid
		}
	}
	queue := children(f.root)
	for len(queue) > 0 && looks > 0 {
		pid := queue[0]
		queue = queue[1:]
		if holds(pid, link, &looks) {
			return pid
		}
		queue = append(queue, children(pid)...)
	}
	return 0
}

func holds(pid int, link string, looks *int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(max(*looks, 1)) // what could be read is better than nothing
	*looks -= len(names) + 1
	buf := make([]byte, 64)
	for _, name := range names {
		if n, err := unix.Readlink(filepath.Join(dir, name), buf); err == nil && string(buf[:n]) == link {
			return true
		}
	}
	return false
}

// children are those of every thread: who forks is the parent.
func children(pid int) (list []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		data, _ := os.ReadFile(filepath.Join(dir, thread.Name(), "children")) // it may have ended
		for _, word := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
