package change

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
)

// ran takes down the state of the source, as after a run.
func (b *bench) ran() {
	b.t.Helper()
	c, err := Remember(b.Delta)
	b.must(err)
	c.Close()
}

func (b *bench) apply(o Options) *Result {
	b.t.Helper()
	r, err := Apply(b.Delta, o)
	b.must(err)
	return r
}

// wantConflict applies, and wants that refused for the named files and the source
// untouched.
func (b *bench) wantConflict(o Options, want ...string) {
	b.t.Helper()
	before := state(b.t, b.source, true)
	_, err := Apply(b.Delta, o)
	var conflict *Conflict
	if !errors.As(err, &conflict) {
		b.t.Fatalf("got error %v, want a conflict", err)
	}
	var got []string
	for _, c := range conflict.Clashes {
		line := c.Path + " " + c.Why
		if c.Mergeable {
			line += ", can be merged"
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.t.Errorf("got %q, want %q", got, want)
	}
	wantState(b.t, state(b.t, b.source, true), before)
}

func (b *bench) wantFile(name, want string) {
	b.t.Helper()
	got, err := os.ReadFile(b.source + "/" + name)
	if err != nil || string(got) != want {
		b.t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
	}
}

// later changes a file of the source, certainly after all that was taken down.
func (b *bench) later(line string) {
	b.t.Helper()
	b.fill(b.source, line)
	name, _, _ := strings.Cut(line, "=")
	b.must(os.Chtimes(b.source+"/"+name, time.Time{}, time.Unix(1, 1)))
}

func TestApplyMakesTheSourceWhatTheWorkspaceIs(t *testing.T) {
	onBoth(t, applyMakesTheSourceWhatTheWorkspaceIs)
}

func applyMakesTheSourceWhatTheWorkspaceIs(t *testing.T, newBench maker) {
	b := newBench(t, sourceLines...)
	b.write(deltaLines...)
	b.must(os.Chtimes(b.Upper()+"/new", time.Time{}, time.Unix(1e9, 5)))
	b.ran()
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result(resultLines...))
	info, err := os.Stat(b.source + "/new")
	if err != nil || !info.ModTime().Equal(time.Unix(1e9, 5)) {
		t.Errorf("got %v, %v: the time is not the workspace's", info.ModTime(), err)
	}
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("left to apply:\n%s", got)
	}
}

func TestUndoPutsEverythingBack(t *testing.T) { onBoth(t, undoPutsEverythingBack) }

func undoPutsEverythingBack(t *testing.T, newBench maker) {
	b := newBench(t, sourceLines...)
	before := state(t, b.source, true)
	b.write(deltaLines...)
	b.ran()
	changes := listOf(b.changes().Changes)
	b.apply(Options{})
	if _, err := Undo(b.Delta); err != nil {
		t.Fatal(err)
	}
	wantState(t, state(t, b.source, true), before)
	if got := listOf(b.changes().Changes); got != changes {
		t.Errorf("got\n%s\nwant\n%s", got, changes)
	}
	if _, err := Undo(b.Delta); !errors.Is(err, errNothing) {
		t.Errorf("a second undo: %v", err)
	}
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result(resultLines...))
}

func TestUndoRefusesWhatWasChangedSince(t *testing.T) { onBoth(t, undoRefusesWhatWasChangedSince) }

func undoRefusesWhatWasChangedSince(t *testing.T, newBench maker) {
	b := newBench(t, "a=1", "b=1")
	b.write("a=2", "b=2")
	b.ran()
	b.apply(Options{})
	b.later("a=3")
	var conflict *Conflict
	if _, err := Undo(b.Delta); !errors.As(err, &conflict) || len(conflict.Clashes) != 1 || conflict.Clashes[0].Path != "a" {
		t.Errorf("got %v", err)
	}
	b.wantFile("a", "3")
	b.wantFile("b", "2")
}

func TestOnlySelectedPathsAreApplied(t *testing.T) { onBoth(t, onlySelectedPathsAreApplied) }

