package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// site is a directory that is watched. What happens is read line by line.
type site struct {
	t     *testing.T
	dir   string
	lines chan string
	ended chan error
	stop  context.CancelFunc
}

// newSite watches a directory as w says, which may leave most of it open.
func newSite(t *testing.T, w Watch, prepare ...string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), lines: make(chan string), ended: make(chan error, 1)}
	for _, name := range prepare {
		s.do(os.MkdirAll(s.path(name), 0o755))
	}
	w.Open = func() (*os.File, func(), error) {
		top, err := os.Open(s.dir)
		return top, func() { _ = top.Close() }, err
	}
	if w.Path == "" {
		w.Path = "."
	}
	if w.Limit == 0 {
		w.Limit = 100
	}
	if w.Refresh == 0 {
		w.Refresh = time.Hour
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	ready := make(chan struct{})
	go func() {
		s.ended <- w.Run(ctx, func() error { close(ready); return nil }, func(changes []Change) error {
			for _, c := range changes {
				select {
				case s.lines <- [...]string{"", "made ", "changed ", "removed ", "lost "}[c.Kind] + c.Path:
				case <-ctx.Done():
				}
			}
			return nil
		})
	}()
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-s.ended:
		s.ended <- err
	}
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) write(name string) {
	s.t.Helper()
	s.do(os.WriteFile(s.path(name), []byte(name), 0o644))
}

// until reads up to a line, and returns all.
func (s *site) until(want string) (all []string) {
	s.t.Helper()
	for {
		select {
		case line := <-s.lines:
			all = append(all, line)
			if line == want {
				return all
			}
		case err := <-s.ended:
			s.t.Fatalf("ended with %v, before %q; got %q", err, want, all)
		}
	}
}

func TestChangesAreTold(t *testing.T) {
	s := newSite(t, Watch{Recursive: true}, "old/deep")
	s.write("old/deep/f")
	s.until("made old/deep/f")
	s.do(os.Chmod(s.path("old/deep/f"), 0o600))
	s.until("changed old/deep/f")
	s.do(os.Rename(s.path("old/deep/f"), s.path("g\xff")))
	s.until("removed old/deep/f")
	s.until("made g\xff")
	s.do(os.Remove(s.path("g\xff")))
	s.until("removed g\xff")
}

// TestNewDirectoriesAreWatched: what was in one before it could be is told too.
func TestNewDirectoriesAreWatched(t *testing.T) {
	s := newSite(t, Watch{Recursive: true})
	s.do(os.MkdirAll(s.path("a/b/c"), 0o755))
	s.write("a/b/c/f")
	s.until("made a/b/c/f")
	s.do(os.Rename(s.path("a"), s.path("z")))
	s.until("made z/b/c/f")
	s.write("z/b/c/g")
	if got := s.until("made z/b/c/g"); slices.Contains(got, "made a/b/c/g") {
		t.Errorf("told under the old name: %q", got)
	}
}

func TestOnlyEntriesOfTheDirectoryAreToldUnlessAskedFor(t *testing.T) {
	s := newSite(t, Watch{Path: "in"}, "in/below", "beside")
	s.write("beside/f")
	s.write("in/below/f")
	s.do(os.Mkdir(s.path("in/new"), 0o755))
	s.write("in/new/f")
	s.write("in/end")
	for _, line := range s.until("made in/end") {
		if strings.HasSuffix(line, "/f") {
			t.Errorf("got %q", line)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	other := t.TempDir()
	s := newSite(t, Watch{Recursive: true, Ignore: func(name string) bool { return name == "ignored" }}, "in")
	s.do(os.Symlink(other, s.path("in/out")))
	s.until("made in/out")
	s.do(os.WriteFile(filepath.Join(other, "f"), nil, 0o644))
	s.write("in/ignored")
	s.write("in/end")
	for _, line := range s.until("made in/end") {
		if strings.HasSuffix(line, "/f") || strings.HasSuffix(line, "ignored") {
			t.Errorf("got %q", line)
		}
	}
}

// TestTooMuchToTellIsToldAsLost: nobody reads while more happens than the kernel
// keeps, and what was made meanwhile is watched all the same.
func TestTooMuchToTellIsToldAsLost(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, Watch{Recursive: true})
	s.write("first") // whoever tells of it waits
	for i := range most/2 + 100 {
		name := s.path(strconv.Itoa(i % 2))
		s.do(os.Mkdir(name, 0o755))
		s.do(os.Remove(name))
	}
	s.do(os.Mkdir(s.path("unheard"), 0o755))
	s.until("lost .")
	s.write("unheard/f")
	s.until("made unheard/f")
}

func TestWatchesHaveALimit(t *testing.T) {
	s := newSite(t, Watch{Recursive: true, Limit: 3}, "a/b", "c")
	if err := <-s.ended; !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v", err)
	}
	s = newSite(t, Watch{Recursive: true, Limit: 3}, "a", "b")
	s.do(os.Mkdir(s.path("c"), 0o755))
	go func() {
		for range s.lines {
		}
	}()
	if err := <-s.ended; !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v", err)
	}
	close(s.lines)
}

func TestAWatchEndsWithItsDirectory(t *testing.T) {
	s := newSite(t, Watch{Path: "a/b", Recursive: true}, "a/b/c")
	s.do(os.Rename(s.path("a/b"), s.path("a/moved")))
	s.until("removed a/b")
	if err := <-s.ended; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestADirectoryThatIsReplacedIsWatchedAgain(t *testing.T) {
	s := newSite(t, Watch{Path: "a", Recursive: true}, "a", "other/deep")
	s.do(unix.Renameat2(unix.AT_FDCWD, s.path("a"), unix.AT_FDCWD, s.path("other"), unix.RENAME_EXCHANGE))
	s.until("lost a")
	s.write("a/deep/f")
	s.until("made a/deep/f")
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	s := newSite(t, Watch{})
	s.stop()
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTheTreeIsOpenedWhileNothingHappens(t *testing.T) {
	opened := make(chan struct{})
	dir := t.TempDir()
	w := Watch{Path: ".", Limit: 1, Refresh: time.Millisecond, Open: func() (*os.File, func(), error) {
		top, err := os.Open(dir)
		return top, func() { _ = top.Close(); opened <- struct{}{} }, err
	}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, func() error { return nil }, func([]Change) error { return nil }) }()
	for range 3 {
		<-opened
	}
	stop()
	for {
		select {
		case <-opened:
		case <-ended:
			return
		}
	}
}
