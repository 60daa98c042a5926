package broker

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/peer"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// sockets knows which unix sockets may be connected to.
type sockets struct {
	allowed *pattern.Set
	// spellings is what is allowed, and the same folded; nil if nothing is. See
	// sameBelow.
	spellings *pattern.Set

	// names is read-locked while a file gets another name, and locked while a
	// socket gets its first, or anything gets one that is only for some files.
	names sync.RWMutex

	mu sync.Mutex
	// own are sockets that the command made in a directory of the host. They are
	// kept open, so that no other file can get their number.
	own map[inode]int
}

type inode struct{ dev, ino uint64 }

// maxOwn bounds the sockets remembered; beyond it the command cannot connect to
// further ones of its own in directories of the host.
const maxOwn = 1024

// prepare makes the rules ready. Where all may be connected to there are none.
func (s *sockets) prepare(rules *spec.Sockets) (err error) {
	if s.allowed, err = pattern.NewSet(rules.Allowed); err != nil || rules.All || len(rules.Allowed) == 0 {
		return err
	}
	texts := rules.Allowed
	for _, text := range rules.Allowed {
		if small := strings.Map(foldRune, text); small != text && isPattern(small) {
			texts = append(texts[:len(texts):len(texts)], small)
		}
	}
	s.spellings, err = pattern.NewSet(texts)
	return err
}

func isPattern(text string) bool {
	_, err := pattern.Compile(text)
	return err == nil
}

// A socket is allowed by its name, so that one that the host makes anew under the
// same name is allowed too. So no socket of the host may get such a name in here,
// neither itself nor by the directories above it. That holds if every move leaves
// what is moved, and all below it, as allowed or not as it was.

// sameBelow says whether a move leaves what is allowed as it is, in whatever
// spelling: where names that differ in case are the same file, the kernel tells a
// path in the spelling of who asked first.
func (s *sockets) sameBelow(from, to string) bool {
	return s.spellings == nil || s.spellings.SameBelow(from, to) && s.spellings.SameBelow(fold(from), fold(to))
}

// isOwn says whether the command made a file as a socket.
func (s *sockets) isOwn(st *unix.Stat_t) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.own[inode{st.Dev, st.Ino}]
	return ok
}

// foreignName is the rule against a name for a socket that would let it be
// connected to.
var foreignName = spec.PathRule{Why: "unix socket of the host at a name that network.allowUnixSockets is about"}

// judgeMove refuses to move what is, or may hold, a socket of the host to where other
// sockets are allowed. Of a directory the caller is told that it cannot be moved, as
// between file systems. Nothing else may get a name until it is moved.
func (w *worker) judgeMove(n *notification, s *spot) *answer {
	var st unix.Stat_t
	if err := unix.Fstatat(s.dir, s.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail(errnoOf(err))
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return fail(unix.EXDEV)
	case st.Mode&unix.S_IFMT == unix.S_IFSOCK && !w.sockets.isOwn(&st):
		a := w.denied(n, "rename", s.path(), &foreignName)
		return &a
	}
	return nil
}

// judgeLink refuses another name for a socket of the host where other sockets are
// allowed than at the one it has.
func (w *worker) judgeLink(n *notification, fd int, old, name string) *answer {
	if w.sockets.sameBelow(old, name) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(errnoOf(err))
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || w.sockets.isOwn(&st) {
		return nil
	}
	a := w.denied(n, "link", old, &foreignName)
	return &a
}

