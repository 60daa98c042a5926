package change

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// maker makes a directory and a workspace that is applied to it.
type maker func(t testing.TB, lines ...string) *bench

// onBoth tries something with a workspace that lies on a directory, and with one
// that lies on what was imported from it.
func onBoth(t *testing.T, test func(t *testing.T, newBench maker)) {
	t.Run("directory", func(t *testing.T) { test(t, newBench) })
	t.Run("codebase", func(t *testing.T) { test(t, newImportedBench) })
}

// newImportedBench is newBench with a workspace on a layer that the directory was
// imported to.
func newImportedBench(t testing.TB, lines ...string) *bench {
	t.Helper()
	b := newBench(t, lines...)
	b.must(b.Remove())
	b.layer("base")
	to, err := os.Open(b.store.LayerTree("base"))
	b.must(err)
	defer to.Close()
	from, err := os.Open(b.source)
	b.must(err)
	defer from.Close()
	b.must(tree.Copy(to, from, tree.CopyOptions{}))
	base := []string{"base"}
	b.Delta, err = b.store.Create(delta.Options{Name: "w", Stack: []delta.Lower{{Layer: "base"}}, Base: base, Source: b.source, Target: "/elsewhere"})
	b.must(err)
	t.Cleanup(func() { b.Close() })
	return b
}

// layer makes a layer of some files.
func (b *bench) layer(id string, lines ...string) {
	b.t.Helper()
	dir := b.store.LayerTree(id)
	b.must(os.MkdirAll(dir, 0o755))
	b.fill(dir, lines...)
}

// TestChangesSinceTheImportAreConflicts: what counts is what is in the files.
func TestChangesSinceTheImportAreConflicts(t *testing.T) {
	for _, test := range []struct {
		name                  string
		source, delta, others []string // others, with "~" for what they removed
		want                  []string // none: it is applied
	}{
		{"changed", []string{"a=1", "b=1"}, []string{"a=2", "b=2"}, []string{"a=3"}, []string{"a was changed, can be merged"}},
		{"written again", []string{"a=1"}, []string{"a=2"}, []string{"~a", "a=1"}, nil},
		{"changed alike", []string{"a=1"}, []string{"a=2", "new=1"}, []string{"a=2", "new=1"}, nil},
		{"mode", []string{"a=1"}, []string{"a=2"}, []string{"a*=1"}, []string{"a was changed, can be merged"}},
		{"changed and removed here", []string{"a=1"}, []string{"-a"}, []string{"a=3"}, []string{"a was changed"}},
		{"removed", []string{"a=1"}, []string{"a=2"}, []string{"~a"}, []string{"a was removed"}},
		{"removed by both", []string{"a=1"}, []string{"-a"}, []string{"~a"}, nil},
		{"made", nil, []string{"a=2"}, []string{"a=3"}, []string{"a was made"}},
		{"a directory made by both", nil, []string{"d/a=2"}, []string{"d/b=3"}, nil},
		{"became a link", []string{"a=1"}, []string{"a=2"}, []string{"a -> /etc/passwd"}, []string{"a was changed"}},
		{"link", []string{"l -> a"}, []string{"l -> b"}, []string{"l -> c"}, []string{"l was changed"}},
		{"put into a removed directory", []string{"d/a=1"}, []string{"-d"}, []string{"d/b=3"}, []string{"d/b was made in a directory that is to be removed"}},
		{"made in a directory that is gone", []string{"d/a=1"}, []string{"d/b=2"}, []string{"~d"}, []string{"d/b lies in a directory that was removed"}},
		{"elsewhere", []string{"a=1", "b=1"}, []string{"a=2"}, []string{"b=3", "c=1"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newImportedBench(t, test.source...)
			b.write(test.delta...)
			for _, line := range test.others {
				if name, ok := strings.CutPrefix(line, "~"); ok {
					b.must(os.RemoveAll(b.source + "/" + name))
				} else {
					b.fill(b.source, line)
				}
			}
			if len(test.want) > 0 {
				b.wantConflict(Options{}, test.want...)
				return
			}
			b.apply(Options{})
			if got := listOf(b.changes().Changes); got != "" {
				t.Errorf("left to apply: %q", got)
			}
		})
	}
}