func onlySelectedPathsAreApplied(t *testing.T, newBench maker) {
	b := newBench(t, "a=1", "b=1", "d/x=1", "d/y=1")
	b.write("a=2", "b=2", "-d/x", "d/y=2", "new/e/f=1")
	b.ran()
	b.apply(Options{Paths: []string{"a", "d/x", "new/e/f"}})
	wantState(t, state(t, b.source, false), b.result("a=2", "b=1", "d/y=1", "new/e/f=1"))
	if got, want := listOf(b.changes().Changes), "M b\nM d/y\n"; got != want {
		t.Errorf("left to apply: %q, want %q", got, want)
	}
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result("a=2", "b=2", "d/y=2", "new/e/f=1"))
}

func TestChangesOfOthersAreConflicts(t *testing.T) {
	for _, test := range []struct {
		name          string
		source, delta []string
		meanwhile     func(b *bench)
		want          []string
	}{
		{"changed", []string{"a=1", "b=1"}, []string{"a=2", "b=2"}, func(b *bench) { b.later("a=3") }, []string{"a was changed, can be merged"}},
		{"binary and changed", []string{"a=\x001"}, []string{"a=\x002"}, func(b *bench) { b.later("a=\x003") }, []string{"a was changed"}},
		{"changed and removed here", []string{"a=1"}, []string{"-a"}, func(b *bench) { b.later("a=3") }, []string{"a was changed"}},
		{"removed", []string{"a=1"}, []string{"a=2"}, func(b *bench) { b.must(os.Remove(b.source + "/a")) }, []string{"a was removed"}},
		{"made", nil, []string{"a=2"}, func(b *bench) { b.later("a=3") }, []string{"a was made"}},
		{"put into a removed directory", []string{"d/a=1"}, []string{"-d"}, func(b *bench) { b.later("d/b=3") }, []string{"d/b was changed"}},
		{"became a link", []string{"a=1"}, []string{"a=2"}, func(b *bench) {
			b.must(os.Remove(b.source + "/a"))
			b.must(os.Symlink("/etc/passwd", b.source+"/a"))
		}, []string{"a was changed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.source...)
			b.write(test.delta...)
			b.ran()
			test.meanwhile(b)
			b.wantConflict(Options{}, test.want...)
		})
	}
}

func TestWhatChangedWhileTheCommandRanIsAConflict(t *testing.T) {
	b := newBench(t, "a=1")
	b.Record.Started = time.Now().Add(-time.Hour)
	b.later("a=3")
	b.write("a=2")
	b.ran()
	b.wantConflict(Options{}, "a was changed while the command ran")
	b.wantConflict(Options{Merge: Markers}, "a was changed while the command ran, and there is no common version to merge from")
}

// TestInterruptedRunsAreAppliedByTime: nobody took down the state of the source.
func TestInterruptedRunsAreAppliedByTime(t *testing.T) {
	b := newBench(t, "a=1", "b=1")
	b.write("a=2", "b=2")
	b.Record.Started = time.Now().Add(time.Hour)
	b.apply(Options{Paths: []string{"a"}})
	b.wantFile("a", "2")
	b.Record.Started = time.Now().Add(-time.Hour)
	b.wantConflict(Options{}, "b was changed")
}

func TestMergeKeepsBothChanges(t *testing.T) { onBoth(t, mergeKeepsBothChanges) }