// allowsSocket says whether an opened socket may be connected to.
func (b *Broker) allowsSocket(path string, fd int) bool {
	s := &b.sockets
	if b.spec.Broker.Sockets.All || s.allowed.First(path) >= 0 {
		return true
	}
	if _, m := b.spec.Access(path); m == nil || m.Kind != spec.Bind {
		return true // the sandbox's own place
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && s.isOwn(&st)
}

// remember notes a socket that the command has just made.
func (s *sockets) remember(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var st unix.Stat_t
	s.mu.Lock()
	defer s.mu.Unlock()
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || len(s.own) >= maxOwn {
		_ = unix.Close(fd)
		return
	}
	if s.own == nil {
		s.own = make(map[inode]int)
	}
	key := inode{st.Dev, st.Ino}
	if _, ok := s.own[key]; ok {
		_ = unix.Close(fd)
		return
	}
	s.own[key] = fd
}

func (s *sockets) forgetAll() {
	for key, fd := range s.own {
		_ = unix.Close(fd)
		delete(s.own, key)
	}
}

// address is a copy of what the caller gave as one.
type address []byte

const maxAddress = 128 // struct sockaddr_storage

func (w *worker) address(n *notification) (address, unix.Errno) {
	return addressAt(n.pid, n.args[1], int32(n.args[2]))
}

func addressAt(pid uint32, at uint64, size int32) (address, unix.Errno) {
	if size < 0 || size > maxAddress {
		return nil, unix.EINVAL
	}
	a := make(address, size)
	return a, readMemory(pid, at, a)
}

// path returns the path of a unix socket's address, if it is one.
func (a address) path() (string, bool) {
	if !a.isUnix() || len(a) < 3 || a[2] == 0 {
		return "", false
	}
	text, _, _ := bytes.Cut(a[2:], []byte{0})
	return string(text), true
}

func (a address) isUnix() bool {
	return len(a) >= 2 && *(*uint16)(unsafe.Pointer(&a[0])) == unix.AF_UNIX
}

// bind makes a socket's file where the rules allow it. Addresses that are no
// path, or lie elsewhere, are the kernel's.
func (w *worker) bind(n *notification) answer {
	a, errno := w.address(n)
	if errno != 0 {
		return refuse(errno)
	}
	text, ok := a.path()
	if !ok || w.lent(n) == LentNoFile {
		return pass
	}
	abs, errno := w.absolute(n, atCwd, text)
	if errno != 0 {
		return pass
	}
	s, errno := w.locate(abs)
	if errno != 0 {
		return pass
	}
	defer s.close()
	if s.slash || s.isDots() {
		return pass // it can but fail
	}
	if done := w.judged(n, "bind", &s); done != nil {
		return *done
	}
	if w.together.Load() {
		return refuse(unix.EACCES)
	}
	fd, errno := w.socketOf(n)
	if errno != 0 {
		return refuse(errno)
	}
	defer func() { _ = unix.Close(fd) }()
	// Relative to the directory: the address has no room for more.
	if err := unix.Fchdir(s.dir); err != nil {
		return result(err)
	}
	defer func() { _ = unix.Chdir("/") }()
	unix.Umask(int(w.masks.of(n)))
	defer unix.Umask(0)
	// Until the socket is known nobody may put another one in its place.
	w.sockets.names.Lock()
	defer w.sockets.names.Unlock()
	if errno := bindTo(fd, s.name); errno != 0 {
		return refuse(errno)
	}
	w.sockets.remember(s.dir, s.name)
	return answer{}
}

// bindTo binds a socket to a name in the working directory, which may start with
// an "@" like any other.
func bindTo(fd int, name string) unix.Errno {
	var sa unix.RawSockaddrUnix
	if len(name) > len(sa.Path) {
		return unix.EINVAL
	}
	sa.Family = unix.AF_UNIX
	for i := range len(name) {
		sa.Path[i] = int8(name[i])
	}
	size := unsafe.Offsetof(sa.Path) + uintptr(len(name))
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), size)
	return errno
}

// socketOf returns the socket that a call is about.
func (w *worker) socketOf(n *notification) (int, unix.Errno) {
	return w.descriptorOf(n, int(int32(n.args[0])))
}

