package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/command"
)

// execs judges programs by their arguments. The kernel copies those after the
// call was let go on, so once the new program is in place, and before its first
// instruction, it is looked at again, stopped by ptrace: what is not what was
// judged is killed.
type execs struct {
	rules     *command.Rules
	programs  programs
	begun     bool             // process 1 has become itself
	examiners chan examination // idle threads
	started   int
	mu        sync.Mutex // guards started
}

// maxExaminers bounds how many execs are looked at at once.
const maxExaminers = 16

// examination is an exec that may go on, and what must come of it.
type examination struct {
	call    notification
	want    outcome
	process int // of the thread that called
}

// outcome is what a process must be after an exec.
type outcome struct {
	exe  identity // without the mount, which the kernel does not tell
	argv []string
}

// maxArguments is how long the words of a command may be together. Linux itself
// allows 6 MB at most, and only with an unlimited stack.
const maxArguments = 6 << 20

func (w *worker) exec(n *notification, dirfd, name, argv uint64, flags int) answer {
	if int(n.pid) == w.pid && !w.execs.begun {
		w.execs.begun = true // process 1 itself
		return pass
	}
	if w.execs.rules == nil && !w.rules.reads {
		return pass // it was only to be observed
	}
	x, errno := w.executable(n, dirfd, name, flags)
	if errno != 0 {
		return refuse(errno)
	}
	defer func() { _ = unix.Close(x.fd) }()
	if x.Argv, errno = w.readVector(n.pid, argv); errno != 0 {
		return refuse(errno)
	}
	final, errno := w.identifyProgram(x)
	if errno != 0 {
		return refuse(errno)
	}
	if !w.listener.isValid(n.id) {
		return refuse(unix.ESRCH)
	}
	if path, rule := w.unreadable(n, x); rule != nil {
		return w.denied(n, "exec", path, rule)
	}
	if w.execs.rules != nil {
		v := w.execs.rules.Judge(x.Exec)
		if v.Allowed {
			v = w.judgeLoaded(n, x)
		}
		if !v.Allowed {
			return w.deniedExec(n, x, v)
		}
	}
	return w.examine(n, outcome{exe: final, argv: x.words()})
}

// words are what the arguments will be. For a script the kernel puts its
// interpreter, what else stands in that line, and the script's path in the place
// of the first word.
func (x *program) words() []string {
	words, path := x.Argv, x.Path
	if len(words) == 0 {
		words = []string{""} // the kernel adds it
	}
	if x.byNumber != "" {
		path = x.byNumber
	}
	for _, in := range x.Interpreters {
		name, argument := command.Shebang(in.Line)
		front := []string{name}
		if argument != "" {
			front = append(front, argument)
		}
		words = append(append(front, path), words[1:]...)
		path = name
	}
	return words
}

// judgeLoaded judges the file that the dynamic loader is asked to run, which may
// be a copy.
func (w *worker) judgeLoaded(n *notification, x *program) command.Verdict {
	allowed := command.Verdict{Allowed: true}
	if !strings.HasPrefix(path.Base(x.Real), "ld") && len(x.Same) == 0 {
		return allowed
	}
	name, argv := command.Loaded(x.Argv)
	if name == "" {
		return allowed
	}
	fd, errno := w.openNamedProgram(n, atCwd, name, 0)
	if errno != 0 {
		return allowed // the loader will find nothing either
	}
	defer func() { _ = unix.Close(fd) }()
	e := command.Exec{Path: name, Argv: argv}
	if e.Real, errno = w.realPath(fd); errno == unix.ENAMETOOLONG {
		return command.Verdict{Reason: "its path is too long to be judged"}
	}
	e.Same = w.execs.programs.same(w, fd, e.Real)
	return w.execs.rules.Judge(e)
}

func (w *worker) deniedExec(n *notification, x *program, v command.Verdict) answer {
	why := v.Key
	if v.Rule != "" {
		why += " " + strconv.Quote(v.Rule)
	}
	return w.report(n, Denial{Op: "exec", Path: x.Real, Argv: x.Argv, Why: why, Where: v.Where, Fix: v.Fix})
}

// program is the file that an exec names.
type program struct {
	command.Exec
	fd       int    // by O_PATH
	byNumber string // what the kernel calls it, if it was given by a descriptor
	loader   string // what the file that will run says about that, see loaderOf
}

