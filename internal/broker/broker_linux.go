package broker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Broker answers the calls of one sandbox.
type Broker struct {
	spec     *spec.Spec
	pid      int // the sandbox's first process
	listener listener
	rules    *rules
	sockets  sockets
	masks    masks
	execs    execs
	options  Options
	root     int           // the sandbox's root directory
	self     int           // /proc/self/fd, to ask what a descriptor leads to
	ended    chan struct{} // closed by Close

	main    *worker // of the thread that calls Serve
	served  int     // calls it has taken
	helpers chan notification
	beside  atomic.Int32 // calls that are performed on threads of their own
	users   atomic.Int32 // who may still use the descriptors
}

// Denial is a call that was refused, and why.
type Denial struct {
	Pid   int // the calling thread
	Op    string
	Path  string
	Argv  []string // of exec
	Why   string   // the rule
	Where string   // the place it was written at, if that is known
	Fix   string   // the flag that would allow it, or what else would
}

// Options say who wants to know.
type Options struct {
	// Report, if not nil, is called for every refused call, from several
	// threads.
	Report func(Denial)
	// Observe, if not nil, is called for every call that names a file, before it
	// is decided, from several threads.
	Observe func(Observation)
	// Started, if not nil, is called when the first call comes.
	Started func()
}

// New takes over the listener of a sandbox whose first process is pid and has
// this file mode mask. Until the first call comes nothing is done: many commands
// make none.
func New(s *spec.Spec, fd, pid int, mask uint32, o Options) *Broker {
	b := &Broker{
		spec: s, pid: pid, listener: listener(fd), options: o,
		root: -1, self: -1, ended: make(chan struct{}),
	}
	b.masks.initial = mask
	b.users.Store(1)
	return b
}

// prepare makes the calling thread the main one.
func (b *Broker) prepare() (err error) {
	if b.options.Started != nil {
		b.options.Started()
	}
	if b.rules, err = newRules(b.spec); err != nil {
		return err
	}
	if b.sockets.allowed, err = pattern.NewSet(b.spec.Broker.Sockets.Allowed); err != nil {
		return fmt.Errorf("broker: unix sockets: %w", err)
	}
	if b.spec.Broker.Commands != nil {
		b.execs.rules = b.spec.Broker.Commands.Compile()
		b.execs.examiners = make(chan examination)
	}
	const dir = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if b.root, err = unix.Open("/proc/"+strconv.Itoa(b.pid)+"/root", dir, 0); err != nil {
		return fmt.Errorf("broker: open the sandbox's root directory: %w", err)
	}
	if b.self, err = unix.Open("/proc/self/fd", dir, 0); err != nil {
		return fmt.Errorf("broker: open /proc/self/fd: %w", err)
	}
	b.listener.wakeOnSameProcessor()
	b.main, err = b.newWorker()
	return err
}

// Close ends the broker, after Serve has returned. Calls that wait, and later
// ones, fail with ENOSYS. What helpers are busy with they finish.
func (b *Broker) Close() {
	close(b.ended)
	b.leave()
}

// leave closes the descriptors behind the last one who uses them.
func (b *Broker) leave() {
	if b.users.Add(-1) == 0 {
		b.release()
	}
}

func (b *Broker) release() {
	for _, fd := range []int{int(b.listener), b.root, b.self} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// manyCalls is how many make it worth to have helpers.
const manyCalls = 200

// Serve answers calls on the calling thread until the descriptor can be read or
// is closed at its other end. The thread gets a working directory and a file
// mode mask of its own and gives up its capabilities, so it must be locked, and
// cannot serve anything else afterwards.
func (b *Broker) Serve(until int) error {
	fds := []unix.PollFd{{Fd: int32(until), Events: unix.POLLIN}, {Fd: int32(b.listener), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case fds[0].Revents != 0:
			return nil
		case fds[1].Revents&unix.POLLIN == 0:
			fds = fds[:1] // nobody is left to ask; the end is about to be told
			continue
		}
		if b.main == nil {
			if err := b.prepare(); err != nil {
				return err
			}
		}
		b.take()
	}
}

// take receives a call and answers it, or has that done. One thread alone
// receives: of two that were told of the same call, one would wait for the next.
func (b *Broker) take() {
	var n notification
	if b.listener.receive(&n) != 0 {
		return // its caller was killed
	}
	if !b.handOn(&n) {
		b.main.answer(&n)
	}
}

// handOn gives a call to an idle helper if another one waits already.
func (b *Broker) handOn(n *notification) bool {
	if b.served++; b.served < manyCalls {
		return false
	}
	if b.helpers == nil {
		b.startHelpers()
	}
	if !b.isWaiting() {
		return false
	}
	select {
	case b.helpers <- *n:
		return true
	default:
		return false
	}
}

// isWaiting says whether there is another call to take.
func (b *Broker) isWaiting() bool {
	fds := []unix.PollFd{{Fd: int32(b.listener), Events: unix.POLLIN}}
	waiting, err := unix.Poll(fds, 0)
	return err == nil && waiting > 0
}

// startHelpers starts one for every further processor, up to three.
func (b *Broker) startHelpers() {
	b.helpers = make(chan notification)
	for range min(runtime.NumCPU()-1, 3) {
		b.users.Add(1)
		go func() {
			defer b.leave()
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			helper, err := b.newWorker()
			if err != nil {
				return // there is one less
			}
			for {
				select {
				case n := <-b.helpers:
					helper.answer(&n)
				case <-b.ended:
					return
				}
			}
		}()
	}
}

func (b *Broker) newWorker() (*worker, error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fmt.Errorf("unshare the file system attributes of a thread: %w", err)
	}
	unix.Umask(0)
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	return &worker{Broker: b}, nil
}

