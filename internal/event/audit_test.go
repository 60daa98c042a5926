package event

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// The test binary is also a process that appends to an audit log:
//
//	event.test append DIR NAME COUNT MAXSIZE FILELIMIT
func TestMain(m *testing.M) {
	if len(os.Args) == 7 && os.Args[1] == "append" {
		if err := appendEvents(os.Args[2:]); err != nil {
			fmt.Println(err)
		}
		syscall.Exit(0) // os.Exit waits for the race detector
	}
	os.Exit(m.Run())
}

func appendEvents(args []string) error {
	count, _ := strconv.Atoi(args[2])
	size, _ := strconv.ParseInt(args[3], 10, 64)
	if limit, _ := strconv.ParseUint(args[4], 10, 64); limit > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	a := &Audit{Dir: args[0], MaxSize: size, Keep: 1000}
	emitNumbered(a, args[1], count)
	return a.Err()
}

// appender starts a process that appends.
func appender(t *testing.T, dir, name string, count int, maxSize, fileLimit int64) *exec.Cmd {
	t.Helper()
	return exec.Command(os.Args[0], "append", dir, name, strconv.Itoa(count),
		strconv.FormatInt(maxSize, 10), strconv.FormatInt(fileLimit, 10))
}

// emitNumbered emits events of different lengths that a reader can count.
func emitNumbered(a *Audit, name string, count int) {
	for i := range count {
		e := New(Deny)
		e.Sandbox, e.Pid, e.Path = name, i+1, strings.Repeat("x", i*7919%3000)
		a.Emit(e)
	}
}

// auditDir is where an audit log can be made; it does not exist yet.
func auditDir(t *testing.T) string { return filepath.Join(t.TempDir(), "state", "bailey") }

// readAll returns the events and the number of broken lines.
func readAll(t *testing.T, dir string) (events []*Event, broken int) {
	t.Helper()
	l := OpenLog(dir)
	defer l.Close()
	each := func(line Line) {
		if len(line.Raw) > maxRead {
			t.Errorf("a line of %d bytes", len(line.Raw))
		}
		if line.Err != nil {
			broken++
			return
		}
		events = append(events, line.Event)
	}
	if err := l.Read(each); err != nil {
		t.Fatal(err)
	}
	l.Finish(each)
	return events, broken
}

// wantNumbered checks that each writer's events are all there, once.
func wantNumbered(t *testing.T, events []*Event, writers, count int) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range events {
		seen[e.Sandbox+"/"+strconv.Itoa(e.Pid)]++
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", key, n)
		}
	}
	if len(seen) != writers*count {
		t.Errorf("got %d different events, want %d", len(seen), writers*count)
	}
}