func mergeKeepsBothChanges(t *testing.T, newBench maker) {
	const text = "1\n2\n3\n4\n5\n"
	b := newBench(t, "a="+text, "clash="+text, "bin=\x001", "giant="+text)
	b.write("a=one\n2\n3\n4\n5\n", "clash=x\n2\n3\n4\n5\n", "bin=\x002")
	b.sparse(1<<43, b.Upper()+"/giant")
	b.ran()
	b.later("a=1\n2\n3\n4\nfive\n")
	b.later("clash=y\n2\n3\n4\n5\n")
	b.later("bin=\x003")
	b.later("giant=1\n")
	b.wantConflict(Options{Merge: Clean}, "bin was changed, and is not text that could be merged", "clash was changed in the same lines", "giant was changed, and is too large to be merged")
	r := b.apply(Options{Merge: Markers, Paths: []string{"a", "clash"}})
	if strings.Join(r.Merged, " ") != "a clash" || strings.Join(r.Marked, " ") != "clash" {
		t.Errorf("merged %q, marked %q", r.Merged, r.Marked)
	}
	b.wantFile("a", "one\n2\n3\n4\nfive\n")
	b.wantFile("clash", "<<<<<<< workspace\nx\n=======\ny\n>>>>>>> directory\n2\n3\n4\n5\n")
	if got := listOf(b.changes().Changes); got != "M bin\nM giant\n" {
		t.Errorf("left to apply: %q", got)
	}
	if _, err := Undo(b.Delta); err != nil {
		t.Fatal(err)
	}
	b.wantFile("a", "1\n2\n3\n4\nfive\n")
}

// TestWorkGoesOnAfterApply: the workspace's version of an applied file is not
// newer than what others made of it since.
func TestWorkGoesOnAfterApply(t *testing.T) { onBoth(t, workGoesOnAfterApply) }

func workGoesOnAfterApply(t *testing.T, newBench maker) {
	b := newBench(t, "a=1\n2\n3\n")
	b.write("a=one\n2\n3\n")
	b.ran()
	b.apply(Options{})
	b.later("a=one\n2\nthree\n")
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("the old version would be applied again: %q", got)
	}
	b.write("a=ONE\n2\n3\n")
	b.ran()
	b.wantConflict(Options{}, "a was changed, can be merged")
	b.apply(Options{Merge: Clean})
	b.wantFile("a", "ONE\n2\nthree\n")
}

func TestNoLinkLeadsOut(t *testing.T) { onBoth(t, noLinkLeadsOut) }

func noLinkLeadsOut(t *testing.T, newBench maker) {
	outside := t.TempDir()
	b := newBench(t, "d/f=1", "e/f=1")
	b.fill(outside, "f=outside", "victim=outside")
	b.write("d/f=2", "d/new=1", "e/victim=evil")
	b.ran()
	before := state(t, outside, true)
	for _, dir := range []string{"d", "e"} {
		b.must(os.RemoveAll(b.source + "/" + dir))
		b.must(os.Symlink(outside, b.source+"/"+dir))
	}
	if _, err := Apply(b.Delta, Options{Merge: Markers}); err == nil {
		t.Error("it was applied through a link")
	}
	wantState(t, state(t, outside, true), before)
}

// TestNoLinkPlantedMeanwhileLeadsOut puts a link in the place of a directory at
// every step, when all that was judged before has been judged.
func TestNoLinkPlantedMeanwhileLeadsOut(t *testing.T) { onBoth(t, noLinkPlantedMeanwhileLeadsOut) }

func noLinkPlantedMeanwhileLeadsOut(t *testing.T, newBench maker) {
	t.Run("additions", func(t *testing.T) { plantAtEveryStep(t, newBench, "d/new=1", "d/deep/g=1", "d/link -> f") })
	t.Run("everything", func(t *testing.T) {
		plantAtEveryStep(t, newBench, "d/f=2", "d/new=1", "-d/gone", "d/mode*=1", "d/deep/g=1")
	})
}

func plantAtEveryStep(t *testing.T, newBench maker, delta ...string) {
	for stage := 0; ; stage++ {
		b := newBench(t, "d/f=1", "d/gone=1", "d/mode=1")
		outside := quickDir(t)
		b.fill(outside, "f=1", "gone=1", "mode=1")
		b.write(delta...)
		b.ran()
		before := state(t, outside, true)
		n, planted := stage, false
		fault.At = func(string) {
			if n--; n == -1 {
				planted = true
				b.must(os.Rename(b.source+"/d", b.source+"/moved"))
				b.must(os.Symlink(outside, b.source+"/d"))
			}
		}
		_, err := Apply(b.Delta, Options{})
		fault.At = nil
		wantState(t, state(t, outside, true), before)
		if t.Failed() {
			t.Fatalf("planted at step %d: %v", stage, err)
		}
		if !planted {
			if stage < 8 {
				t.Errorf("there were only %d steps", stage)
			}
			return
		}
	}
}

