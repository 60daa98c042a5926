package broker

import (
	"encoding/binary"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A socket for datagrams can be given another destination with every message: by
// sendto in a register, by sendmsg and sendmmsg somewhere in memory. The kernel
// could be left with none of these calls, whatever they say when they are looked
// at, so all of them are performed here, on copies of what is sent and of where
// it goes. What has no destination, such as send and write, goes to where the
// socket was connected to, and that was judged.

// sendCalls send messages that may say where they go to.
var sendCalls = []call{
	{unix.SYS_SENDTO, func(w *worker, n *notification) answer { return w.sendto(n) }},
	{unix.SYS_SENDMSG, func(w *worker, n *notification) answer { return w.sendmsg(n) }},
	{unix.SYS_SENDMMSG, func(w *worker, n *notification) answer { return w.sendmmsg(n) }},
}

// Limits of the kernel, and some of ours, so that what the command sends takes
// little of our memory and few of our descriptors, which are not counted as its
// own. Of a stream's message that is longer than maxData the first part is sent,
// and of messages in one call as many as fit in it.
const (
	maxParts    = 1024     // UIO_MAXIOV
	maxMessages = 64       // of one call
	maxPassed   = 253      // SCM_MAX_FD, here of one call
	maxControl  = 64 << 10 // less than the kernel's
	maxData     = 8 << 20
	// maxWaiting is what all messages that wait for room may take together, and
	// eachPassed what a descriptor counts for in it.
	maxWaiting = 32 << 20
	eachPassed = 64 << 10
)

// message is a copy of one that the caller wants to send.
type message struct {
	name    address
	control []byte
	data    []byte
	passed  []int // descriptors of ours that control names
	target  int   // the socket that name leads to, opened; -1 if it is no path
	sent    int
}

// size is how much of our memory a message takes.
func (m *message) size() int64 { return int64(len(m.data) + len(m.control)) }

func (m *message) close() {
	for _, fd := range m.passed {
		_ = unix.Close(fd)
	}
	if m.target >= 0 {
		_ = unix.Close(m.target)
	}
}

func (w *worker) sendto(n *notification) answer {
	m := &message{target: -1}
	var errno unix.Errno
	if m.name, errno = addressAt(n.pid, n.args[4], int32(n.args[5])); errno != 0 {
		return refuse(errno)
	}
	if m.data, errno = copyData(n.pid, []part{{n.args[1], n.args[2]}}); errno != 0 {
		return refuse(errno)
	}
	return w.send(n, int(uint32(n.args[3])), false, []*message{m})
}

func (w *worker) sendmsg(n *notification) answer {
	m, errno := copyMessage(n.pid, n.args[1])
	if errno != 0 {
		return refuse(errno)
	}
	return w.send(n, int(uint32(n.args[2])), false, []*message{m})
}

// sizeMany is the size of struct mmsghdr: a message, and how much of it was sent.
const sizeMany = sizeMessage + 8

func (w *worker) sendmmsg(n *notification) answer {
	var all []*message
	var size int64
	for i := uint64(0); i < min(uint64(uint32(n.args[2])), maxMessages) && size <= maxData; i++ {
		m, errno := copyMessage(n.pid, n.args[1]+i*sizeMany)
		if errno != 0 && i == 0 {
			return refuse(errno)
		}
		if errno != 0 {
			break // those before are sent, as the kernel does
		}
		all = append(all, m)
		size += m.size()
	}
	return w.send(n, int(uint32(n.args[3])), true, all)
}

// part is a piece of the caller's memory.
type part struct{ at, size uint64 }

const sizeMessage = 56 // struct msghdr

// copyMessage copies a struct msghdr and all it leads to.
func copyMessage(pid uint32, at uint64) (*message, unix.Errno) {
	var h [sizeMessage]byte
	if errno := readMemory(pid, at, h[:]); errno != 0 {
		return nil, errno
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(h[i:]) }
	m := &message{target: -1}
	var errno unix.Errno
	if size := int32(binary.NativeEndian.Uint32(h[8:])); size < 0 {
		return nil, unix.EINVAL
	} else if word(0) != 0 {
		if m.name, errno = addressAt(pid, word(0), min(size, maxAddress)); errno != 0 {
			return nil, errno
		}
	}
	if word(40) > maxControl {
		return nil, unix.ENOBUFS
	}
	m.control = make([]byte, word(40))
	if errno = readMemory(pid, word(32), m.control); errno != 0 {
		return nil, errno
	}
	parts, errno := copyParts(pid, word(16), word(24))
	if errno == 0 {
		m.data, errno = copyData(pid, parts)
	}
	return m, errno
}

// copyParts copies an array of struct iovec.
func copyParts(pid uint32, at, count uint64) ([]part, unix.Errno) {
	if count > maxParts {
		return nil, unix.EMSGSIZE
	}
	raw := make([]byte, count*16)
	if errno := readMemory(pid, at, raw); errno != 0 {
		return nil, errno
	}
	parts := make([]part, count)
	for i := range parts {
		parts[i] = part{binary.NativeEndian.Uint64(raw[i*16:]), binary.NativeEndian.Uint64(raw[i*16+8:])}
	}
	return parts, 0
}

// copyData copies what is to be sent, up to one byte more than maxData.
func copyData(pid uint32, parts []part) ([]byte, unix.Errno) {
	var size uint64
	for i := range parts {
		parts[i].size = min(parts[i].size, maxData+1-size)
		size += parts[i].size
	}
	data := make([]byte, size)
	rest := data
	for _, p := range parts {
		if errno := readMemory(pid, p.at, rest[:p.size]); errno != 0 {
			return nil, errno
		}
		rest = rest[p.size:]
	}
	return data, 0
}

// send judges messages and sends them.
func (w *worker) send(n *notification, flags int, many bool, all []*message) answer {
	fd, errno := w.socketOf(n)
	if errno != 0 {
		return refuse(errno)
	}
	s := &sending{w: w, call: *n, fd: fd, flags: flags, many: many, all: all}
	if refused := s.prepare(n); refused != nil {
		s.close()
		return *refused
	}
	if s.run(nil) {
		s.reply()
		s.close()
		return answer{kind: answerLater}
	}
	return s.runLater(n)
}

// runLater sends the rest once there is room.
func (s *sending) runLater(n *notification) answer {
	caller, err := openThread(int(n.pid))
	if err != nil {
		s.close()
		return result(err)
	}
	size := s.size()
	release := func() {
		s.w.waiting.Add(-size)
		s.close()
		_ = unix.Close(caller)
	}
	// Whichever way it goes, the caller is answered here: with a number.
	if s.w.waiting.Add(size) > maxWaiting {
		s.errno = unix.ENOBUFS
		s.reply()
		release()
		return answer{kind: answerLater}
	}
	return s.w.later(n, func(*worker) answer {
		s.run(func() bool { return s.wait(caller) })
		s.reply()
		return answer{kind: answerLater}
	}, release)
}

// sending is a call that sends.
type sending struct {
	w      *worker
	call   notification
	fd     int // the caller's socket
	kind   socketKind
	flags  int
	blocks bool // the caller would wait
	many   bool // the call is sendmmsg
	all    []*message

	ended int // messages that were sent
	errno unix.Errno
}

func (s *sending) close() {
	_ = unix.Close(s.fd)
	for _, m := range s.all {
		m.close()
	}
}

// size is what it counts for while it waits.
func (s *sending) size() (n int64) {
	for _, m := range s.all {
		n += m.size() + int64(len(m.passed)+1)*eachPassed // one for its target
	}
	return n
}

// passed is how many descriptors go along with messages.
func passed(all []*message) (n int) {
	for _, m := range all {
		n += len(m.passed)
	}
	return n
}

// socketKind is what a socket was made as.
type socketKind struct{ domain, kind int }

func kindOf(fd int) (k socketKind, err error) {
	if k.domain, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil {
		k.kind, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	return k, err
}

// prepare makes messages ready to be sent by us. If the first one may not be sent
// it says so; others end those that are.
func (s *sending) prepare(n *notification) *answer {
	var err error
	if s.kind, err = kindOf(s.fd); err != nil {
		return fail(errnoOf(err))
	}
	mode, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
	if err != nil {
		return fail(errnoOf(err))
	}
	s.blocks = s.flags&unix.MSG_DONTWAIT == 0 && mode&unix.O_NONBLOCK == 0
	if s.flags&unix.MSG_ZEROCOPY != 0 {
		return fail(unix.EOPNOTSUPP) // it would be told when our copy is free
	}
	for i, m := range s.all {
		refused := s.prepareOne(n, m)
		if refused == nil && passed(s.all[:i+1]) > maxPassed {
			refused = fail(unix.EINVAL)
		}
		if refused != nil && i == 0 {
			return refused
		}
		if refused != nil {
			for _, rest := range s.all[i:] {
				rest.close()
			}
			s.all = s.all[:i]
			break
		}
	}
	return nil
}

func (s *sending) prepareOne(n *notification, m *message) *answer {
	switch {
	case len(m.data) <= maxData:
	case s.kind.kind == unix.SOCK_STREAM:
		m.data = m.data[:maxData]
	default:
		return fail(unix.EMSGSIZE)
	}
	if errno := s.w.translate(n, m); errno != 0 {
		return fail(errno)
	}
	// Other sockets do not look at it, or have no paths.
	if s.kind.domain != unix.AF_UNIX || s.kind.kind != unix.SOCK_DGRAM || !m.name.isUnix() {
		return nil
	}
	path, ok := m.name.path()
	if !ok {
		if s.w.spec.Network == spec.NetworkHost && len(m.name) > 2 {
			return fail(unix.EPERM) // see connectPlain
		}
		return nil
	}
	at, refused := s.w.reachable(n, path)
	if refused == nil {
		m.target = at
		m.name = append(address{unix.AF_UNIX, 0}, "/proc/self/fd/"+fdName(at)+"\x00"...)
	}
	return refused
}

// translate replaces what control messages say about the caller by what they
// must say about us. Those that a capability is needed for are refused: in the
// sandbox's namespaces the kernel takes us for somebody who has it.
func (w *worker) translate(n *notification, m *message) unix.Errno {
	const header = 16 // struct cmsghdr
	for rest := m.control; len(rest) >= header; {
		size := binary.NativeEndian.Uint64(rest)
		if size < header || size > uint64(len(rest)) {
			return unix.EINVAL
		}
		level, kind := binary.NativeEndian.Uint32(rest[8:]), binary.NativeEndian.Uint32(rest[12:])
		body := rest[header:size]
		errno := unix.Errno(0)
		switch {
		case level == unix.SOL_SOCKET && kind == unix.SCM_RIGHTS:
			errno = w.translateDescriptors(n, m, body)
		case level == unix.SOL_SOCKET && kind == unix.SCM_CREDENTIALS:
			errno = translateCredentials(n, body)
		case !isHarmlessControl(level, kind):
			errno = unix.EPERM
		}
		if errno != 0 {
			return errno
		}
		rest = rest[min((size+7)&^7, uint64(len(rest))):]
	}
	return 0
}

func (w *worker) translateDescriptors(n *notification, m *message, body []byte) unix.Errno {
	if len(m.passed)+len(body)/4 > maxPassed {
		return unix.EINVAL
	}
	for ; len(body) >= 4; body = body[4:] {
		fd, errno := w.descriptorOf(n, int(int32(binary.NativeEndian.Uint32(body))))
		if errno != 0 {
			return errno
		}
		m.passed = append(m.passed, fd)
		binary.NativeEndian.PutUint32(body, uint32(fd))
	}
	return 0
}

// translateCredentials puts our process in the place of the caller's: nobody may
// name another than its own.
func translateCredentials(n *notification, body []byte) unix.Errno {
	if len(body) != unix.SizeofUcred {
		return unix.EINVAL
	}
	own := numbersOf(n)
	if len(own) == 0 || strconv.FormatUint(uint64(binary.NativeEndian.Uint32(body)), 10) != own[0] {
		return unix.EPERM
	}
	binary.NativeEndian.PutUint32(body, uint32(os.Getpid()))
	return 0
}

// isHarmlessControl lists what anybody may say about a packet.
func isHarmlessControl(level, kind uint32) bool {
	switch level {
	case unix.IPPROTO_IP:
		return kind == unix.IP_TOS || kind == unix.IP_TTL || kind == unix.IP_PKTINFO
	case unix.IPPROTO_IPV6:
		return kind == unix.IPV6_PKTINFO || kind == unix.IPV6_HOPLIMIT || kind == unix.IPV6_TCLASS || kind == unix.IPV6_DONTFRAG
	case unix.IPPROTO_UDP:
		return kind == unix.UDP_SEGMENT
	}
	return false
}

// run sends what was not sent yet. Where the caller would wait it asks wait to do
// that, and gives up when that reports false. Without wait it then reports false
// itself.
func (s *sending) run(wait func() bool) bool {
	for s.ended < len(s.all) {
		m := s.all[s.ended]
		size, errno := s.perform(m, s.flags|unix.MSG_DONTWAIT)
		if errno == unix.EAGAIN && s.blocks {
			switch {
			case wait == nil:
				return false
			case m.target >= 0:
				// Whether there is room at a place that the socket is not connected to
				// can be found out only by sending.
				size, errno = s.perform(m, s.flags)
			case wait():
				continue
			}
		}
		if errno != 0 {
			s.errno = errno
			return true
		}
		s.advance(m, size)
	}
	return true
}

// advance notes what was sent. Of a stream's message that may be a part, and that
// took with it what goes along.
func (s *sending) advance(m *message, size int) {
	m.sent += size
	m.data, m.control = m.data[size:], nil
	if len(m.data) == 0 || s.kind.kind != unix.SOCK_STREAM || !s.blocks {
		s.ended++
	}
}

// perform sends a message as the one whose it is: a receiver may ask for that.
func (s *sending) perform(m *message, flags int) (size int, errno unix.Errno) {
	s.w.options.User.act(func() { size, errno = m.send(s.fd, flags) })
	return size, errno
}

func (m *message) send(fd, flags int) (int, unix.Errno) {
	var h unix.Msghdr
	if len(m.name) > 0 {
		h.Name, h.Namelen = &m.name[0], uint32(len(m.name))
	}
	if len(m.control) > 0 {
		h.Control = &m.control[0]
		h.SetControllen(len(m.control))
	}
	var data unix.Iovec
	if len(m.data) > 0 {
		data.Base = &m.data[0]
		data.SetLen(len(m.data))
	}
	h.Iov = &data
	h.SetIovlen(1)
	// The signal is not for us; see reply.
	size, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), uintptr(flags|unix.MSG_NOSIGNAL))
	if errno != 0 {
		return 0, errno
	}
	return int(size), 0
}

