package event

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Names in the directory of an audit log. Rotated files have a number added,
// audit.jsonl.1 the youngest.
const (
	auditName = "audit.jsonl"
	lockName  = "audit.lock"
)

const (
	defaultMaxSize = 8 << 20
	defaultKeep    = 4
)

// AuditDir is the directory of the audit log below a state directory, such as
// $XDG_STATE_HOME.
func AuditDir(stateHome string) string { return filepath.Join(stateHome, "bailey") }

// Audit appends events to a file that many processes share. Nothing is opened
// before the first event, and nothing that goes wrong reaches the caller of
// Emit: Err has it.
//
// An event is one write(2) to a file opened for appending, which the kernel does
// not mix with others. No lock is taken for it, so that a process that is
// stopped stops nobody else. What makes that safe when files are rotated: a
// renamed file is still read, so a line that lands there is not lost; and a
// file that was removed for its age has no name any more, which is seen after
// the write, and the line is written again.
type Audit struct {
	// Dir holds the files. It is made with mode 0700 if it is missing.
	Dir string
	// MaxSize is the size at which a file is rotated, in bytes; 0 means 8 MiB.
	MaxSize int64
	// Keep is how many rotated files are kept; 0 means 4.
	Keep int

	mu      sync.Mutex
	file    *os.File
	info    fs.FileInfo // of file, for os.SameFile
	err     error       // the first
	lost    int
	retryAt time.Time // after a failure to open
}

var _ Sink = (*Audit)(nil)

// Emit implements Sink.
func (a *Audit) Emit(e *Event) {
	line := e.AppendLine(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.append(line); err != nil {
		a.lost += e.times()
		a.note(err)
	}
}

// Write appends a line, newline included, to the log as Emit does.
func (a *Audit) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.append(line); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Err returns the first thing that went wrong and how many events are missing
// because of it and what followed, or nil.
func (a *Audit) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err == nil:
		return nil
	case a.lost == 0:
		return fmt.Errorf("audit log: %w", a.err)
	}
	return fmt.Errorf("audit log: %w; events not recorded: %d", a.err, a.lost)
}

// Close closes the file. A later event opens it again.
func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.close()
}

func (a *Audit) close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file, a.info = nil, nil
	return err
}

func (a *Audit) note(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *Audit) path() string { return filepath.Join(a.Dir, auditName) }

func (a *Audit) append(line []byte) error {
	const attempts = 3 // each failure takes a whole round of rotations by others
	for range attempts {
		if err := a.ready(int64(len(line))); err != nil {
			return err
		}
		if kept, err := a.put(line); kept || err != nil {
			return err
		}
	}
	return errors.New(plain.Word(a.path()) + " is removed again and again")
}

// put writes a line, and reports whether the file still has a name.
func (a *Audit) put(line []byte) (kept bool, err error) {
	if err := writeOnce(a.file, line); err != nil {
		return false, err
	}
	info, err := a.file.Stat()
	return err == nil && links(info) > 0, err
}

// ready makes a.file the file that bears the log's name, with room for size
// bytes.
func (a *Audit) ready(size int64) error {
	if err := a.reopen(); err != nil {
		return err
	}
	limit := a.MaxSize
	if limit == 0 {
		limit = defaultMaxSize
	}
	if now := a.info.Size(); now == 0 || now+size <= limit {
		return nil
	}
	// Without rotation the log goes on in the file it has.
	if err := a.rotate(); err != nil {
		a.note(err)
	}
	return a.reopen()
}

// reopen opens the file unless it is open already and still bears the name.
func (a *Audit) reopen() error {
	if a.file != nil {
		info, err := os.Lstat(a.path())
		if err == nil && os.SameFile(info, a.info) {
			a.info = info
			return nil
		}
		if err := a.close(); err != nil {
			return err
		}
	}
	if time.Now().Before(a.retryAt) {
		return errNotYet
	}
	f, err := a.open()
	if err != nil {
		// Each of very many denials would otherwise try it.
		a.retryAt = time.Now().Add(time.Second)
		return err
	}
	if a.info, err = f.Stat(); err != nil {
		_ = f.Close()
		return err
	}
	a.file = f
	return nil
}

// errNotYet always comes after the error that says why.
var errNotYet = errors.New("the file could not be opened a moment ago")

func (a *Audit) open() (*os.File, error) {
	if !filepath.IsAbs(a.Dir) {
		return nil, fmt.Errorf("%s is not an absolute path", plain.Word(a.Dir))
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkDir(a.Dir); err != nil {
		return nil, err
	}
	return openPrivate(a.path(), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
}

// rotate renames the files, unless another process is at it or was just now.
func (a *Audit) rotate() error {
	lock, err := openPrivate(filepath.Join(a.Dir, lockName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer lock.Close() // ends the lock
	err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", plain.Word(lock.Name()), err)
	}
	if info, err := os.Lstat(a.path()); err != nil || !os.SameFile(info, a.info) {
		return nil // somebody else has rotated it
	}
	return a.shift()
}

// shift gives each file the name of the next older one. It begins with the
// oldest that has to make room, so that a process that dies half way loses no
// file; the oldest of all is replaced.
func (a *Audit) shift() error {
	keep := a.Keep
	if keep == 0 {
		keep = defaultKeep
	}
	free := 1
	for free < keep {
		if _, err := os.Lstat(a.rotated(free)); err != nil {
			break
		}
		free++
	}
	for n := free; n > 0; n-- {
		if err := os.Rename(a.rotated(n-1), a.rotated(n)); err != nil {
			return err
		}
	}
	return nil
}

// rotated is the path of the n-th rotated file, and for 0 of the file itself.
func (a *Audit) rotated(n int) string {
	if n == 0 {
		return a.path()
	}
	return a.path() + "." + strconv.Itoa(n)
}
