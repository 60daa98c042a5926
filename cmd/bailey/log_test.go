package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
)

// audit is the audit log of the bench's user.
func (b *bench) audit() *event.Audit {
	a := &event.Audit{Dir: filepath.Join(b.home, ".local/state/bailey")}
	b.t.Cleanup(func() {
		if err := a.Err(); err != nil {
			b.t.Error(err)
		}
		a.Close()
	})
	return a
}

// record writes events of the last minutes, one a minute, the last just now.
func (b *bench) record(a *event.Audit, events ...event.Event) {
	b.env = append(b.env, "TZ=UTC")
	for i, e := range events {
		e.Time = time.Now().Add(-time.Duration(len(events)-1-i) * time.Minute)
		a.Emit(&e)
	}
}

func recorded() []event.Event {
	return []event.Event{
		{Kind: event.Exec, Sandbox: "s1", Process: "sh", Pid: 1, Path: "/usr/bin/git", Argv: []string{"git", "status"}},
		{Kind: event.Deny, Sandbox: "s1", Process: "git", Pid: 2, Op: event.OpCreate, Path: "/work/.env", Rule: "filesystem.denyWrite **/.env"},
		{Kind: event.Exit, Sandbox: "s1", Process: "git", Pid: 2, Status: new(1)},
		{Kind: event.Deny, Sandbox: "s2", Process: "node", Pid: 3, Op: event.OpOpen, Path: "/home/u/\x1b[2J\nbailey: forged", Rule: "not granted"},
	}
}

func TestLogShowsTheRecordNewestLast(t *testing.T) {
	b := newBench(t)
	b.record(b.audit(), recorded()...)
	got := b.run("log")
	var texts []string
	for line := range strings.Lines(got.stdout) {
		at, text := line[:len("2006-01-02 15:04:05.000")], line[len("2006-01-02 15:04:05.000"):]
		if when, err := time.ParseInLocation("2006-01-02 15:04:05.000", at, time.UTC); err != nil || time.Since(when) > 10*time.Minute {
			t.Errorf("%q: the time is %v (%v)", line, when, err)
		}
		texts = append(texts, text)
	}
	want := []string{
		" exec       s1 sh[1] exec /usr/bin/git status\n",
		" deny       s1 git[2] create /work/.env (filesystem.denyWrite **/.env)\n",
		" exit       s1 git[2] ended with status 1\n",
		` deny       s2 node[3] open $'/home/u/\x1b[2J\x0abailey: forged' (not granted)` + "\n",
	}
	if got.status != 0 || got.stderr != "" || !slices.Equal(texts, want) {
		t.Errorf("status %d, stderr %q\ngot  %q\nwant %q", got.status, got.stderr, texts, want)
	}
}

func TestLogFilters(t *testing.T) {
	b := newBench(t)
	b.record(b.audit(), recorded()...)
	for _, c := range []struct {
		args []string
		want string // the process numbers
	}{
		{nil, "1 2 2 3"},
		{[]string{"--kind", "deny"}, "2 3"},
		{[]string{"--kind", "deny", "--kind=exec"}, "1 2 3"},
		{[]string{"--sandbox", "s2"}, "3"},
		{[]string{"--path", "**/.env"}, "2"},
		{[]string{"--path", "/work/**"}, "2"},
		{[]string{"--process", "git"}, "2 2"},
		{[]string{"--since", "90s"}, "2 3"},
		{[]string{"--since", "1d"}, "1 2 2 3"},
		{[]string{"--since", "2026-01-02T15:04:05Z"}, "1 2 2 3"},
		{[]string{"--since", "2100-01-02"}, ""},
		{[]string{"-n", "2"}, "2 3"},
		{[]string{"-n1", "--kind", "exit"}, "2"},
		{[]string{"-n", "0"}, ""},
		{[]string{"-n", "9"}, "1 2 2 3"},
	} {
		got := b.run(append([]string{"log", "--json", "-q"}, c.args...)...)
		var pids []string
		for line := range strings.Lines(got.stdout) {
			e, err := event.Decode([]byte(line))
			if err != nil {
				t.Errorf("%q: %v", c.args, err)
				continue
			}
			pids = append(pids, string(rune('0'+e.Pid)))
		}
		if strings.Join(pids, " ") != c.want || got.status != 0 || got.stderr != "" {
			t.Errorf("%q: got %q, status %d, stderr %q; want %q", c.args, pids, got.status, got.stderr, c.want)
		}
	}
}