// wait waits until there is room, and reports false if the caller ends before, or
// the time that it would wait is over.
func (s *sending) wait(caller int) bool {
	longest := -1
	if t, err := unix.GetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO); err == nil && *t != (unix.Timeval{}) {
		longest = int(t.Sec*1000 + t.Usec/1000)
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}, {Fd: int32(caller), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, longest)
		if err != unix.EINTR {
			return n > 0 && fds[1].Revents == 0
		}
	}
}

// reply tells the caller how much was sent.
func (s *sending) reply() {
	r := response{id: s.call.id}
	switch {
	case s.many && (s.ended > 0 || s.errno == 0):
		r.val = int64(s.ended)
		s.tellSizes()
	case !s.many && (s.ended > 0 || s.all[0].sent > 0):
		r.val = int64(s.all[0].sent)
	default:
		r.errno = -int32(s.errno)
		if s.errno == unix.EPIPE && s.kind.kind == unix.SOCK_STREAM && s.flags&unix.MSG_NOSIGNAL == 0 {
			s.w.options.User.act(func() { _ = unix.Tgkill(processOf(&s.call), int(s.call.pid), unix.SIGPIPE) })
		}
	}
	s.w.listener.send(&r)
}

// tellSizes writes behind each message how much of it was sent.
func (s *sending) tellSizes() {
	memory, err := unix.Open(procOf(&s.call)+"mem", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(memory) }()
	if !s.w.listener.isValid(s.call.id) {
		return
	}
	for i, m := range s.all[:s.ended] {
		size := binary.NativeEndian.AppendUint32(nil, uint32(m.sent))
		_, _ = unix.Pwrite(memory, size, int64(s.call.args[1])+int64(i)*sizeMany+sizeMessage)
	}
}