// descriptorOf returns what the caller has open: the same, not opened again.
func (w *worker) descriptorOf(n *notification, number int) (int, unix.Errno) {
	// A thread may have descriptors of its own, and its process's first one may
	// have ended.
	pidfd, err := unix.PidfdOpen(int(n.pid), pidfdThread)
	if err != nil {
		pidfd, err = unix.PidfdOpen(processOf(n), 0)
	}
	if err != nil {
		return -1, errnoOf(err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	switch {
	case err != nil:
		return -1, errnoOf(err)
	case !w.listener.isValid(n.id):
		_ = unix.Close(fd)
		return -1, unix.ESRCH
	}
	return fd, 0
}

// processOf returns the process that a thread belongs to.
func processOf(n *notification) int {
	// Most often it is the first, of which alone there is such a descriptor.
	if fd, err := unix.PidfdOpen(int(n.pid), 0); err == nil {
		_ = unix.Close(fd)
		return int(n.pid)
	}
	if pid, err := strconv.Atoi(statusOf(n, "Tgid")); err == nil {
		return pid
	}
	return int(n.pid)
}

// connect performs every connect. The kernel could not be left to do it: which
// descriptor is which socket, and what the address says, the caller can change
// after both were judged, and no other wall keeps it from the host's sockets.
func (w *worker) connect(n *notification) answer {
	a, errno := w.address(n)
	if errno != 0 {
		return refuse(errno)
	}
	if w.options.Lead != nil {
		return w.lead(n, a)
	}
	fd, errno := w.socketOf(n)
	if errno != 0 {
		return refuse(errno)
	}
	text, ok := a.path()
	if !ok {
		return w.connectPlain(n, fd, a)
	}
	at, refused := w.reachable(n, text)
	if refused != nil {
		_ = unix.Close(fd)
		return *refused
	}
	return w.perform(n, fd, func() answer {
		return result(unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + fdName(at)}))
	}, at)
}

// reachable opens the socket that a path leads to, if it may be connected to.
func (w *worker) reachable(n *notification, path string) (fd int, refused *answer) {
	abs, errno := w.absolute(n, atCwd, path)
	if errno != 0 {
		return -1, fail(errno)
	}
	at, errno := w.openInside(abs, 0)
	if errno != 0 {
		return -1, fail(errno)
	}
	real, errno := w.realPath(at)
	if errno != 0 {
		_ = unix.Close(at)
		return -1, fail(errno)
	}
	if typeOf(at) != unix.S_IFSOCK {
		return at, nil // the kernel knows what to say to that
	}
	var rule *spec.PathRule
	switch {
	case isBaileys(at):
		rule = &spec.PathRule{Pattern: real, Why: "a socket of Bailey's own"}
	case !w.allowsSocket(real, at):
		rule = &spec.PathRule{Pattern: real, Why: "unix socket of the host", Fix: "network.allowUnixSockets " + real}
	default:
		return at, nil
	}
	_ = unix.Close(at)
	a := w.denied(n, "connect", real, rule)
	return -1, &a
}

// isBaileys says whether a socket is the keeper's or the server's. There it would be
// us who connects, and we may, whatever the policy says about the socket.
func isBaileys(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || peer.IsMarked(st.Mode)
}

// perform connects a socket, and closes our copy of it and what else was opened for
// that. What may block is done beside the other calls.
func (w *worker) perform(n *notification, fd int, connect func() answer, opened ...int) answer {
	do := func(*worker) (a answer) {
		w.options.User.act(func() { a = connect() })
		return a
	}
	release := func() {
		for _, fd := range append(opened, fd) {
			_ = unix.Close(fd)
		}
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		defer release()
		return do(w)
	}
	return w.later(n, do, release)
}

// connectPlain connects to an address that is no path.
func (w *worker) connectPlain(n *notification, fd int, a address) answer {
	if a.isUnix() && w.spec.Network == spec.NetworkHost {
		// An abstract name is shared by all of a network namespace, and Landlock,
		// which keeps the command from it, does not bind us.
		_ = unix.Close(fd)
		return refuse(unix.EPERM)
	}
	return w.perform(n, fd, func() answer { return connectTo(fd, a) })
}

func connectTo(fd int, a address) answer {
	var at unsafe.Pointer
	if len(a) > 0 {
		at = unsafe.Pointer(&a[0])
	}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(at), uintptr(len(a)))
	return refuse(errno)
}
