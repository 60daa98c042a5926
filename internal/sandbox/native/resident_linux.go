package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Resident is a sandbox that takes commands for as long as it stands. Its first
// process starts them; what they leave running goes on until Close.
type Resident struct {
	// Pid is process 1, in the caller's numbering.
	Pid int
	// Listeners are the gate's sockets, if the Spec has a gate. They are the
	// caller's to close.
	Listeners []Listener
	// Partial says that only the overlay of the Spec is in Root.
	Partial bool
	// Owner is the user and group of commands in the caller's numbering; 0 if it is
	// the caller's own.
	Owner uint32

	spec    *spec.Spec
	root    string // see Root
	bare    bool   // there are no terminals
	abi     int
	umask   int
	control *os.File // to process 1
	done    chan struct{}

	sending sync.Mutex // held while a request is written

	mu    sync.Mutex
	proc  *Process // nil once it has ended
	jobs  []*Job   // by slot
	free  []uint32 // slots below len(jobs) that are not in use
	inner map[uint32]*Job
	atEnd []func()
}

// Launch is a command for a Resident.
type Launch struct {
	// Exec lists the files to try as the program, in order; if it is nil, they are
	// found by the PATH of the Spec.
	Exec, Argv, Env []string
	// Dir is the working directory inside; that of the Spec if empty.
	Dir string
	// Umask is the file mode mask; that of the sandbox if negative.
	Umask int
	// Streams are its stdin, stdout and stderr.
	Streams [3]*os.File
	// Terminal, if not nil, gives the command a terminal of its own.
	Terminal *Terminal
}

// maxSlots is how many commands can run at once. Process 1 knows it.
const maxSlots = 1024

// maxRequest bounds a command's arguments and environment. Linux itself allows
// 6 MB at most.
const maxRequest = 8 << 20

// ErrEnded is returned for a sandbox that stands no longer.
var ErrEnded = errors.New("the sandbox has ended")

// ErrBusy is returned when too many commands run at once.
var ErrBusy = errors.New("too many commands run in the sandbox; wait for one to end")

// Open builds a sandbox that stands until Close, or until this process ends in
// whatever way. The command of the Spec is not run. Of the Options, streams and
// terminal have no meaning here.
func Open(s *spec.Spec, o Options) (*Resident, error) {
	if n := o.Nascent; n != nil {
		return n.open(s, o)
	}
	return open(s, o, Start)
}

// OpenIn is Open with the help of another program.
func OpenIn(s *spec.Spec, o Options, help Helper) (*Resident, error) {
	return open(s, o, func(s *spec.Spec, o Options) (*Process, error) { return StartIn(s, o, help) })
}

func open(s *spec.Spec, o Options, start func(*spec.Spec, Options) (*Process, error)) (*Resident, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	o.Streams, o.Terminal, o.resident = [3]*os.File{null, null, null}, nil, true
	var proc *Process
	nursery(func() { proc, err = start(s, o) })
	if err != nil {
		return nil, err
	}
	return newResident(s, proc)
}

// Nascent is a sandbox that will stay and whose Spec is not known yet.
type Nascent struct {
	embryo *Embryo // nil once it is opened or abandoned
	null   *os.File
}

// BeginResident is Begin for Open, which takes it over by Options.Nascent. What the host
// mounts afterwards is not seen in it, so Open should follow soon, or Abandon.
func BeginResident() (*Nascent, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	n := &Nascent{null: null}
	nursery(func() { n.embryo, err = Begin(Options{Streams: [3]*os.File{null, null, null}, resident: true}) })
	if err != nil {
		_ = null.Close()
		return nil, err
	}
	return n, nil
}

// Abandon ends it, unless it was opened.
func (n *Nascent) Abandon() {
	if n.embryo == nil {
		return
	}
	n.embryo.Abandon()
	n.embryo = nil
	_ = n.null.Close()
}

func (n *Nascent) open(s *spec.Spec, o Options) (*Resident, error) {
	e := n.embryo
	n.embryo = nil
	defer n.null.Close()
	o.Streams, o.resident, o.Nascent = e.o.Streams, true, nil
	e.o = o
	var proc *Process
	var err error
	nursery(func() { proc, err = e.Start(s) })
	if err != nil {
		return nil, err
	}
	return newResident(s, proc)
}

// newResident takes over a process 1 that waits for requests.
func newResident(s *spec.Spec, proc *Process) (*Resident, error) {
	r := &Resident{
		Pid: proc.Pid, Listeners: proc.Listeners, root: "/proc/" + strconv.Itoa(proc.Pid) + "/root", spec: s, proc: proc, umask: proc.umask,
		done: make(chan struct{}), inner: make(map[uint32]*Job),
	}
	r.abi, _ = landlockABI()
	if err := unix.SetNonblock(proc.status, true); err != nil {
		_ = proc.Kill()
		proc.reap()
		return nil, os.NewSyscallError("fcntl", err)
	}
	r.control = os.NewFile(uintptr(proc.status), "control")
	proc.status = -1
	go r.listen()
	return r, nil
}

