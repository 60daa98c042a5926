package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachMomentIsALineOfJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	l := Open(file, 100)
	l.At("wait for \"spec\"", 1250)
	l.InChild("clone", 90)
	l.InChild("mounts", 250)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"part":"clone","ns":90,"child":true}
{"part":"start","ns":100}
{"part":"mounts","ns":250,"child":true,"took":160}
{"part":"wait for \"spec\"","ns":1250,"took":1150}
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for line := range strings.Lines(string(got)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestLaunchesAreAppended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	for range 2 {
		l := Open(file, 0)
		l.Mark("only")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), `{"part":"only"`); n != 2 || strings.Contains(string(got), "took") {
		t.Errorf("two launches of one moment each wrote\n%s", got)
	}
}

func TestMomentsAreInOrder(t *testing.T) {
	l := Open(filepath.Join(t.TempDir(), "trace"), 0)
	for range 100 {
		l.Mark("part")
	}
	marks := l.Marks()
	for i := 1; i < len(marks); i++ {
		if marks[i].Nano < marks[i-1].Nano {
			t.Errorf("moment %d is %d ns before the last", i, marks[i-1].Nano-marks[i].Nano)
		}
	}
}

func TestWithoutAFileNothingIsRecorded(t *testing.T) {
	l := Open("", 100)
	l.Mark("part")
	l.At("part", 1)
	if marks := l.Marks(); marks != nil {
		t.Errorf("recorded %v", marks)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseReportsAFileThatCannotBeWritten(t *testing.T) {
	l := Open(filepath.Join(t.TempDir(), "missing", "trace"), 1)
	if err := l.Close(); !os.IsNotExist(err) {
		t.Errorf("got %v, want a missing directory", err)
	}
}
