package event

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMissingLogIsEmpty(t *testing.T) {
	if events, broken := readAll(t, auditDir(t)); len(events) != 0 || broken != 0 {
		t.Errorf("got %d events, %d broken", len(events), broken)
	}
}

// writeFiles makes a directory of an audit log.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := auditDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBrokenLinesCostNoOthers(t *testing.T) {
	one := string(New(Deny).AppendLine(nil))
	for name, c := range map[string]struct {
		text           string
		events, broken int
	}{
		"empty":              {"", 0, 0},
		"empty lines":        {"\n" + one + "\n\n", 1, 0},
		"no JSON":            {one + "nonsense\n" + one, 2, 1},
		"another version":    {strings.Replace(one, ":1,", ":9,", 1) + one, 1, 1},
		"half a line":        {one[:40] + one + one, 2, 1},
		"two halves":         {one[:40] + one[:20] + one, 1, 1},
		"no end":             {one + one[:40], 1, 1},
		"no newline":         {one + strings.TrimSuffix(one, "\n"), 2, 0},
		"endless":            {one + strings.Repeat("x", maxRead+100) + "\n" + one, 2, 1},
		"zeros":              {one + strings.Repeat("\x00", 5000) + one, 2, 1},
		"endless at the end": {one + strings.Repeat("x", maxRead+100), 1, 1},
	} {
		dir := writeFiles(t, map[string]string{auditName: c.text})
		if events, broken := readAll(t, dir); len(events) != c.events || broken != c.broken {
			t.Errorf("%s: got %d events, %d broken, want %d and %d", name, len(events), broken, c.events, c.broken)
		}
	}
}

func TestRotatedFilesAreReadOldestFirst(t *testing.T) {
	files := map[string]string{}
	for name, pid := range map[string]int{
		"audit.jsonl": 4, "audit.jsonl.1": 3, "audit.jsonl.2": 2, "audit.jsonl.10": 1,
		"audit.jsonl.0": 9, "audit.jsonl.01": 9, "audit.jsonl.x": 9, "audit.jsonl.-1": 9, "audit.jsonl1": 9, "audit.lock": 9, "other": 9,
	} {
		files[name] = string((&Event{Kind: Deny, Pid: pid}).AppendLine(nil))
	}
	events, _ := readAll(t, writeFiles(t, files))
	var got []int
	for _, e := range events {
		got = append(got, e.Pid)
	}
	if fmt.Sprint(got) != "[1 2 3 4]" {
		t.Errorf("got %v, want [1 2 3 4]", got)
	}
}

func TestSecondReadBringsOnlyWhatIsNew(t *testing.T) {
	a := &Audit{Dir: auditDir(t), MaxSize: 300, Keep: 100}
	defer a.Close()
	l := OpenLog(a.Dir)
	defer l.Close()
	next := 1
	for round := range 10 {
		for range round {
			e := New(Deny)
			e.Pid = next
			next++
			a.Emit(e)
		}
		first := next - round
		if err := l.Read(func(line Line) {
			if line.Err != nil || line.Event.Pid != first {
				t.Errorf("round %d: got %+v, want number %d", round, line, first)
			}
			first++
		}); err != nil {
			t.Fatal(err)
		}
		if first != next {
			t.Errorf("round %d: read up to %d, want %d", round, first-1, next-1)
		}
	}
}

func TestLineThatArrivesInPiecesIsOne(t *testing.T) {
	line := New(Deny).AppendLine(nil)
	var f logFile
	got := 0
	for _, part := range bytes.SplitAfter(line, nil) {
		f.feed(part, func(l Line) {
			if l.Err != nil {
				t.Error(l.Err)
			}
			got++
		})
	}
	if got != 1 {
		t.Errorf("got %d lines, want 1", got)
	}
}

func TestFilterLetsThroughWhatIsAskedFor(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	e := Event{Kind: Deny, Sandbox: "b7", Process: "node", Path: "/work/pkg/.env", Time: at}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Kinds: []Kind{Deny}}, true},
		{Filter{Kinds: []Kind{Exit, Deny}}, true},
		{Filter{Kinds: []Kind{Exit}}, false},
		{Filter{Sandbox: "b7"}, true},
		{Filter{Sandbox: "b"}, false},
		{Filter{Process: "node"}, true},
		{Filter{Process: "nod"}, false},
		{Filter{Since: at}, true},
		{Filter{Since: at.Add(1)}, false},
		{Filter{Path: "/work/pkg/.env"}, true},
		{Filter{Path: "**/.env"}, true},
		{Filter{Path: ".env"}, true},
		{Filter{Path: "pkg/*"}, true},
		{Filter{Path: "/work/**"}, true},
		{Filter{Path: "/work/{a,pkg}/.e??"}, true},
		{Filter{Path: "{/a,/work}/**"}, true},
		{Filter{Path: "/work/*"}, false},
		{Filter{Path: "/pkg/.env"}, false},
		{Filter{Path: "work"}, false},
		{Filter{Path: "*.key"}, false},
		{Filter{Path: "**/.env", Process: "sh"}, false},
	} {
		if got := c.f.Match(&e); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.f, got, c.want)
		}
	}
	if f := (Filter{Path: "**"}); f.Match(&Event{Kind: Exit}) {
		t.Error("an event without a path matches a path")
	}
	for pattern, valid := range map[string]bool{"": true, "**/.env": true, "[": false, "{a": false} {
		if err := (&Filter{Path: pattern}).Check(); (err == nil) != valid {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
