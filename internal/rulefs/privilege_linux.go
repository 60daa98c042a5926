package rulefs

import (
	"errors"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/rulefs/views"
)

// startPlain starts this program again without any capability. They belong to
// threads, and a Go program has several, so only a new program is sure to have
// none.
func startPlain(args []string, files []*os.File, dir string) (*os.Process, error) {
	type result struct {
		process *os.Process
		err     error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is unfit for anything else
		if err := dropOnExec(); err != nil {
			done <- result{nil, err}
			return
		}
		p, err := os.StartProcess("/proc/self/exe", args, &os.ProcAttr{Dir: dir, Env: os.Environ(), Files: files})
		done <- result{p, err}
	}()
	r := <-done
	return r.process, r.err
}

// dropOnExec leaves nothing from which a program that this thread executes could
// have a capability.
func dropOnExec() error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		// An ordinary user may not, and need not: nothing comes from this set
		// for who is not root. Beyond what the kernel knows it is EINVAL.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	return errors.Join(
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// opener asks the process that has capabilities for files that this user owns.
//
// The kernel decides whether a sandbox may open a file by the mode it has then.
// The mode may have changed when the file is read or written, as that of every
// file that is made read-only and then filled. Its owner could change it back, so
// to open it in spite of its mode lets nobody do more than they can.
type opener struct {
	mu     sync.Mutex // held from a request to its answer
	socket int
}

// ask opens a file by a descriptor that names it.
type openRequest struct{ Flags int }

func (o *opener) open(path, flags int) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := views.Send(o.socket, openRequest{flags}, unix.UnixRights(path)); err != nil {
		return -1, unix.EACCES
	}
	var answer views.Answer
	fd, err := views.Receive(o.socket, &answer)
	if err != nil || fd < 0 {
		return -1, unix.EACCES
	}
	return fd, nil
}

// serveOpener is the other end: it opens regular files of its own user.
func serveOpener(socket int) {
	for {
		var r openRequest
		path, err := views.Receive(socket, &r)
		if err != nil {
			return
		}
		var rights []byte
		fd, err := openOwn(path, r.Flags)
		if err == nil {
			rights = unix.UnixRights(fd)
		}
		_ = views.Send(socket, views.Answer{}, rights) // it may be gone
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func openOwn(path, flags int) (int, error) {
	if path < 0 {
		return -1, unix.EBADF
	}
	h := newHandle(path)
	defer h.release()
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return -1, unix.EACCES
	}
	return openat(unix.AT_FDCWD, h.link(), flags&unix.O_ACCMODE|unix.O_CLOEXEC, 0)
}
