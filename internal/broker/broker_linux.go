package broker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
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

	first     *worker      // on the thread that calls Serve
	served    int          // calls it has answered
	more      sync.Once    // for expectMore
	workers   atomic.Int32 // threads that answer
	beside    atomic.Int32 // calls that are performed on threads of their own
	waiting   atomic.Int64 // what messages that wait for room take, see maxWaiting
	users     atomic.Int32 // who may still use the descriptors
	together  atomic.Bool  // threads share their working directory and file mode mask
	limited   bool         // see asksLimits
	endsAlone bool         // the kernel ends the wait for a call when none can come
	turn      sync.Mutex   // held by the one that waits, unless endsAlone
	wake      int          // readable once Close was called, unless endsAlone
	once      sync.Once    // for shut
	closed    sync.Once    // for Close
	attendant *attendant   // nil unless Attend was called
	prepared  sync.Once
	err       error // of prepare
}

// Denial is a call that was refused, and why.
type Denial struct {
	Pid       int // the calling thread
	Op        string
	Path      string
	Host      string // of connect
	Port      int
	Argv      []string // of exec
	Truncated bool     // Argv is only the beginning
	Why       string   // the rule
	Where     string   // the place it was written at, if that is known
	Fix       string   // the flag that would allow it, or what else would
}

// Event is the denial as it is recorded, of a sandbox and a process whose names
// are known.
func (d *Denial) Event(sandbox, process string) *event.Event {
	e := event.New(event.Deny)
	e.Sandbox, e.Pid, e.Process = sandbox, d.Pid, process
	e.Op, e.Path, e.Argv, e.Rule, e.Where, e.Fix = event.Op(d.Op), d.Path, d.Argv, d.Why, d.Where, d.Fix
	e.Host, e.Port, e.Truncated = d.Host, d.Port, d.Truncated
	return e
}

// bound leaves of arguments, which can have megabytes, what is recorded of them.
// Nobody knows how many denials are kept at the other end of Report, or for how
// long.
func (d *Denial) bound() {
	e := (&event.Event{Argv: d.Argv}).Bounded()
	d.Argv, d.Truncated = e.Argv, e.Truncated
}

// Options say who wants to know.
type Options struct {
	// Report, if not nil, is called for every refused call, from several
	// threads.
	Report func(Denial)
	// Observe, if not nil, is called for every call that names a file, before it
	// is decided, from several threads.
	Observe func(Observation)
	// Started, if not nil, is called once before calls are answered on threads of
	// their own.
	Started func()
	// Alone says that the sandbox is made of nothing but Landlock and a filter, so
	// that it is in the same file tree as everybody. Then attributes of files are
	// changed by the broker itself, and where its threads cannot have a file mode
	// mask of their own it takes that of the whole program.
	Alone bool
	// User is who the command is, if that is another user than this process, which then
	// is root.
	User *User
	// Lead, if not nil, makes every connection: it gets a copy of an address and
	// the number of the thread that wants to connect to it, and returns a connected
	// socket to be put in the place of that thread's own. Instead of one it may
	// return what is denied, with the error that the thread gets. Several threads
	// call it.
	Lead func(address []byte, pid int) (fd int, denied *Denial, errno unix.Errno)
}

// New is the broker of a sandbox whose first process is pid. Listen must follow.
// Until the first call comes nothing is done, since many commands make none,
// unless the Spec makes it certain that one will: then what can be prepared is,
// while the sandbox is still being built.
func New(s *spec.Spec, pid int, o Options) *Broker {
	b := &Broker{
		spec: s, pid: pid, listener: -1, options: o,
		root: -1, self: -1, wake: -1, ended: make(chan struct{}),
	}
	b.users.Store(1)
	if s.Broker.Read || s.Broker.Commands != nil || s.Broker.Observe {
		b.prepared.Do(b.prepare)
	}
	return b
}