// executable opens the file that an exec names.
func (w *worker) executable(n *notification, dirfd, name uint64, flags int) (*program, unix.Errno) {
	text, errno := w.readString(n.pid, name)
	if errno != 0 {
		return nil, errno
	}
	x := &program{Exec: command.Exec{Path: text}}
	if fd, ok := ownDescriptor(text); ok {
		x.fd, errno = w.openOf(n, fd)
	} else if text == "" && flags&unix.AT_EMPTY_PATH != 0 {
		x.fd, errno = w.openOf(n, int(int32(dirfd)))
		x.byNumber = "/dev/fd/" + fdName(int(int32(dirfd)))
	} else {
		x.fd, errno = w.openNamedProgram(n, dirfd, text, flags)
		if int32(dirfd) != unix.AT_FDCWD && !strings.HasPrefix(text, "/") {
			x.byNumber = "/dev/fd/" + fdName(int(int32(dirfd))) + "/" + text
		}
	}
	if errno != 0 {
		return nil, errno
	}
	// A file without a name has none; one whose name is too long cannot be judged.
	if x.Real, errno = w.realPath(x.fd); errno == unix.ENAMETOOLONG {
		_ = unix.Close(x.fd)
		return nil, unix.EACCES
	}
	return x, 0
}

func (w *worker) openNamedProgram(n *notification, dirfd uint64, text string, flags int) (int, unix.Errno) {
	abs, errno := w.absolute(n, dirfd, text)
	if errno != 0 {
		return -1, errno
	}
	if flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		return w.openInside(abs, unix.O_NOFOLLOW)
	}
	return w.openInside(abs, 0)
}

// readVector copies a NULL-terminated array of strings.
func (w *worker) readVector(pid uint32, at uint64) ([]string, unix.Errno) {
	if at == 0 {
		return nil, 0
	}
	var out []string
	var block [64 * 8]byte
	for size := 0; ; {
		// Not over the end of a page, behind which there may be nothing.
		chunk := block[:min(len(block), int(pageSize-at%pageSize)&^7)]
		if len(chunk) == 0 {
			chunk = block[:8] // an array that is not aligned
		}
		if errno := readMemory(pid, at, chunk); errno != 0 {
			return nil, errno
		}
		for i := 0; i < len(chunk); i += 8 {
			word := binary.NativeEndian.Uint64(chunk[i:])
			if word == 0 {
				return out, 0
			}
			text, errno := w.readText(pid, word, maxWord, unix.E2BIG)
			if errno != 0 {
				return nil, errno
			}
			if size += len(text) + 9; size > maxArguments {
				return nil, unix.E2BIG
			}
			out = append(out, text)
		}
		at += uint64(len(chunk))
	}
}

// maxWord is how long one argument may be: MAX_ARG_STRLEN.
const maxWord = 128 << 10

// maxScripts is how many "#!" lines the kernel follows.
const maxScripts = 5

// identifyProgram fills in what is known about a file and the interpreters that
// it leads to, and returns the identity of the one that will run.
func (w *worker) identifyProgram(x *program) (identity, unix.Errno) {
	x.Same = w.execs.programs.same(w, x.fd, x.Real)
	fd := x.fd
	defer func() {
		if fd != x.fd {
			_ = unix.Close(fd)
		}
	}()
	for range maxScripts {
		line, ok := w.firstLine(fd)
		if !ok {
			if w.rules.reads {
				x.loader = w.loaderOf(fd)
			}
			id, err := identify(fd)
			id.mount = 0
			if err != nil {
				return id, errnoOf(err)
			}
			return id, 0
		}
		name, _ := command.Shebang(line)
		next, errno := w.openInside(name, 0)
		if errno != 0 || name == "" {
			return identity{}, max(errno, unix.ENOENT)
		}
		if fd != x.fd {
			_ = unix.Close(fd)
		}
		fd = next
		in := command.Interpreter{Line: line}
		if in.Real, errno = w.realPath(fd); errno == unix.ENAMETOOLONG {
			return identity{}, unix.EACCES
		}
		in.Same = w.execs.programs.same(w, fd, in.Real)
		x.Interpreters = append(x.Interpreters, in)
	}
	return identity{}, unix.ELOOP
}

// firstLine returns the "#!" line of a script. A file that we cannot read is
// none to the kernel's mind either: it reads it with the caller's rights.
func (w *worker) firstLine(fd int) (string, bool) {
	var buf [256]byte // BINPRM_BUF_SIZE
	n := w.readBegin(fd, buf[:])
	if n < 2 || buf[0] != '#' || buf[1] != '!' {
		return "", false
	}
	line, _, _ := bytes.Cut(buf[:n], []byte{'\n'})
	return string(bytes.TrimRight(line, " \t\r")), true
}