func TestProcessesShareALogWithoutLosingOrTearingLines(t *testing.T) {
	dir := auditDir(t)
	const writers, count, size = 8, 200, 64 << 10
	var running []*exec.Cmd
	for i := range writers {
		cmd := appender(t, dir, fmt.Sprint("w", i), count, size, 0)
		cmd.Stdout = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	events, broken := readAll(t, dir)
	if broken > 0 {
		t.Errorf("%d lines are broken", broken)
	}
	wantNumbered(t, events, writers, count)
	if len(rotatedFiles(t, dir)) == 0 {
		t.Error("nothing was rotated")
	}
}

func TestHandlesOfOneProcessShareALogWithoutLosingOrTearingLines(t *testing.T) {
	dir := auditDir(t)
	const writers, count = 8, 200
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			a := &Audit{Dir: dir, MaxSize: 64 << 10, Keep: 1000}
			defer a.Close()
			emitNumbered(a, fmt.Sprint("w", i), count)
			if err := a.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	events, broken := readAll(t, dir)
	if broken > 0 {
		t.Errorf("%d lines are broken", broken)
	}
	wantNumbered(t, events, writers, count)
}

func rotatedFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, auditName+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRotationKeepsTheYoungestFiles(t *testing.T) {
	dir := auditDir(t)
	a := &Audit{Dir: dir, MaxSize: 10 << 10, Keep: 3}
	defer a.Close()
	emitNumbered(a, "w", 300)
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	if files := rotatedFiles(t, dir); len(files) != 3 {
		t.Errorf("got %q, want 3 rotated files", files)
	}
	for _, file := range append(rotatedFiles(t, dir), a.path()) {
		if info, err := os.Stat(file); err != nil || info.Size() > a.MaxSize || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	events, _ := readAll(t, dir)
	if len(events) == 0 {
		t.Fatal("nothing is left")
	}
	for i, e := range events {
		if want := 300 - len(events) + i + 1; e.Pid != want {
			t.Fatalf("event %d is number %d, want %d: the last in order", i, e.Pid, want)
		}
	}
}

func TestNothingIsMadeBeforeTheFirstEvent(t *testing.T) {
	dir := auditDir(t)
	a := &Audit{Dir: dir}
	if _, err := os.Lstat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	a.Emit(New(Deny))
	defer a.Close()
	for path, want := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, a.path(): 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}

func TestPlacesThatAreNotOursAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(dir string) error // of a directory with a file "other"
		want  string
	}{
		"symbolic link": {func(dir string) error { return os.Symlink("other", filepath.Join(dir, auditName)) }, "is a symbolic link; remove it"},
		"dangling link": {func(dir string) error { return os.Symlink("new", filepath.Join(dir, auditName)) }, "is a symbolic link; remove it"},
		"hard link":     {func(dir string) error { return os.Link(filepath.Join(dir, "other"), filepath.Join(dir, auditName)) }, "is a hard link"},
		"directory":     {func(dir string) error { return os.Mkdir(filepath.Join(dir, auditName), 0o700) }, "is a directory"},
		"pipe":          {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, auditName), 0o600) }, "no such device"},
		"others' file": {func(dir string) error {
			file := filepath.Join(dir, auditName)
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(file, 0o620)
		}, "can be written by others; run: chmod go-w "},
		"others' directory": {func(dir string) error { return os.Chmod(dir, 0o777) }, "can be written by others"},
		"linked directory": {func(dir string) error {
			if err := os.Rename(dir, dir+".real"); err != nil {
				return err
			}
			return os.Symlink(dir+".real", dir)
		}, "is not a directory"},
		"file for a directory": {func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := auditDir(t)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(dir, "other")
			if err := os.WriteFile(other, []byte("untouched"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			a := &Audit{Dir: dir}
			defer a.Close()
			a.Emit(New(Deny))
			a.Emit(&Event{Kind: Deny, Count: 2})
			err := a.Err()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), "; events not recorded: 3") {
				t.Errorf("got %v, want %q and 3 events", err, c.want)
			}
			if data, err := os.ReadFile(other); err == nil && string(data) != "untouched" {
				t.Errorf("another file was written: %q", data)
			}
			if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil {
				t.Error("a file was made through the link")
			}
		})
	}
}

func TestFileOfAnotherOwnerIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	for _, name := range []string{".", auditName} {
		dir := auditDir(t)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, auditName)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		a := &Audit{Dir: dir}
		a.Emit(New(Deny))
		if err := a.Err(); err == nil || !strings.Contains(err.Error(), "belongs to another user (uid 12345)") {
			t.Errorf("%s: got %v", name, err)
		}
		if info, err := os.Stat(file); err != nil || info.Size() != 0 {
			t.Errorf("%s: it was written: %v", name, err)
		}
		if err := OpenLog(dir).Read(func(Line) {}); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%s: reading it: %v", name, err)
		}
		a.Close()
	}
}

func TestRelativePlaceIsRefused(t *testing.T) {
	a := &Audit{Dir: "state/bailey"}
	a.Emit(New(Deny))
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), "not an absolute path") {
		t.Errorf("got %v", err)
	}
}

// The limit stands for a full disk: it cuts a line short, and then refuses.
func TestFullDiskIsReportedAndHarmless(t *testing.T) {
	dir := auditDir(t)
	out, err := appender(t, dir, "limited", 100, 0, 10_000).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, auditName))
	if err != nil || info.Size() != 10_000 {
		t.Fatalf("got %v (%v), want a file of 10,000 bytes", info, err)
	}
	before, broken := readAll(t, dir)
	if broken != 1 {
		t.Errorf("%d lines are broken, want 1: the last", broken)
	}
	if want := fmt.Sprintf("events not recorded: %d\n", 100-len(before)); !strings.HasSuffix(string(out), want) {
		t.Errorf("got %q, want %q", out, want)
	}
	// With room again, the next line is right behind half of one, and is read.
	a := &Audit{Dir: dir}
	defer a.Close()
	emitNumbered(a, "after", 2)
	after, broken := readAll(t, dir)
	if len(after) != len(before)+2 || broken != 1 {
		t.Errorf("got %d events and %d broken lines, want %d and 1", len(after), broken, len(before)+2)
	}
}