// dropCapabilities makes root an owner of files like any other: what the
// command cannot open, its broker must not.
func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// worker is one thread that answers.
type worker struct {
	*Broker
	text [unix.PathMax]byte
	link [unix.PathMax]byte
	word []byte
}

// maxBeside bounds the threads that wait for something. A sandbox that has more
// calls in such a state than this gets an error for the next.
const maxBeside = 64

// later performs a call that may block on a thread of its own.
func (w *worker) later(n *notification, perform func(*worker) answer) answer {
	if w.beside.Add(1) > maxBeside {
		w.beside.Add(-1)
		return refuse(unix.EAGAIN)
	}
	call := *n
	w.users.Add(1)
	go func() {
		defer w.leave()
		defer w.beside.Add(-1)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		other, err := w.newWorker()
		if err != nil {
			(&worker{Broker: w.Broker}).reply(&call, result(err))
			return
		}
		other.reply(&call, perform(other))
	}()
	return answer{kind: answerLater}
}

// answer decides a call and answers it.
func (w *worker) answer(n *notification) {
	w.observe(n)
	handle, ok := calls[n.nr]
	if !ok {
		if _, ok := looks[n.nr]; ok {
			w.reply(n, pass)
			return
		}
		w.reply(n, refuse(unix.ENOSYS))
		return
	}
	if r := handle(w, n); r.kind != answerLater {
		w.reply(n, r)
	}
}

// answer is what becomes of a call.
type answer struct {
	kind    answerKind
	value   int64
	errno   unix.Errno
	fd      int
	cloexec bool
}

type answerKind uint8

const (
	answerValue      answerKind = iota
	answerPass                  // the kernel performs it
	answerDescriptor            // the caller gets a descriptor
	answerLater                 // another goroutine answers
)

func refuse(errno unix.Errno) answer { return answer{errno: errno} }

// result is the answer of a call that returns nothing but an error.
func result(err error) answer {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return answer{errno: errno}
}

var pass = answer{kind: answerPass}

func descriptor(fd int, cloexec bool) answer {
	return answer{kind: answerDescriptor, fd: fd, cloexec: cloexec}
}

func (w *worker) reply(n *notification, a answer) {
	r := response{id: n.id}
	switch a.kind {
	case answerPass:
		r.flags = flagContinue
	case answerDescriptor:
		fd, errno := w.listener.add(n.id, a.fd, a.cloexec)
		// Before the caller goes on: it could execute the file, and the kernel
		// refuses that while somebody has it open to write.
		_ = unix.Close(a.fd)
		r.val, r.errno = int64(fd), -int32(errno)
		if errno != 0 {
			r.val = 0
		}
	default:
		r.val, r.errno = a.value, -int32(a.errno)
	}
	w.listener.send(&r)
}

// denied refuses a call because of a rule about paths.
func (w *worker) denied(n *notification, op, path string, rule *spec.PathRule) answer {
	return w.report(n, Denial{Op: op, Path: path, Why: rule.Why, Fix: rule.Fix})
}

// report refuses a call and says why.
func (w *worker) report(n *notification, d Denial) answer {
	if w.options.Report != nil {
		d.Pid = int(n.pid)
		w.options.Report(d)
	}
	return refuse(unix.EACCES)
}