var nurse struct {
	once sync.Once
	work chan func()
}

// nursery runs f on a thread that lives as long as this process. A sandbox dies
// with the thread that started it. There are as many as can work at once: who starts
// a sandbox mostly waits for it.
func nursery(f func()) {
	nurse.once.Do(func() {
		nurse.work = make(chan func())
		for range max(2, runtime.GOMAXPROCS(0)) {
			go func() {
				runtime.LockOSThread() // never unlocked
				for work := range nurse.work {
					work()
				}
			}()
		}
	})
	done := make(chan struct{})
	nurse.work <- func() { defer close(done); f() }
	<-done
}

// AtEnd has f called at the end of the sandbox, when nothing of it is left, and
// before Done and Close say so.
func (r *Resident) AtEnd(f func()) {
	r.mu.Lock()
	ended := r.proc == nil
	if !ended {
		r.atEnd = append(r.atEnd, f)
	}
	r.mu.Unlock()
	if ended {
		f()
	}
}

// Done is closed when nothing of the sandbox is left.
func (r *Resident) Done() <-chan struct{} { return r.done }

// Close ends everything in the sandbox and waits until nothing of it is left.
func (r *Resident) Close() {
	r.mu.Lock()
	if r.proc != nil {
		_ = r.proc.Kill()
	}
	r.mu.Unlock()
	<-r.done
}

// listen takes what process 1 tells, until it ends.
func (r *Resident) listen() {
	buf := make([]byte, 64*messageSize)
	have := 0
	for {
		n, err := r.control.Read(buf[have:])
		have += n
		used := 0
		for size := r.dispatch(buf[:have]); size > 0; size = r.dispatch(buf[used:have]) {
			used += size
		}
		have = copy(buf, buf[used:have])
		if err != nil {
			break
		}
	}
	r.end()
}

// rusageSize is how much follows a message with a wait status.
const rusageSize = int(unsafe.Sizeof(unix.Rusage{}))

// dispatch takes the message that is at the beginning and returns its size, or 0
// if not all of it is there.
func (r *Resident) dispatch(b []byte) (size int) {
	if len(b) < messageSize {
		return 0
	}
	m := decodeMessage(b)
	var used unix.Rusage
	size = messageSize
	if m.what&(msgStarted|msgExecFailed) == 0 {
		size += rusageSize
		if len(b) < size {
			return 0
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&used)), rusageSize), b[messageSize:size])
	}
	r.take(m, used)
	return size
}

func (r *Resident) take(m message, used unix.Rusage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(m.slot) >= len(r.jobs) || r.jobs[m.slot] == nil {
		return
	}
	j := r.jobs[m.slot]
	if m.what&msgStarted != 0 {
		j.pid = m.pid
		r.inner[m.pid] = j
	}
	if j.tell(m.what, used) {
		r.release(j)
	}
}

func (r *Resident) release(j *Job) {
	delete(r.inner, j.pid)
	r.jobs[j.slot] = nil
	r.free = append(r.free, j.slot)
}

// end collects the sandbox. Its commands ended with it.
func (r *Resident) end() {
	r.mu.Lock()
	proc := r.proc
	r.proc = nil
	_ = proc.Kill() // it has closed its socket; it is about to end or killed
	proc.reap()
	for _, j := range r.jobs {
		if j != nil {
			j.kill()
		}
	}
	r.jobs, r.free, r.inner = nil, nil, nil
	r.mu.Unlock()
	_ = r.control.Close()
	for _, f := range r.atEnd {
		f()
	}
	close(r.done)
}

// Start starts a command. When it returns without an error the command runs.
func (r *Resident) Start(l Launch) (*Job, error) {
	if _, err := checkStreams(r.spec, l.Streams, r.abi); err != nil {
		return nil, err
	}
	if l.Exec == nil {
		l.Exec = r.spec.Programs(l.Argv[0], func(file string) bool { return unix.Access(file, unix.F_OK) == nil })
	}
	j := &Job{resident: r, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if l.Terminal != nil {
		peer, err := r.openTerminal(j, l.Terminal)
		if err != nil {
			return nil, err
		}
		defer peer.Close()
		for i, use := range l.Terminal.Streams {
			if use {
				l.Streams[i] = peer
			}
		}
	}
	err := r.enter(j)
	if err == nil {
		err = r.send(r.request(j, &l), l.Streams)
		if err != nil {
			r.abandon(j)
		}
	}
	if err == nil {
		err = j.started(l.Argv[0])
	}
	if err != nil && j.Terminal != nil {
		_ = j.Terminal.Close()
	}
	return j, err
}

// enter gives a job its slot.
func (r *Resident) enter(j *Job) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n := len(r.free); {
	case r.proc == nil:
		return ErrEnded
	case n > 0:
		j.slot, r.free = r.free[n-1], r.free[:n-1]
		r.jobs[j.slot] = j
	case len(r.jobs) == maxSlots:
		return ErrBusy
	default:
		j.slot = uint32(len(r.jobs))
		r.jobs = append(r.jobs, j)
	}
	return nil
}