// Listen takes over the listener of the sandbox, whose first process has this
// file mode mask.
func (b *Broker) Listen(fd int, mask uint32) {
	b.listener, b.masks.initial = listener(fd), mask
	b.listener.wakeOnSameProcessor()
}

// prepare makes the rules ready.
func (b *Broker) prepare() {
	var err error
	if b.rules, err = newRules(b.spec); err != nil {
		b.err = err
	}
	if err = b.sockets.prepare(&b.spec.Broker.Sockets); err != nil {
		b.err = fmt.Errorf("broker: unix sockets: %w", err)
	}
	b.execs.examiners = make(chan examination)
	if b.spec.Broker.Commands != nil {
		b.execs.rules = b.spec.Broker.Commands.Compile()
	}
}

// open makes the broker ready for the first call.
func (b *Broker) open() (err error) {
	if b.prepared.Do(b.prepare); b.err != nil {
		return b.err
	}
	const dir = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if b.root, err = unix.Open("/proc/"+strconv.Itoa(b.pid)+"/root", dir, 0); err != nil {
		return fmt.Errorf("broker: open the sandbox's root directory: %w", err)
	}
	if b.self, err = unix.Open("/proc/self/fd", dir, 0); err != nil {
		return fmt.Errorf("broker: open /proc/self/fd: %w", err)
	}
	b.limited = b.asksLimits()
	// A worker that must not wait for ever takes calls in turn as well.
	if b.endsAlone = kernelAtLeast(6, 11) && b.attendant == nil; !b.endsAlone {
		if b.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return os.NewSyscallError("eventfd", err)
		}
	}
	return nil
}

// kernelAtLeast compares the running kernel's version.
func kernelAtLeast(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	parts := strings.FieldsFunc(unix.ByteSliceToString(name.Release[:]), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return false
	}
	a, _ := strconv.Atoi(parts[0])
	b, _ := strconv.Atoi(parts[1])
	return a > major || a == major && b >= minor
}

// Close ends the broker, after Serve has returned. Calls that wait, and later
// ones, fail with ENOSYS. What workers are busy with they finish.
func (b *Broker) Close() {
	b.closed.Do(func() {
		b.shut()
		b.leave()
	})
}