// openContent opens a file to read it that was opened by O_PATH.
func (w *worker) openContent(fd int) (int, error) {
	return unix.Openat(w.self, fdName(fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
}

func (w *worker) readBegin(fd int, buf []byte) int {
	file, err := w.openContent(fd)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(file) }()
	n, _ := unix.Pread(file, buf, 0)
	return max(n, 0)
}

// examine lets an exec go on under the eyes of a thread that can look at what
// becomes of it. Ptrace belongs to a thread, and waiting for a process must not
// meet process 1, which belongs to the main one: there only what has a number that
// stays the same is waited for; see waitTraced.
func (w *worker) examine(n *notification, want outcome) answer {
	e := &w.execs
	x := examination{*n, want, processOf(n)}
	if !w.isWaiting() && (w != w.first || int(n.pid) == x.process) {
		w.performExec(&x)
		return answer{kind: answerLater}
	}
	select {
	case e.examiners <- x:
		return answer{kind: answerLater}
	default:
	}
	e.mu.Lock()
	start := e.started < maxExaminers
	if start {
		e.started++
	}
	e.mu.Unlock()
	if start {
		w.expectMore()
		w.users.Add(1)
		go w.runExaminer()
	}
	select {
	case e.examiners <- x:
		return answer{kind: answerLater}
	case <-w.ended:
		return refuse(unix.ESRCH)
	}
}

func (b *Broker) runExaminer() {
	defer b.leave()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	w, err := b.newThread()
	if err != nil {
		return
	}
	for {
		select {
		case x := <-b.execs.examiners:
			w.performExec(&x)
		case <-b.ended:
			return
		}
	}
}

// performExec attaches to the caller, lets the kernel perform the exec, and
// compares.
func (w *worker) performExec(x *examination) {
	pid := int(x.call.pid)
	if err := seize(pid); err != nil {
		// Somebody inside traces it already.
		w.reply(&x.call, w.report(&x.call, Denial{
			Op: "exec", Argv: x.want.argv, Why: "it is traced, so that command rules cannot be held",
		}))
		return
	}
	w.reply(&x.call, pass)
	process, ok := awaitExec(pid, x.process)
	if !ok {
		return
	}
	if !w.isAsWanted(process, &x.want) {
		if err := w.options.User.kill(process, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			panic(err) // never to be let go: it stays stopped, and ends with the thread that traces it
		}
		w.report(&x.call, Denial{Op: "exec", Argv: x.want.argv, Why: "another program or other arguments took the place of what was judged"})
	}
	detach(process)
}

// seize attaches to a thread, and makes it stop once it is back from the call,
// whether that went well or not.
func seize(pid int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL, 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// detach lets a stopped process go on. One that is being killed cannot be let
// go; its parent will hear of its end only after we did.
func detach(pid int) {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, 0, 0, 0)
	for errno != 0 {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if err != unix.EINTR && (err != nil || !status.Stopped()) {
			return
		}
	}
}

// awaitExec waits until the traced thread stops. If that is in a new program it
// returns the process, still stopped. Otherwise the exec has failed, or the
// thread has ended, and nothing is traced any more.
func awaitExec(thread, process int) (stopped int, ok bool) {
	for {
		var status unix.WaitStatus
		pid, err := waitTraced(thread, process, &status)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || !status.Stopped():
			return 0, false
		case status.TrapCause() == unix.PTRACE_EVENT_EXEC:
			return pid, true
		case int(status)>>16 == unix.PTRACE_EVENT_STOP:
			detach(pid)
			return 0, false
		default: // a signal is about to be delivered; it is
			_, _, _ = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_CONT, uintptr(pid), 0, uintptr(status.StopSignal()), 0, 0)
		}
	}
}

// waitTraced waits for a thread that the calling one traces. An exec gives it the
// number of its process, and the kernel does not wake who waits for the other one: of a
// thread that is not the first in its process, whatever the calling thread traces is
// waited for.
func waitTraced(thread, process int, status *unix.WaitStatus) (pid int, err error) {
	const own = unix.WALL | unix.WNOTHREAD
	if thread == process {
		return unix.Wait4(thread, status, own, nil)
	}
	for pid != thread && pid != process && err == nil {
		pid, err = unix.Wait4(-1, status, own, nil)
	}
	return pid, err
}

// isAsWanted says whether a process that has just executed something is what was
// judged.
func (w *worker) isAsWanted(pid int, want *outcome) bool {
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	fd, err := unix.Open(proc+"exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	id, err := identify(fd)
	_ = unix.Close(fd)
	id.mount = 0
	if err != nil || id != want.exe {
		return false
	}
	text, ok := readWhole(proc+"cmdline", maxArguments)
	if !ok {
		return false
	}
	return sameArguments(text, want) && (!w.rules.reads || w.mapsReadable(proc))
}

// sameArguments compares what the kernel copied with what was judged.
func sameArguments(cmdline []byte, want *outcome) bool {
	for _, word := range want.argv {
		if len(cmdline) <= len(word) || string(cmdline[:len(word)]) != word || cmdline[len(word)] != 0 {
			return false
		}
		cmdline = cmdline[len(word)+1:]
	}
	return len(cmdline) == 0
}

func readWhole(name string, limit int) ([]byte, bool) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 0, 4096)
	for len(buf) < limit {
		buf = slices.Grow(buf, 4096)
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, false
		}
		if n == 0 {
			return buf, true
		}
		buf = buf[:len(buf)+n]
	}
	return nil, false
}