func TestAMovedSourceIsNotApplied(t *testing.T) { onBoth(t, aMovedSourceIsNotApplied) }

func aMovedSourceIsNotApplied(t *testing.T, newBench maker) {
	b := newBench(t, "f=1")
	b.write("f=2")
	b.ran()
	elsewhere := t.TempDir()
	b.fill(elsewhere, "f=1")
	b.must(os.Rename(b.source, b.source+".old"))
	b.must(os.Symlink(elsewhere, b.source))
	if _, err := Apply(b.Delta, Options{}); err == nil || !strings.Contains(err.Error(), "leads to") {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(elsewhere + "/f"); string(got) != "1" {
		t.Errorf("got %q", got)
	}
}

func TestSetIDBitsAreNotCarriedOver(t *testing.T) {
	b := newBench(t, "had=1", "had2=1")
	b.must(os.Chmod(b.source+"/had", 0o755|os.ModeSetuid))
	b.Record.Started = time.Now()
	b.write("had=2", "had2=2", "new=1")
	for _, name := range []string{"had", "had2", "new"} {
		b.must(os.Chmod(b.Upper()+"/"+name, 0o755|os.ModeSetuid))
	}
	b.ran()
	b.apply(Options{})
	for name, want := range map[string]os.FileMode{"had": 0o755 | os.ModeSetuid, "had2": 0o755, "new": 0o755} {
		if info, err := os.Stat(b.source + "/" + name); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

func TestHardLinksAndAttributesAreCarriedOver(t *testing.T) {
	onBoth(t, hardLinksAndAttributesAreCarriedOver)
}

func hardLinksAndAttributesAreCarriedOver(t *testing.T, newBench maker) {
	b := newBench(t)
	b.write("a=1")
	b.must(os.Link(b.Upper()+"/a", b.Upper()+"/b"))
	b.must(unix.Setxattr(b.Upper()+"/a", "user.note", []byte("x"), 0))
	b.ran()
	b.apply(Options{})
	x, err := os.Stat(b.source + "/a")
	b.must(err)
	y, err := os.Stat(b.source + "/b")
	b.must(err)
	var value [8]byte
	n, err := unix.Getxattr(b.source+"/b", "user.note", value[:])
	if !os.SameFile(x, y) || err != nil || string(value[:n]) != "x" {
		t.Errorf("same file: %v; attribute %q, %v", os.SameFile(x, y), value[:max(n, 0)], err)
	}
}

func TestUndoMakesNamesOneFileAgain(t *testing.T) {
	source := []string{"d/a=1", "d/b == d/a", "c == d/a"}
	for _, test := range []struct {
		name          string
		delta         []string
		old           bool   // what was written has the time that it had before
		then          string // what somebody does before the undo
		parted, alone string
		want          string // if it is not as before
	}{
		{name: "one of them", delta: []string{"d/a=2"}, parted: "d/a"},
		{name: "each by itself", delta: []string{"d/a=2", "d/b=3", "c=1"}, parted: "d/a d/b"},
		{name: "all at once", delta: []string{"d/a=2", "d/b == d/a", "c == d/a"}},
		{name: "two of them", delta: []string{"d/a=2", "d/b == d/a"}, parted: "d/a d/b"},
		{name: "one is removed", delta: []string{"-d/a"}},
		{name: "all are removed", delta: []string{"-d", "-c"}},
		{name: "a directory takes the place", delta: []string{"d/a/x=1"}, parted: "d/a"},
		{name: "only the mode", delta: []string{"d/a*=1"}, parted: "d/a"},
		{name: "as old as before", delta: []string{"d/a=2", "d/b=3", "-c"}, old: true, parted: "d/a d/b"},
		{name: "the others are changed meanwhile", delta: []string{"d/a=2"}, then: "c=4", parted: "d/a", alone: "d/a", want: "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, source...)
			before := state(t, b.source, true)
			b.write(test.delta...)
			if test.old {
				info, err := os.Stat(b.source + "/c")
				b.must(err)
				b.must(errors.Join(os.Chtimes(b.Upper()+"/d/a", time.Time{}, info.ModTime()), os.Chtimes(b.Upper()+"/d/b", time.Time{}, info.ModTime())))
			}
			b.ran()
			if got := strings.Join(b.apply(Options{}).Parted, " "); got != test.parted {
				t.Errorf("parted %q, want %q", got, test.parted)
			}
			if test.then != "" {
				b.later(test.then)
			}
			u, err := Undo(b.Delta)
			b.must(err)
			if got := strings.Join(u.Alone, " "); got != test.alone {
				t.Errorf("alone %q, want %q", got, test.alone)
			}
			if test.want == "" {
				wantState(t, state(t, b.source, true), before)
			} else {
				b.wantFile("d/a", test.want)
			}
		})
	}
}

// Names of one file are applied one after the other: that each takes away one of its
// names is no change of somebody else's.
func TestNamesOfOneFileAreAppliedOneByOne(t *testing.T) {
	b := newBench(t, "a=1", "b == a", "c == a")
	b.write("a=2", "b=3", "-c")
	b.ran()
	for _, name := range []string{"a", "b"} {
		b.apply(Options{Paths: []string{name}})
	}
	if _, err := Undo(b.Delta); err != nil {
		t.Fatal(err)
	}
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result("a=2", "b=3"))
}

func TestSocketsAreLeftOut(t *testing.T) { onBoth(t, socketsAreLeftOut) }

func socketsAreLeftOut(t *testing.T, newBench maker) {
	b := newBench(t)
	b.must(unix.Mknod(b.Upper()+"/s", unix.S_IFSOCK|0o600, 0))
	b.must(unix.Mknod(b.Upper()+"/p", unix.S_IFIFO|0o640, 0))
	b.ran()
	r := b.apply(Options{})
	if strings.Join(r.Left, " ") != "s" {
		t.Errorf("left out: %q", r.Left)
	}
	if info, err := os.Lstat(b.source + "/p"); err != nil || info.Mode() != os.ModeNamedPipe|0o640 {
		t.Errorf("pipe: %v, %v", info, err)
	}
}

// TestAFailureInTheMiddleIsTakenBack lets a step fail after others were made.
func TestAFailureInTheMiddleIsTakenBack(t *testing.T) { onBoth(t, aFailureInTheMiddleIsTakenBack) }

func aFailureInTheMiddleIsTakenBack(t *testing.T, newBench maker) {
	b := newBench(t, "a=1", "d/x=1", "gone=1", "z=1")
	b.write("a=2", "-gone", "n/new=1", "z=2")
	b.ran()
	before := state(t, b.source, true)
	fault.At = func(step string) {
		if step == "apply: step 4" {
			b.later("z=3")
		}
	}
	defer func() { fault.At = nil }()
	_, err := Apply(b.Delta, Options{})
	if err == nil || !strings.Contains(err.Error(), "it was changed just now") {
		t.Errorf("got %v", err)
	}
	b.wantFile("z", "3")
	got := state(t, b.source, true)
	before["z"] = got["z"]
	wantState(t, got, before)
	if _, err := os.Lstat(b.Dir() + "/journal/plan"); err == nil {
		t.Error("the plan is still there")
	}
}

// Variables by which the tests below have themselves killed.
const (
	killAt  = "BAILEY_TEST_KILL_AT"
	killIn  = "BAILEY_TEST_KILL_IN"
	killing = "BAILEY_TEST_KILL_DOING"
)

// TestChild is not a test, but the process that is killed.
func TestChild(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		return // nobody is to be killed
	}
	d, err := delta.At(os.Getenv(killIn)).Open("w", delta.Write)
	if err != nil {
		t.Fatal(err)
	}
	fault.At = func(string) {
		if n--; n < 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	if os.Getenv(killing) == "undo" {
		_, err = Undo(d)
	} else {
		_, err = Apply(d, Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// killed runs Apply or Undo in a process that is killed at a step, and reports
// whether it came to its end before.
func (b *bench) killed(what string, step int) (ended bool) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), killAt+"="+strconv.Itoa(step), killIn+"="+b.store.Dir(), killing+"="+what)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true
	case errors.As(err, &exit) && strings.Contains(exit.Error(), "killed"):
		return false
	}
	b.t.Fatalf("%s, step %d: %v\n%s", what, step, err, out)
	return false
}

