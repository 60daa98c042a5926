package event

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestFollowSeesEveryLineAcrossRotations(t *testing.T) {
	dir := auditDir(t)
	w, err := NewWatch(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer time.AfterFunc(30*time.Second, w.Close).Stop()

	const writers, count = 3, 300
	var running []*exec.Cmd
	for _, name := range []string{"a", "b", "c"}[:writers] {
		cmd := appender(t, dir, name, count, 32<<10, 0)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	l := OpenLog(dir)
	defer l.Close()
	var events []*Event
	for {
		if err := l.Read(func(line Line) {
			if line.Err != nil {
				t.Errorf("%v: %q", line.Err, line.Raw)
				return
			}
			events = append(events, line.Event)
		}); err != nil {
			t.Fatal(err)
		}
		if len(events) >= writers*count {
			break
		}
		if err := w.Wait(); err != nil {
			t.Fatalf("after %d events: %v", len(events), err)
		}
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	wantNumbered(t, events, writers, count)
	if len(rotatedFiles(t, dir)) == 0 {
		t.Error("nothing was rotated")
	}
}

func TestWatchWakesForEveryEvent(t *testing.T) {
	a := &Audit{Dir: auditDir(t), MaxSize: 1000}
	defer a.Close()
	w, err := NewWatch(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer time.AfterFunc(30*time.Second, w.Close).Stop()
	l := OpenLog(a.Dir)
	defer l.Close()
	seen := 0
	for want := 1; want <= 50; want++ {
		a.Emit(New(Deny))
		for seen < want {
			if err := w.Wait(); err != nil {
				t.Fatalf("after %d of %d events: %v", seen, want, err)
			}
			if err := l.Read(func(Line) { seen++ }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen != 50 {
		t.Errorf("got %d lines, want 50", seen)
	}
}

func TestWatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *Watch, dir string) error
		want error
	}{
		"closed":            {func(w *Watch, _ string) error { w.Close(); return nil }, fs.ErrClosed},
		"directory removed": {func(_ *Watch, dir string) error { return os.Remove(dir) }, fs.ErrNotExist},
	} {
		dir := auditDir(t)
		w, err := NewWatch(dir)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- w.Wait() }()
		if err := c.end(w, dir); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		w.Close()
	}
}