func TestLogOfManyFilesGivesTheLastFew(t *testing.T) {
	b := newBench(t)
	a := b.audit()
	a.MaxSize = 500
	for pid := range 100 {
		b.record(a, event.Event{Kind: event.Exit, Pid: pid + 1, Status: new(0)})
	}
	got := b.run("log", "-n", "4")
	for i, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
		if want := string([]byte{'[', '9', byte('7' + i), ']'}); i < 3 && !strings.Contains(line, want) {
			t.Errorf("line %d: got %q, want %s", i, line, want)
		}
	}
	if strings.Count(got.stdout, "\n") != 4 || !strings.Contains(got.stdout, "[100] ended") {
		t.Errorf("got %q", got.stdout)
	}
}

func TestLogWithoutARecordSaysSo(t *testing.T) {
	b := newBench(t)
	b.run("log").want(t, 0, "", "bailey: nothing is recorded that fits\n")
	b.run("log", "-q").want(t, 0, "", "")
}

func TestLogCountsBrokenLines(t *testing.T) {
	b := newBench(t)
	a := b.audit()
	b.record(a, recorded()...)
	file := filepath.Join(a.Dir, "audit.jsonl")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, slices.Concat([]byte("\x1b[2Jnonsense\n"), data, []byte(`{"version":7}`)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := b.run("log")
	if got.status != 0 || strings.Count(got.stdout, "\n") != 4 ||
		!strings.HasPrefix(got.stderr, "bailey: lines of the audit log that cannot be read: 2; the first: ") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("%+v", got)
	}
}

func TestLogRefusesWhatItDoesNotKnow(t *testing.T) {
	b := newBench(t)
	b.run("log", "--kind", "dney").wantError(t, "--kind dney: is no kind of event; did you mean deny?")
	b.run("log", "--kind", "something").wantError(t, "there are allow, deny, exec, exit, limit, connection")
	b.run("log", "--path", "[").wantError(t, "is not a pattern")
	b.run("log", "--path", "").wantError(t, "must not be empty")
	b.run("log", "--since", "yesterday").wantError(t, "is neither an age")
	b.run("log", "--since", "-5m").wantError(t, "is neither an age")
	b.run("log", "-n", "-1").wantError(t, "is not a number of events")
	b.run("log", "-n", "many").wantError(t, "is not a number of events")
	b.run("log", "deny").wantError(t, "log takes no argument deny")
}

func TestLogRefusesALink(t *testing.T) {
	b := newBench(t)
	a := b.audit()
	b.record(a, recorded()...)
	file := filepath.Join(a.Dir, "audit.jsonl")
	if err := os.Rename(file, file+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file+"-moved", file); err != nil {
		t.Fatal(err)
	}
	b.run("log").wantError(t, "is a symbolic link")
}

func TestSinceTakesAgesAndTimes(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Time{
		"10m":                         now.Add(-10 * time.Minute),
		"1h30m":                       now.Add(-90 * time.Minute),
		"2d":                          now.Add(-48 * time.Hour),
		"0s":                          now,
		"2026-01-01T10:00:00Z":        time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC),
		"2026-01-01T10:00:00.5+02:00": time.Date(2026, 1, 1, 8, 0, 0, 5e8, time.UTC),
		"2026-01-01T10:00:01":         time.Date(2026, 1, 1, 10, 0, 1, 0, time.Local),
		"2026-01-01T10:00":            time.Date(2026, 1, 1, 10, 0, 0, 0, time.Local),
		"2026-01-01 10:00":            time.Date(2026, 1, 1, 10, 0, 0, 0, time.Local),
		"2026-01-01 10:00:01":         time.Date(2026, 1, 1, 10, 0, 1, 0, time.Local),
		"2026-01-01":                  time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local),
	} {
		var l logRequest
		if err := l.setSince(v, now); err != nil || !l.filter.Since.Equal(want) {
			t.Errorf("%s: got %v (%v), want %v", v, l.filter.Since, err, want)
		}
	}
	for _, v := range []string{"", "d", "-1d", "10", "10 minutes", "2026-13-01", "now"} {
		if err := new(logRequest).setSince(v, now); err == nil {
			t.Errorf("%q is taken", v)
		}
	}
}