func (r *Resident) abandon(j *Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil {
		r.release(j)
	}
}

// Requests to process 1.
const (
	askRun    = 1
	askSignal = 2

	headerSize = 16
	blobBase   = 0x40000000 // where process 1 puts what follows the header
	blobHeader = 96
)

// request returns a command as process 1 wants it: a header, and memory with
// addresses in it. The memory begins like the parameters in its own image.
func (r *Resident) request(j *Job, l *Launch) []byte {
	vectors := [...][]string{l.Exec, l.Argv, l.Env}
	size := blobHeader + len(l.Dir) + 1
	for _, list := range vectors {
		size += 8
		for _, s := range list {
			size += 8 + len(s) + 1
		}
	}
	ne := binary.NativeEndian
	whole := header(askRun, j.slot, 0, size)
	b := whole[headerSize:]

	at := blobHeader
	for i, where := range [...]int{0, 64, 72} {
		ne.PutUint64(b[where:], uint64(blobBase+at))
		at += 8 * (len(vectors[i]) + 1)
	}
	dir, pointer := at, blobHeader
	at += copy(b[at:], l.Dir) + 1
	for _, list := range vectors {
		for _, s := range list {
			ne.PutUint64(b[pointer:], uint64(blobBase+at))
			pointer += 8
			at += copy(b[at:], s) + 1
		}
		pointer += 8
	}

	if t := l.Terminal.stream(); t >= 0 {
		ne.PutUint64(b[8:], flagTerminal|flagSession)
		ne.PutUint64(b[48:], uint64(t))
	}
	ne.PutUint64(b[40:], ^uint64(0))
	ne.PutUint64(b[56:], uint64(j.slot))
	if l.Dir != "" {
		ne.PutUint64(b[80:], uint64(blobBase+dir))
	}
	mask := l.Umask
	if mask == r.umask {
		mask = -1 // as it is
	}
	ne.PutUint64(b[88:], uint64(mask))
	return whole
}

// header begins a request that goes on for size bytes.
func header(ask, slot, arg uint32, size int) []byte {
	ne := binary.NativeEndian
	b := make([]byte, headerSize+size)
	ne.PutUint32(b, ask)
	ne.PutUint32(b[4:], slot)
	ne.PutUint32(b[8:], arg)
	ne.PutUint32(b[12:], uint32(size))
	return b
}

// send asks process 1 to start a command.
func (r *Resident) send(request []byte, streams [3]*os.File) error {
	if len(request) > maxRequest {
		return unix.E2BIG
	}
	rights := unix.UnixRights(int(streams[0].Fd()), int(streams[1].Fd()), int(streams[2].Fd()))
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.write(request, rights)
}

// write writes a request and what goes with it, which may take several writes.
// It waits while process 1 is busy. The caller holds sending.
func (r *Resident) write(request, rights []byte) error {
	conn, err := r.control.SyscallConn()
	if err != nil {
		return ErrEnded
	}
	sent := 0
	werr := conn.Write(func(fd uintptr) bool {
		sent, err = unix.SendmsgN(int(fd), request, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err == nil && werr == nil && sent < len(request) {
		_, err = r.control.Write(request[sent:])
	}
	if werr != nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return ErrEnded
	}
	return err
}

// openPeer opens the other end of a pseudo-terminal.
func openPeer(master, flags int) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// openTerminal opens a pseudo-terminal in the sandbox's own /dev/pts. The job
// gets one end, the other is for the command.
func (r *Resident) openTerminal(j *Job, t *Terminal) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	if r.bare {
		return nil, ErrNoTerminal
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return nil, ErrEnded
	}
	master, err := unix.Open("/proc/"+strconv.Itoa(r.Pid)+"/root/dev/pts/ptmx", flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	peer := -1
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil && t.Termios != nil {
		err = unix.IoctlSetTermios(master, unix.TCSETS, t.Termios)
	}
	if err == nil && t.Size != nil {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, t.Size)
	}
	if err == nil {
		peer, err = openPeer(master, flags)
	}
	if err != nil {
		_ = unix.Close(master)
		return nil, fmt.Errorf("set up a terminal: %w", err)
	}
	j.Terminal = os.NewFile(uintptr(master), "terminal")
	return os.NewFile(uintptr(peer), "terminal"), nil
}
