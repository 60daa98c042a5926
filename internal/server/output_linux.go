package server

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// output collects what a command writes to one of its streams: in memory, or in
// a file that is made when there is something to put in. A byte is either still
// in the pipe or already there, whatever ends this process.
type output struct {
	limit int64  // of what is kept
	path  string // of the file; empty for memory

	mu      sync.Mutex
	memory  []byte
	file    *os.File
	kept    int64 // bytes that can be read
	written int64 // bytes that the command wrote
	whole   bool  // nothing more will come
	grown   chan struct{}
	source  *os.File // nil once it is closed
	plain   bool     // the source cannot be spliced: a terminal
	hungUp  bool     // a terminal has said once that nobody has it open any more
	err     error    // of the file: what came after it is lost
}

func newOutput(path string, limit int64) *output {
	return &output{path: path, limit: limit, grown: make(chan struct{})}
}

// resume takes up what an earlier process has collected.
func (o *output) resume() error {
	f, err := os.OpenFile(o.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	o.file, o.kept, o.written = f, info.Size(), info.Size()
	return nil
}

// follow collects from a descriptor until its end. The output closes it.
func (o *output) follow(source *os.File, plain bool) {
	o.mu.Lock()
	o.source, o.plain = source, plain
	o.mu.Unlock()
	go o.pump(source)
}

func (o *output) pump(source *os.File) {
	raw, err := source.SyscallConn()
	if err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			for {
				more, end := o.take(int(fd))
				if end || !more {
					return end
				}
			}
		})
	}
	o.finish()
}

// finish says that nothing more comes.
func (o *output) finish() {
	o.mu.Lock()
	source := o.source
	o.source = nil
	if !o.whole {
		o.whole = true
		o.announce()
	}
	o.mu.Unlock()
	if source != nil {
		_ = source.Close() // waits for who takes from it, and wants the mutex
	}
}

// drain takes what is there without waiting for more.
func (o *output) drain() {
	o.mu.Lock()
	source := o.source
	o.mu.Unlock()
	if source == nil {
		return
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed: all was taken
		for {
			if more, end := o.take(int(fd)); end || !more {
				return
			}
		}
	})
}

// piece is how much is taken at a time: as much as a pipe usually holds.
const piece = 64 << 10

// take moves a piece, if there is one. It holds the mutex no longer than that
// takes.
func (o *output) take(fd int) (more, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.whole {
		return false, true
	}
	n, err := o.move(fd)
	switch {
	case errors.Is(err, unix.EINTR):
		return true, false
	case errors.Is(err, unix.EAGAIN):
		return false, false
	case errors.Is(err, unix.EIO) && o.plain && !o.hungUp:
		// The kernel looks for what was written first and then whether the last
		// writer has gone: what came in between is only found the next time.
		o.hungUp = true
		return true, false
	case err != nil || n == 0: // of a terminal that nobody has open any more, EIO
		return false, true
	}
	o.written += int64(n)
	o.announce()
	return true, false
}

// announce wakes who waits for more. The mutex is held.
func (o *output) announce() {
	close(o.grown)
	o.grown = make(chan struct{})
}

func (o *output) move(fd int) (int, error) {
	room := o.limit - o.kept
	if room <= 0 || o.err != nil {
		return o.discard(fd)
	}
	if o.path == "" || o.plain {
		return o.copy(fd, room)
	}
	if o.file == nil {
		if n, err := o.look(fd); n == 0 {
			return 0, err
		}
	}
	if err := o.open(); err != nil {
		return o.discard(fd)
	}
	at := o.kept
	n, err := unix.Splice(fd, nil, int(o.file.Fd()), &at, int(min(room, 16*piece)), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if err == unix.EINVAL { // a file system that takes no pages
		o.plain = true
		return o.copy(fd, room)
	}
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		o.err = err // no space is left, most likely
		return o.discard(fd)
	}
	o.kept += max(int64(n), 0)
	return int(n), err
}

// look says whether something is there, and takes nothing. If not, the error says
// whether something may come.
func (o *output) look(fd int) (int, error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(poll, 0); err != nil {
		return 0, err
	}
	switch {
	case poll[0].Revents&unix.POLLIN != 0:
		return 1, nil
	case poll[0].Revents != 0:
		return 0, nil // nobody can write any more
	}
	return 0, unix.EAGAIN
}

// open makes the file.
func (o *output) open() error {
	if o.file != nil {
		return nil
	}
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		o.err = err
		return err
	}
	o.file = f
	return nil
}

var pieces = sync.Pool{New: func() any { return new([piece]byte) }}

func (o *output) copy(fd int, room int64) (int, error) {
	buf := pieces.Get().(*[piece]byte)
	defer pieces.Put(buf)
	n, err := unix.Read(fd, buf[:])
	if err != nil || n <= 0 {
		return n, err
	}
	data := buf[:min(int64(n), room)]
	if o.path == "" {
		o.memory = append(o.memory, data...)
		o.kept += int64(len(data))
		return n, nil
	}
	if err := o.open(); err != nil {
		return n, nil // it is gone; the next is discarded
	}
	m, err := o.file.WriteAt(data, o.kept)
	o.kept += int64(m)
	o.err = err
	return n, nil
}

// discard takes what is not kept, so that the command goes on.
func (o *output) discard(fd int) (int, error) {
	buf := pieces.Get().(*[piece]byte)
	defer pieces.Put(buf)
	return unix.Read(fd, buf[:])
}

// sizes says how much can be read, and how much the command wrote.
func (o *output) sizes() (kept, written int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept, o.written
}

// after returns what is kept from an offset on, up to the size of the buffer. If
// there is nothing, more is closed when there may be, and nil if there will not.
func (o *output) after(offset int64, buf []byte) (n int, more <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset >= o.kept {
		if o.whole {
			return 0, nil, nil
		}
		return 0, o.grown, nil
	}
	size := min(int64(len(buf)), o.kept-offset)
	if o.path == "" {
		return copy(buf[:size], o.memory[offset:]), nil, nil
	}
	n, err = o.file.ReadAt(buf[:size], offset)
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	return n, nil, err
}

// remove forgets everything.
func (o *output) remove() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit, o.memory = 0, nil
	if o.file != nil {
		_ = o.file.Close()
		_ = os.Remove(o.path)
		o.file, o.kept = nil, 0
	}
}