// reopen is what the next use of the workspace does.
func (b *bench) reopen() {
	b.t.Helper()
	b.Close()
	var err error
	b.Delta, err = b.store.Open("w", delta.Write)
	b.must(err)
	left, err := Recover(b.Delta)
	if err != nil || len(left) > 0 {
		b.t.Fatalf("recovery: %v, left %q", err, left)
	}
}

func isState(got, want map[string]string) bool {
	if len(got) != len(want) {
		return false
	}
	for name, text := range want {
		if got[name] != text {
			return false
		}
	}
	return true
}

// TestApplyAndUndoSurviveAKillAtEveryStep: after each, everything is as before or
// everything is as after, nothing is left behind, and it can be done again.
func TestApplyAndUndoSurviveAKillAtEveryStep(t *testing.T) {
	onBoth(t, applyAndUndoSurviveAKillAtEveryStep)
}

func applyAndUndoSurviveAKillAtEveryStep(t *testing.T, newBench maker) {
	b := newBench(t, "text=a\n", "gone=1\n", "mode=1\n", "old/sub/b=2\n", "swap/inner=1\n", "flat=file\n", "link -> text", "name=1\n", "other == name", "another == name")
	b.write("text=b\n", "-gone", "mode*=1\n", "-old", "swap=file\n", "flat/f=1\n", "link -> flat", "new/deep/f=1\n", "name=2\n", "-other")
	b.ran()
	after := b.result("text=b\n", "mode*=1\n", "swap=file\n", "flat/f=1\n", "link -> flat", "new/deep/f=1\n", "name=2\n", "another=1\n")
	before := state(t, b.source, false)
	b.Close()
	for _, what := range []string{"apply", "undo"} {
		for step := 0; ; step++ {
			ended := b.killed(what, step)
			b.reopen()
			applied := b.isApplied(before, after)
			if t.Failed() {
				t.Fatalf("%s, killed at step %d", what, step)
			}
			if ended {
				if step < 10 || applied != (what == "apply") {
					t.Errorf("%s ended after %d steps, applied: %v", what, step, applied)
				}
				break
			}
			b.prepareAgain(what, applied)
			b.Close()
		}
		b.Close()
	}
}

// isApplied says which of two states the source is in, and makes sure that the
// workspace knows it.
func (b *bench) isApplied(before, after map[string]string) bool {
	b.t.Helper()
	got := state(b.t, b.source, false)
	applied := isState(got, after)
	if !applied && !isState(got, before) {
		b.t.Errorf("neither as before nor as after: %q", got)
	}
	if list := listOf(b.changes().Changes); applied != (list == "") {
		b.t.Errorf("applied: %v, and changes are %q", applied, list)
	}
	return applied
}

// prepareAgain makes the source what it was before the kill, for the next.
func (b *bench) prepareAgain(what string, applied bool) {
	b.t.Helper()
	switch {
	case what == "undo" && !applied:
		b.apply(Options{})
	case what == "apply" && applied:
		if _, err := Undo(b.Delta); err != nil {
			b.t.Fatal(err)
		}
	}
}