func (b *Broker) shut() {
	b.once.Do(func() {
		close(b.ended)
		if b.wake >= 0 {
			_, _ = unix.Write(b.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
		b.attendant.dismiss()
	})
}

// leave closes the descriptors behind the last one who uses them.
func (b *Broker) leave() {
	if b.users.Add(-1) == 0 {
		b.release()
	}
}

func (b *Broker) release() {
	for _, fd := range []int{int(b.listener), b.root, b.self, b.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	b.sockets.forgetAll()
	b.masks.forgetAll()
}

// Descriptor can be polled: it is readable while a call waits for Serve.
func (b *Broker) Descriptor() int { return int(b.listener) }

// fewCalls are answered on the thread that calls Serve. A command that makes no
// more is not worth another.
const fewCalls = 48

// Serve answers calls until the descriptor can be read or is closed at its other
// end. The first ones it answers itself; then it starts a thread for that, and
// further ones while calls wait. The calling thread gets a working directory and
// a file mode mask of its own and gives up its capabilities, so it must be
// locked, and cannot do much else afterwards.
func (b *Broker) Serve(until int) error {
	fds := []unix.PollFd{{Fd: int32(until), Events: unix.POLLIN}, {Fd: int32(b.listener), Events: unix.POLLIN}}
	if b.workers.Load() > 0 {
		fds = fds[:1]
	}
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
		if err := b.serveFirst(); err != nil {
			return err
		}
		if b.workers.Load() > 0 {
			fds = fds[:1] // others listen now
		}
	}
}

// serveFirst answers a call on the calling thread, or has others do that from
// now on.
func (b *Broker) serveFirst() error {
	if b.first == nil {
		if err := b.open(); err != nil {
			return err
		}
		w, err := b.newWorker()
		if err != nil {
			return err
		}
		b.first = w
	}
	if b.served++; b.served > fewCalls {
		b.startWorker()
		return nil
	}
	var n notification
	b.listener.receive(&n) // there is one, and nobody else takes it
	if n.id == 0 {
		return nil // its caller was killed
	}
	old, err := blockSignals()
	if err != nil {
		return err
	}
	b.first.answer(&n)
	return unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
}

// expectMore is called before anything is left to another thread.
func (b *Broker) expectMore() {
	b.more.Do(func() {
		if b.options.Started != nil {
			b.options.Started()
		}
	})
}

// isWaiting says whether there is another call to take.
func (b *Broker) isWaiting() bool { return b.state()&unix.POLLIN != 0 }

// isOver says whether nobody is left who could ask.
func (b *Broker) isOver() bool { return b.state()&unix.POLLHUP != 0 }

func (b *Broker) state() int16 {
	fds := []unix.PollFd{{Fd: int32(b.listener), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		return 0
	}
	return fds[0].Revents
}

// startWorker starts a thread that answers, unless there is one for every
// processor.
func (b *Broker) startWorker() {
	if int(b.workers.Add(1)) > min(max(runtime.NumCPU(), 2), 8) {
		b.workers.Add(-1)
		return
	}
	b.expectMore()
	b.users.Add(1)
	go func() {
		defer b.leave()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		w, err := b.newThread()
		if err == nil {
			w.run()
		}
		if err == nil && b.attendant == nil {
			return
		}
		if b.workers.Add(-1) > 0 {
			return
		}
		if err != nil {
			b.shut()
		}
		b.attendant.resume(err)
	}()
}

// run takes calls until none can come any more. If they come from several
// threads and wait, another worker is worth its cost; a single caller would only
// be passed back and forth between them.
func (w *worker) run() {
	var last uint32
	changes := 0
	for served := 1; ; served++ {
		n, ok := w.take()
		if !ok {
			return
		}
		if n.pid != last {
			last = n.pid
			changes++
		}
		w.answer(&n)
		if served%64 == 0 {
			if changes > 16 && w.isWaiting() {
				w.startWorker()
			}
			changes = 0
		}
	}
}

// take waits for a call. It reports false when there are no more.
func (w *worker) take() (n notification, ok bool) {
	for {
		if w.endsAlone {
			w.listener.receive(&n)
		} else {
			w.takeInTurn(&n)
		}
		switch {
		case n.id != 0:
			return n, true
		case w.isOver() || w.isEnded() || w.attendant != nil:
			return n, false
		}
	}
}

// takeInTurn is for kernels that leave who waits for a call waiting when none
// can come any more. Only one thread may then wait at all: of two that were told
// of the same call, one would wait for the next.
func (w *worker) takeInTurn(n *notification) {
	w.turn.Lock()
	defer w.turn.Unlock()
	fds := []unix.PollFd{{Fd: int32(w.listener), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, w.attendant.patience()); err == nil && fds[0].Revents&unix.POLLIN != 0 {
		w.listener.receive(n)
	}
}

func (b *Broker) isEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// newWorker makes the calling thread fit to answer. It must be locked, and cannot
// do anything else afterwards.
func (b *Broker) newWorker() (*worker, error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		// Filters of containers often refuse the call whatever it is to do. Then the
		// whole program has the broker's mask, and no socket gets a name.
		if !b.options.Alone {
			return nil, fmt.Errorf("unshare the file system attributes of a thread: %w", err)
		}
		b.together.Store(true)
	}
	unix.Umask(0)
	if err := b.options.User.become(); err != nil {
		return nil, err
	}
	return &worker{Broker: b}, nil
}

// blockSignals keeps signals, such as those the runtime sends to its threads,
// from interrupting an answer: a descriptor that is added and answered with at
// once would not be added, but the call would return 0 all the same. Faults of
// our own stay visible.
func blockSignals() (old unix.Sigset_t, err error) {
	var set unix.Sigset_t
	for i := range set.Val {
		set.Val[i] = ^uint64(0)
	}
	for _, fault := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP} {
		set.Val[0] &^= 1 << (fault - 1)
	}
	err = unix.PthreadSigmask(unix.SIG_SETMASK, &set, &old)
	return old, os.NewSyscallError("pthread_sigmask", err)
}

// newThread is newWorker on a thread that does nothing else.
func (b *Broker) newThread() (*worker, error) {
	if _, err := blockSignals(); err != nil {
		return nil, err
	}
	return b.newWorker()
}

// worker is one thread that answers.
type worker struct {
	*Broker
	text []byte // see readText
	link [unix.PathMax]byte
	path []byte // see plain
}

// maxBeside bounds the calls of a sandbox that wait for something, each on a thread,
// and maxAllBeside those of all sandboxes in a process, which ends if it has more
// threads than Go lets it have. One that has more gets an error for the next. Beyond
// half of what all may have, each gets only a few, so that some are left for others.
const (
	maxBeside    = 64
	fewBeside    = 8
	maxAllBeside = 4096
)

// allBeside is how many there are in this process.
var allBeside atomic.Int32

// letWait counts a call that is to wait, if it may.
func (b *Broker) letWait() bool {
	own, all := b.beside.Add(1), allBeside.Add(1)
	if own <= fewBeside && all <= maxAllBeside || own <= maxBeside && all <= maxAllBeside/2 {
		return true
	}
	b.doneWaiting()
	return false
}

func (b *Broker) doneWaiting() {
	b.beside.Add(-1)
	allBeside.Add(-1)
}

// later performs a call that may block on a thread of its own. What it needs for
// that is released in the end, also if it is not performed.
func (w *worker) later(n *notification, perform func(*worker) answer, release func()) answer {
	if !w.letWait() {
		release()
		return refuse(unix.EAGAIN)
	}
	call := *n
	w.expectMore()
	w.users.Add(1)
	go func() {
		defer w.leave()
		defer w.doneWaiting()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		other, err := w.newThread()
		if err != nil {
			release()
			(&worker{Broker: w.Broker}).reply(&call, result(err))
			return
		}
		a := perform(other)
		release()
		other.reply(&call, a)
	}()
	return answer{kind: answerLater}
}

// answer decides a call and answers it. What goes wrong in here must not take
// the program around it with it, and must not let the call pass.
func (w *worker) answer(n *notification) {
	defer func() {
		if r := recover(); r != nil {
			w.reply(n, w.report(n, Denial{Op: "call", Why: fmt.Sprint("an error of Bailey's own: ", r)}))
		}
	}()
	w.observe(n)
	handle := handler(n.nr)
	switch {
	case handle != nil:
		if r := handle(w, n); r.kind != answerLater {
			w.reply(n, r)
		}
	case lookOf(n.nr) != nil:
		w.reply(n, pass)
	default:
		w.reply(n, refuse(unix.ENOSYS))
	}
}

// answer is what becomes of a call.
type answer struct {
	kind    answerKind
	errno   unix.Errno
	fd      int
	cloexec bool
	read    bool // the descriptor is only for reading
}

type answerKind uint8

const (
	answerErrno      answerKind = iota
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
		if a.read && w.listener.addAndSend(n.id, a.fd, a.cloexec) == 0 {
			_ = unix.Close(a.fd)
			return
		}
		fd, errno := w.listener.add(n.id, a.fd, a.cloexec)
		// Before the caller goes on: it could execute the file, and the kernel
		// refuses that while somebody has it open to write.
		_ = unix.Close(a.fd)
		r.val, r.errno = int64(fd), -int32(errno)
		if errno != 0 {
			r.val = 0
		}
	default:
		r.errno = -int32(a.errno)
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
		d.bound()
		w.options.User.apart(func() { w.options.Report(d) })
	}
	return refuse(unix.EACCES)
}
