package event

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestEqualDenialsFold(t *testing.T) {
	var f Fold
	for _, e := range []Event{
		{Kind: Deny, Op: OpCreate, Path: "/a", Rule: "r", Pid: 1},
		{Kind: Deny, Op: OpCreate, Path: "/a", Rule: "r", Pid: 2},
		{Kind: Deny, Op: OpOpen, Path: "/a", Rule: "r"},
		{Kind: Deny, Op: OpCreate, Path: "/b", Rule: "r"},
		{Kind: Deny, Op: OpCreate, Path: "/a", Rule: "s"},
		{Kind: Deny, Op: OpConnect, Host: "a"},
		{Kind: Deny, Op: OpConnect, Host: "b"},
		{Kind: Allow, Op: OpCreate, Path: "/a", Rule: "r"},
		{Kind: Exit},
		{Kind: Deny, Op: OpCreate, Path: "/a", Rule: "r", Count: 5},
	} {
		f.Emit(&e)
	}
	kept, rest := f.Denials()
	if len(kept) != 6 || rest != 0 {
		t.Fatalf("got %d kept and %d more, want 6 and 0: %+v", len(kept), rest, kept)
	}
	if e := kept[0]; e.Count != 7 || e.Pid != 1 {
		t.Errorf("got count %d of pid %d, want 7 of the first, 1", e.Count, e.Pid)
	}
	if e := kept[1]; e.Op != OpOpen || e.times() != 1 {
		t.Errorf("got %+v", e)
	}
}

func TestFoldKeepsSoManyAndCountsTheRest(t *testing.T) {
	f := Fold{Max: 12}
	for i := range 20 {
		f.Emit(&Event{Kind: Deny, Op: OpOpen, Path: fmt.Sprint("/", i)})
		f.Emit(&Event{Kind: Deny, Op: OpOpen, Path: fmt.Sprint("/", i), Count: 3})
	}
	kept, rest := f.Denials()
	if len(kept) != 12 || rest != 32 {
		t.Errorf("got %d kept, %d more, want 12 and 32", len(kept), rest)
	}
	if got := f.Summary(); got[len(got)-1] != "and 34 more; see bailey log" {
		t.Errorf("got %q", got)
	}
}

func TestFoldDoesNotHoldOnToTheEvent(t *testing.T) {
	var f Fold
	e := Event{Kind: Deny, Op: OpExec, Argv: []string{"a"}}
	f.Emit(&e)
	e.Op, e.Argv[0] = OpOpen, "b"
	if kept, _ := f.Denials(); kept[0].Op != OpExec || !slices.Equal(kept[0].Argv, []string{"a"}) {
		t.Errorf("got %+v", kept[0])
	}
}

func TestSinksTakeEventsFromSeveralGoroutines(t *testing.T) {
	var f Fold
	var lines lineCounter
	w := NewWriter(&lines)
	all := Multi{&f, w}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 100 {
				all.Emit(&Event{Kind: Deny, Op: OpOpen, Path: fmt.Sprint("/", i%5)})
			}
		})
	}
	group.Wait()
	kept, _ := f.Denials()
	total := 0
	for _, e := range kept {
		total += e.times()
	}
	if len(kept) != 5 || total != 800 || lines != 800 {
		t.Errorf("got %d kept of %d, %d lines; want 5 of 800, 800 lines", len(kept), total, lines)
	}
	if err := w.Err(); err != nil {
		t.Error(err)
	}
}

// lineCounter fails on anything but one whole line a call.
type lineCounter int

func (c *lineCounter) Write(p []byte) (int, error) {
	if _, err := Decode(p); err != nil {
		return 0, err
	}
	*c++
	return len(p), nil
}

func TestWriterKeepsTheFirstError(t *testing.T) {
	w := NewWriter(new(failing))
	w.Emit(&Event{Kind: Deny})
	w.Emit(&Event{Kind: Deny})
	if err := w.Err(); err == nil || err.Error() != "error 1" {
		t.Errorf("got %v", err)
	}
}

type failing int

func (f *failing) Write([]byte) (int, error) {
	*f++
	return 0, fmt.Errorf("error %d", *f)
}
