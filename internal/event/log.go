package event

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxRead bounds a line that is read. It is more than any version writes.
const maxRead = 1 << 20

// Line is one line of an audit log.
type Line struct {
	Raw   []byte // without the line end; valid until the function that got it returns
	Event *Event
	Err   error // why there is no Event
}

// Log reads an audit log, rotated files first. It is not safe for concurrent
// use.
type Log struct {
	// Since lets files be passed over that nobody has written to since then.
	Since time.Time

	dir   string
	files []*logFile // oldest first
}

// OpenLog returns a Log of the files in dir. It opens nothing yet.
func OpenLog(dir string) *Log { return &Log{dir: dir} }

// Read passes on every line that was added since the last call, or at first all
// there are. It holds on to the files it has found, so that it misses nothing
// and repeats nothing when they are rotated in between. A log that does not
// exist has no lines.
func (l *Log) Read(each func(Line)) error {
	if err := l.find(); err != nil {
		return err
	}
	kept := l.files[:0]
	for _, f := range l.files {
		if err := f.read(each); err != nil {
			return err
		}
		if f.listed {
			kept = append(kept, f)
			continue
		}
		f.finish(each)
		_ = f.Close()
	}
	clear(l.files[len(kept):])
	l.files = kept
	return nil
}

// Finish passes on lines that have no end: at the end of a file that is still
// written to, or where the disk was full. Read cannot tell and waits.
func (l *Log) Finish(each func(Line)) {
	for _, f := range l.files {
		f.finish(each)
	}
}

// Close closes the files.
func (l *Log) Close() {
	for _, f := range l.files {
		_ = f.Close() // only read
	}
	l.files = nil
}

// find brings l.files up to date. While it looks, nobody renames.
func (l *Log) find() error {
	if err := checkDir(l.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	// Where no lock can be had, nobody can rename either.
	if lock, err := openPrivate(filepath.Join(l.dir, lockName), os.O_RDWR|os.O_CREATE); err == nil {
		defer lock.Close()
		_ = flock(lock, syscall.LOCK_SH)
	}
	numbers, err := l.numbers()
	if err != nil {
		return err
	}
	for _, f := range l.files {
		f.listed = false
	}
	for _, n := range numbers {
		f, err := l.open(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.listed = true
		if isNew := !slices.Contains(l.files, f); isNew && f.info.ModTime().Before(l.Since) {
			_ = f.Close() // only read
		} else if isNew {
			l.files = append(l.files, f)
		}
	}
	return nil
}

// numbers are those of the files that exist, the oldest file first.
func (l *Log) numbers() ([]int, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), auditName)
		if !ok {
			continue
		}
		if rest == "" {
			numbers = append(numbers, 0)
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
		if err == nil && n > 0 && rest == "."+strconv.Itoa(n) {
			numbers = append(numbers, n)
		}
	}
	slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(b, a) })
	return numbers, nil
}

// open returns the n-th file, which may be one that is open already.
func (l *Log) open(n int) (*logFile, error) {
	file, err := openPrivate((&Audit{Dir: l.dir}).rotated(n), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	for _, f := range l.files {
		if os.SameFile(f.info, info) {
			return f, file.Close()
		}
	}
	return &logFile{File: file, info: info}, nil
}

// logFile is a file that is read as far as it goes, again and again.
type logFile struct {
	*os.File
	info   fs.FileInfo
	listed bool
	line   []byte // the beginning of a line whose end was not read yet
	tooBig bool   // and of which the rest is skipped
}

func (f *logFile) read(each func(Line)) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		f.feed(buf[:n], each)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *logFile) feed(data []byte, each func(Line)) {
	for len(data) > 0 {
		part, rest, whole := bytes.Cut(data, []byte("\n"))
		if len(f.line)+len(part) > maxRead {
			f.tooBig = true
			part = part[:maxRead-len(f.line)]
		}
		f.line = append(f.line, part...)
		if whole {
			f.finish(each)
		}
		data = rest
	}
}

// finish passes on the line that was begun. A line that was cut short by a full
// disk has the next one on its heels, which is whole.
func (f *logFile) finish(each func(Line)) {
	line, tooBig := f.line, f.tooBig
	f.line, f.tooBig = f.line[:0], false
	if len(line) == 0 {
		return
	}
	if tooBig {
		each(Line{Raw: line, Err: fmt.Errorf("longer than %d bytes", maxRead)})
		return
	}
	e, err := Decode(line)
	at := bytes.LastIndex(line, []byte(lineStart))
	if err == nil || at <= 0 {
		each(Line{line, e, err})
		return
	}
	each(Line{Raw: line[:at], Err: err})
	e, err = Decode(line[at:])
	each(Line{line[at:], e, err})
}