func TestWriterTriesAgainLater(t *testing.T) {
	dir := auditDir(t)
	state := filepath.Dir(dir)
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Audit{Dir: dir}
	defer a.Close()
	a.Emit(New(Deny))
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	a.Emit(New(Deny))
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), "not a directory; events not recorded: 2") {
		t.Errorf("got %v", err)
	}
	a.retryAt = time.Time{}
	a.Emit(New(Deny))
	if events, _ := readAll(t, dir); len(events) != 1 {
		t.Errorf("got %d events, want 1", len(events))
	}
}

// A process that is stopped while it rotates must not stop the others.
func TestRotationUnderWayDoesNotHoldUpWriters(t *testing.T) {
	dir := auditDir(t)
	a := &Audit{Dir: dir, MaxSize: 2000}
	defer a.Close()
	a.Emit(New(Deny))
	lock, err := openPrivate(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := flock(lock, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		a.Emit(New(Deny))
	}
	if files := rotatedFiles(t, dir); len(files) != 0 {
		t.Errorf("rotated without the lock: %q", files)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	a.Emit(New(Deny))
	if files := rotatedFiles(t, dir); len(files) != 1 {
		t.Errorf("got %q, want one rotated file", files)
	}
	if events, _ := readAll(t, dir); len(events) != 52 || a.Err() != nil {
		t.Errorf("got %d events, %v; want 52", len(events), a.Err())
	}
}

func TestLineInARemovedFileIsWrittenAgain(t *testing.T) {
	a := &Audit{Dir: auditDir(t)}
	defer a.Close()
	line := New(Deny).AppendLine(nil)
	if err := a.ready(int64(len(line))); err != nil {
		t.Fatal(err)
	}
	if kept, err := a.put(line); !kept || err != nil {
		t.Errorf("a file that is there: %v, %v", kept, err)
	}
	if err := os.Remove(a.path()); err != nil {
		t.Fatal(err)
	}
	if kept, err := a.put(line); kept || err != nil {
		t.Errorf("a file that was removed: %v, %v", kept, err)
	}
	a.Emit(New(Deny))
	if events, _ := readAll(t, a.Dir); len(events) != 1 {
		t.Errorf("got %d events, want 1", len(events))
	}
}

func TestRenamedFileIsLeftToItsNewName(t *testing.T) {
	a := &Audit{Dir: auditDir(t)}
	defer a.Close()
	a.Emit(New(Deny))
	if err := os.Rename(a.path(), filepath.Join(a.Dir, "mine")); err != nil {
		t.Fatal(err)
	}
	a.Emit(New(Deny))
	if events, _ := readAll(t, a.Dir); len(events) != 1 {
		t.Errorf("got %d events, want 1", len(events))
	}
}

func TestFileThatSomebodyElseRotatedIsNotRotatedAgain(t *testing.T) {
	dir := auditDir(t)
	a, b := &Audit{Dir: dir}, &Audit{Dir: dir}
	defer a.Close()
	defer b.Close()
	a.Emit(New(Deny))
	b.Emit(New(Deny))
	for _, one := range []*Audit{a, b} {
		if err := one.rotate(); err != nil {
			t.Error(err)
		}
		a.Emit(New(Deny)) // makes the new file
	}
	if files := rotatedFiles(t, dir); len(files) != 1 {
		t.Errorf("got %q, want one rotated file", files)
	}
}

// A gap is what a process leaves that dies while it renames.
func TestRotationFillsAGapFirst(t *testing.T) {
	a := &Audit{Dir: auditDir(t), MaxSize: 100, Keep: 3}
	defer a.Close()
	emit := func(n int) {
		e := New(Deny)
		e.Pid = n
		a.Emit(e)
	}
	for n := range 4 {
		emit(n + 1)
	}
	if err := os.Remove(a.rotated(2)); err != nil { // the event 2
		t.Fatal(err)
	}
	emit(5)
	var got []int
	events, _ := readAll(t, a.Dir)
	for _, e := range events {
		got = append(got, e.Pid)
	}
	if fmt.Sprint(got) != "[1 3 4 5]" {
		t.Errorf("got %v, want [1 3 4 5]", got)
	}
}