// TestWhatIsThereAlreadyIsLeftAlone: and does not take the place of what can be undone.
func TestWhatIsThereAlreadyIsLeftAlone(t *testing.T) {
	b := newImportedBench(t, "a=1", "b=1", "gone=1")
	b.write("b=2")
	b.apply(Options{})
	b.write("a=2", "new/x=1", "-gone")
	b.fill(b.source, "a=2", "new/x=1")
	b.must(os.Remove(b.source + "/gone"))
	before := state(t, b.source, true)
	if r := b.apply(Options{}); len(r.Applied) > 0 {
		t.Errorf("applied: %v", r.Applied)
	}
	wantState(t, state(t, b.source, true), before)
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("left to apply: %q", got)
	}
	if u, err := Undo(b.Delta); err != nil || strings.Join(u.Paths, " ") != "b" {
		t.Errorf("undone: %v, %v", u.Paths, err)
	}
}

// TestWhatIsTakenBackAfterApplyIsAChange: it is none of what was imported, but of
// what the directory is now.
func TestWhatIsTakenBackAfterApplyIsAChange(t *testing.T) {
	b := newImportedBench(t, "a=1", "gone=1", "d/x=1")
	b.write("a=2", "-gone", "-d")
	b.apply(Options{})
	for _, name := range []string{"a", "gone", "d"} {
		b.must(os.Remove(b.Upper() + "/" + name))
	}
	if got, want := listOf(b.changes().Changes), "M a\nA d/\nA d/x\nA gone\n"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result("a=1", "gone=1", "d/x=1"))
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("left to apply: %q", got)
	}
}

// TestSealedChangesAreStillChanges: a snapshot makes them layers of the workspace.
func TestSealedChangesAreStillChanges(t *testing.T) {
	b := newImportedBench(t, "a=1", "b=1")
	b.layer("sealed", "a=2", "-b", "c=1")
	b.Record.Stack = []delta.Lower{{Layer: "sealed"}, {Layer: "base"}}
	b.write("c=2")
	if got, want := listOf(b.changes().Changes), "M a\nD b\nA c\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.apply(Options{})
	wantState(t, state(t, b.source, false), b.result("a=2", "c=2"))
	// As after a squash of everything.
	b.layer("whole", "a=2", "c=1")
	b.Record.Stack = []delta.Lower{{Layer: "whole"}}
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("left to apply: %q", got)
	}
}

func TestWhatIsGuardedIsNotApplied(t *testing.T) {
	b := newImportedBench(t, "a=1")
	b.write("a=2", "hooks/x=evil")
	guard := func(path string, isDir bool) string {
		if path == "hooks/x" && !isDir {
			return "protected hooks"
		}
		return ""
	}
	before := state(t, b.source, true)
	_, err := Apply(b.Delta, Options{Guard: guard, Merge: Markers})
	if err == nil || !strings.Contains(err.Error(), "\n  hooks/x: protected hooks") {
		t.Errorf("got %v", err)
	}
	wantState(t, state(t, b.source, true), before)
	b.apply(Options{Guard: guard, Paths: []string{"a"}})
	b.wantFile("a", "2")
}

// TestLayersFromNowhereAreNotApplied: nor is there anything to do where the
// directory has gone.
func TestLayersFromNowhereAreNotApplied(t *testing.T) {
	b := newImportedBench(t, "a=1")
	b.write("a=2")
	b.must(os.Rename(b.source, b.source+".old"))
	if got := listOf(b.changes().Changes); got != "M a\n" {
		t.Errorf("got %q", got)
	}
	if _, err := Apply(b.Delta, Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), b.source) {
		t.Errorf("got %v", err)
	}
	b.Record.Source = ""
	if _, err := Apply(b.Delta, Options{}); err == nil || !strings.Contains(err.Error(), "not imported from a directory") {
		t.Errorf("got %v", err)
	}
}
