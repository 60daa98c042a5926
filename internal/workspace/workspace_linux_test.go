package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// newStore is a store whose files can be removed whatever their modes are.
func newStore(t testing.TB) *Store {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(delta.At(dir + "/data"))
	must(t, err)
	t.Cleanup(func() {
		f, err := os.Open(dir)
		must(t, err)
		defer f.Close()
		must(t, tree.Remove(f, "data"))
	})
	return s
}

func project(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		write(t, dir+"/"+f, "content of "+f)
	}
	return dir
}

// shown lists what directories that lie on each other show: paths, modes, content.
func shown(t testing.TB, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	var roots []*os.File
	for _, d := range dirs {
		f, err := os.Open(d)
		must(t, err)
		defer f.Close()
		roots = append(roots, f)
	}
	must(t, tree.WalkStack(roots, tree.Visitor{Enter: func(n *tree.Node) error {
		if n.IsWhiteout() || n.Path == "" {
			return nil
		}
		fmt.Fprintf(&b, "%s %o", n.Path, n.Stat.Mode)
		if n.IsRegular() {
			f, err := n.Open()
			must(t, err)
			defer f.Close()
			var content bytes.Buffer
			_, err = content.ReadFrom(f)
			must(t, err)
			fmt.Fprintf(&b, " %q", content.String())
		}
		b.WriteByte('\n')
		return nil
	}}))
	return b.String()
}

func shownBy(t testing.TB, d *delta.Delta) string {
	t.Helper()
	return shown(t, append([]string{d.Upper()}, d.Lowers()...)...)
}

func start(t testing.TB, s *Store, codebase, name string) *delta.Delta {
	t.Helper()
	d, err := s.Start(codebase, delta.Options{Name: name, Target: "/work"})
	must(t, err)
	return d
}

func imported(t testing.TB, s *Store, name, dir string) Codebase {
	t.Helper()
	c, err := s.ImportDirectory(dir, ImportOptions{Name: name})
	must(t, err)
	return c
}

func layers(t testing.TB, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.Dir() + "/layers")
	must(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestImportedCodebaseIsTheDirectory(t *testing.T) {
	s, dir := newStore(t), project(t, "a/b", "c")
	files := int64(0)
	c, err := s.ImportDirectory(dir, ImportOptions{Name: "one", Progress: func(f, _ int64) { files = f }})
	must(t, err)
	if got, want := shown(t, s.LayerTree(c.Layers[0])), shown(t, dir); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	l, err := s.Layer(c.Layers[0])
	must(t, err)
	if files != 4 || l.Files != 4 || l.Bytes != int64(len("content of a/bcontent of c")) {
		t.Errorf("progress said %d files, the layer says %+v", files, l)
	}
	if _, err := s.ImportDirectory(dir, ImportOptions{Name: "one"}); !errors.Is(err, delta.ErrExists) {
		t.Errorf("a second one of that name: got %v, want %v", err, delta.ErrExists)
	}
}

// TestStoreIsLeftOutOfWhatHoldsIt: it would be copied into itself without an end.
func TestStoreIsLeftOutOfWhatHoldsIt(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	dir := project(t, "a/b", "c")
	want := shown(t, dir)
	s, err := Open(delta.At(dir + "/a/store"))
	must(t, err)
	var left string
	for _, ignore := range []bool{false, true} {
		c, err := s.ImportDirectory(dir, ImportOptions{
			Name: fmt.Sprint("ignore-", ignore), GitIgnore: ignore, Left: func(path, why string) { left += path + " is " + why + "\n" },
		})
		must(t, err)
		if got := shown(t, s.LayerTree(c.Layers[0])); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	if want := strings.Repeat("a/store is where codebases are kept\n", 2); left != want {
		t.Errorf("left out: %q, want %q", left, want)
	}
	for _, own := range []string{s.Dir(), s.Dir() + "/tmp"} {
		if _, err := s.ImportDirectory(own, ImportOptions{Name: "own"}); err == nil || !strings.Contains(err.Error(), "codebases are kept there") {
			t.Errorf("%s: got %v", own, err)
		}
	}
}

func TestIdenticalLayersAreStoredOnce(t *testing.T) {
	s, dir := newStore(t), project(t, "a")
	first, second := imported(t, s, "one", dir), imported(t, s, "two", dir)
	if first.Layers[0] != second.Layers[0] || len(layers(t, s)) != 1 {
		t.Errorf("layers: %v", layers(t, s))
	}
	must(t, s.RemoveCodebase("one"))
	if len(layers(t, s)) != 1 {
		t.Error("a layer that another codebase needs was removed")
	}
	must(t, s.RemoveCodebase("two"))
	if left := layers(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSnapshotForkAndRollback(t *testing.T) {
	s, dir := newStore(t), project(t, "a", "b")
	imported(t, s, "base", dir)
	d := start(t, s, "base", "one")
	write(t, d.Upper()+"/new", "1")
	must(t, unix.Mknod(d.Upper()+"/b", unix.S_IFCHR, 0))
	first := shownBy(t, d)
	must(t, d.Keep())
	d.Close()
	n, err := s.Snapshot("one")
	must(t, err)
	held, err := s.Held("one", n)
	must(t, err)
	if held != 1 {
		t.Errorf("it holds %d bytes beside the codebase, want 1", held)
	}
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	if got := shownBy(t, d); got != first || strings.Contains(got, "b 100") {
		t.Errorf("after the snapshot\n%sbefore\n%s", got, first)
	}
	write(t, d.Upper()+"/new", "2")
	second := shownBy(t, d)
	d.Close()
	fork, err := s.Fork("one", "", delta.Options{Name: "two"})
	must(t, err)
	if got := shownBy(t, fork); got != second || fork.Source() != dir {
		t.Errorf("the fork is\n%sand of %s, want\n%sand of %s", got, fork.Source(), second, dir)
	}
	write(t, fork.Upper()+"/only-here", "x")
	fork.Close()
	old, err := s.Fork("one", n.ID, delta.Options{Name: "old"})
	must(t, err)
	if got := shownBy(t, old); got != first || old.Record.Target != "/work" {
		t.Errorf("the fork of the snapshot is\n%s at %s, want\n%s", got, old.Record.Target, first)
	}
	old.Close()
	d, err = s.Store.Open("one", delta.Read)
	must(t, err)
	if got := shownBy(t, d); got != second {
		t.Errorf("writing to a fork changed the workspace:\n%s", got)
	}
	d.Close()
	must(t, s.Rollback("one", n.ID))
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	defer d.Close()
	if got := shownBy(t, d); got != first {
		t.Errorf("rolled back to\n%swant\n%s", got, first)
	}
}

func TestSnapshotOfNothingMakesNoLayer(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a"))
	start(t, s, "base", "one").Close()
	for range 3 {
		n, err := s.Snapshot("one")
		must(t, err)
		held, err := s.Held("one", n)
		must(t, err)
		if held != 0 {
			t.Errorf("it holds %d bytes beside the codebase", held)
		}
	}
	list, err := s.Snapshots("one")
	must(t, err)
	if len(list) != 3 || len(layers(t, s)) != 1 {
		t.Errorf("%d snapshots, layers %v", len(list), layers(t, s))
	}
}

func TestWorkspaceOnADirectoryThatCannotBeWrittenTo(t *testing.T) {
	s, dir := newStore(t), project(t, "a")
	must(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	d, err := s.Create(delta.Options{Name: "one", Stack: []delta.Lower{{Dir: dir}}})
	must(t, err)
	must(t, os.Chmod(d.Upper(), 0o755))
	write(t, d.Upper()+"/x", "")
	must(t, os.Chmod(d.Upper(), 0o555))
	d.Close()
	n, err := s.Snapshot("one")
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(s.LayerTree(n.Layers[0]), &st))
	if st.Mode&0o777 != 0o555 || string(n.Live) != dir {
		t.Errorf("mode %o, on %s", st.Mode&0o777, n.Live)
	}
	must(t, s.Rollback("one", n.ID))
}

func TestRunningWorkspaceIsNotTouched(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a"))
	d := start(t, s, "base", "one")
	defer d.Close()
	for what, err := range map[string]error{
		"snapshot": second(s.Snapshot("one")), "fork": second(s.Fork("one", "", delta.Options{})),
		"squash": s.Squash("one"),
	} {
		if !errors.Is(err, delta.ErrBusy) {
			t.Errorf("%s: got %v, want %v", what, err, delta.ErrBusy)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSquashShowsTheSame(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "gone", "dir/old", "same"))
	start(t, s, "base", "one").Close()
	change := func(f func(upper string)) {
		d, err := s.Store.Open("one", delta.Write)
		must(t, err)
		f(d.Upper())
		d.Close()
		_, err = s.Snapshot("one")
		must(t, err)
	}
	change(func(upper string) {
		must(t, unix.Mknod(upper+"/gone", unix.S_IFCHR, 0))
		write(t, upper+"/dir/one", "1")
		write(t, upper+"/temporary", "x")
	})
	change(func(upper string) {
		write(t, upper+"/dir/two", "2")
		must(t, unix.Setxattr(upper+"/dir", tree.Opaque, []byte("y"), 0))
		must(t, unix.Mknod(upper+"/temporary", unix.S_IFCHR, 0))
	})
	d, err := s.Store.Open("one", delta.Write)
	must(t, err)
	before, stack := shownBy(t, d), len(d.Record.Stack)
	d.Close()
	must(t, s.Squash("one"))
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	defer d.Close()
	if got := shownBy(t, d); got != before || len(d.Record.Stack) != 2 || stack != 3 {
		t.Errorf("%d layers of %d show\n%swant\n%s", len(d.Record.Stack), stack, got, before)
	}
	list, err := s.Snapshots("one")
	must(t, err)
	if len(list) != 2 {
		t.Errorf("%d snapshots are left", len(list))
	}
}

func TestStackStaysShort(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a"))
	start(t, s, "base", "one").Close()
	want := ""
	for i := range MaxStack + 5 {
		d, err := s.Store.Open("one", delta.Write)
		must(t, err)
		write(t, fmt.Sprintf("%s/f%d", d.Upper(), i), "x")
		want = shownBy(t, d)
		d.Close()
		_, err = s.Snapshot("one")
		must(t, err)
	}
	d, err := s.Store.Open("one", delta.Write)
	must(t, err)
	defer d.Close()
	if got := shownBy(t, d); got != want || len(d.Record.Stack) > MaxStack {
		t.Errorf("%d layers show\n%s", len(d.Record.Stack), got)
	}
}

func TestExportsAreTheSameEveryTimeAndComeBack(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a", "b", "dir/c"))
	d := start(t, s, "base", "one")
	write(t, d.Upper()+"/new", "1")
	write(t, d.Upper()+"/dir/.wh.mine", "1")
	must(t, unix.Mknod(d.Upper()+"/b", unix.S_IFCHR, 0))
	want := shownBy(t, d)
	d.Close()
	var direct bytes.Buffer
	must(t, s.Export(&direct, "one", "", archive.OCI))
	n, err := s.Snapshot("one")
	must(t, err)
	export := func(form archive.Form) []byte {
		var b bytes.Buffer
		must(t, s.Export(&b, "one", n.ID, form))
		return b.Bytes()
	}
	layer, plain := export(archive.OCI), export(archive.Plain)
	if !bytes.Equal(layer, export(archive.OCI)) || !bytes.Equal(plain, export(archive.Plain)) || !bytes.Equal(layer, direct.Bytes()) {
		t.Error("two exports differ")
	}
	other := newStore(t)
	c, err := other.ImportArchive(bytes.NewReader(plain), ImportOptions{Name: "flat"})
	must(t, err)
	if got := shown(t, other.LayerTree(c.Layers[0])); got != want {
		t.Errorf("the plain archive came back as\n%swant\n%s", got, want)
	}
	var again bytes.Buffer
	must(t, other.ExportCodebase(&again, "flat", archive.Plain))
	if !bytes.Equal(plain, again.Bytes()) {
		t.Error("the export of the import differs")
	}
	c, err = s.ImportLayer(bytes.NewReader(layer), "base", ImportOptions{Name: "stacked"})
	must(t, err)
	if got := shown(t, s.LayerTree(c.Layers[0]), s.LayerTree(c.Layers[1])); got != want {
		t.Errorf("the layer came back as\n%swant\n%s", got, want)
	}
	if digest, err := s.Digest(n.Layers[0]); err != nil || contentID(digest) != c.Layers[0] {
		t.Errorf("the sealed layer has the digest %s, %v; imported it is %s", digest, err, c.Layers[0])
	}
}

func TestSnapshotBecomesACodebase(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a"))
	d := start(t, s, "base", "one")
	write(t, d.Upper()+"/new", "1")
	want := shownBy(t, d)
	d.Close()
	n, err := s.Snapshot("one")
	must(t, err)
	_, err = s.MakeCodebase("one", n.ID, "next")
	must(t, err)
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	must(t, d.Remove())
	_, err = s.Collect()
	must(t, err)
	d = start(t, s, "next", "two")
	defer d.Close()
	if got := shownBy(t, d); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestCollectKeepsWhatIsNamedAndStopsAtDamage(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a"))
	d := start(t, s, "base", "one")
	write(t, d.Upper()+"/x", "")
	d.Close()
	_, err := s.Snapshot("one")
	must(t, err)
	dry, err := s.Start("base", delta.Options{State: delta.DryRun})
	must(t, err)
	defer dry.Close()
	must(t, s.RemoveCodebase("base"))
	if got := layers(t, s); len(got) != 2 {
		t.Errorf("layers %v", got)
	}
	must(t, os.WriteFile(s.Dir()+"/codebases/torn.json", []byte("{"), 0o600))
	must(t, os.Mkdir(s.Dir()+"/layers/stray", 0o700))
	if _, err := s.Collect(); err == nil {
		t.Error("layers were removed though a codebase cannot be read")
	}
	if got := layers(t, s); len(got) != 3 {
		t.Errorf("layers %v", got)
	}
}

type freezer struct{ frozen, thawed int }

func (f *freezer) Freeze() (func(), error) {
	f.frozen++
	return func() { f.thawed++ }, nil
}

func TestSnapshotOfARunningWorkspaceCopiesTheDelta(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "a", "b"))
	d := start(t, s, "base", "one")
	defer d.Close()
	write(t, d.Upper()+"/new", "1")
	must(t, unix.Mknod(d.Upper()+"/b", unix.S_IFCHR, 0))
	want := shownBy(t, d)
	f := &freezer{}
	n, err := s.SnapshotRunning("one", f)
	must(t, err)
	if f.frozen != 1 || f.thawed != 1 {
		t.Errorf("frozen %d times, thawed %d times", f.frozen, f.thawed)
	}
	write(t, d.Upper()+"/new", "2")
	fork, err := s.Fork("one", n.ID, delta.Options{Name: "two"})
	must(t, err)
	defer fork.Close()
	if got := shownBy(t, fork); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The kernel must show what WalkStack does, also of layers that were squashed,
// exported and imported.
func TestOverlayfsShowsWhatIsExpected(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	s := newStore(t)
	imported(t, s, "base", project(t, "keep", "gone", "dir/old", "tree/a/b"))
	d := start(t, s, "base", "one")
	inOverlay(t, d, "rm gone; rm -r dir; mkdir dir; echo new >dir/new; mv tree moved; echo more >>keep; ln keep hard; chmod 600 hard")
	d.Close()
	_, err := s.Snapshot("one")
	must(t, err)
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	inOverlay(t, d, "rm dir/new; echo again >gone; mkdir -p tree/x; rm -r moved/a")
	d.Close()
	_, err = s.Snapshot("one")
	must(t, err)
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	want := inOverlay(t, d, list)
	if mine := shownBy(t, d); strings.Count(mine, "\n") != strings.Count(want, "\n") || strings.Contains(want, "dir/old") {
		t.Errorf("the kernel shows\n%sand WalkStack\n%s", want, mine)
	}
	d.Close()
	var layer bytes.Buffer
	must(t, s.Export(&layer, "one", "", archive.OCI))
	_, err = s.ImportLayer(&layer, "base", ImportOptions{Name: "imported"})
	must(t, err)
	must(t, s.Squash("one"))
	d, err = s.Store.Open("one", delta.Write)
	must(t, err)
	defer d.Close()
	if got := inOverlay(t, d, list); got != want {
		t.Errorf("squashed it shows\n%swant\n%s", got, want)
	}
	again := start(t, s, "imported", "two")
	defer again.Close()
	if got := inOverlay(t, again, list); got != want {
		t.Errorf("exported and imported it shows\n%swant\n%s", got, want)
	}
}

const list = `find . -mindepth 1 -printf '%P %y %m %s %l\n' | sort`

// inOverlay runs a script in a workspace, as a sandbox sees it.
func inOverlay(t testing.TB, d *delta.Delta, script string) string {
	t.Helper()
	at := t.TempDir()
	options := "userxattr,lowerdir=" + strings.Join(d.Lowers(), ":") + ",upperdir=" + d.Upper() + ",workdir=" + d.Work()
	c := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", `mount -t overlay overlay -o "$1" "$2"; cd "$2"; eval "$3"`, "sh", options, at, script)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, stderr.String())
	}
	return string(out)
}

func TestTwoWorkspacesOnOneCodebaseDoNotSeeEachOther(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	s := newStore(t)
	c := imported(t, s, "base", project(t, "shared", "other"))
	before := shown(t, s.LayerTree(c.Layers[0]))
	one, two := start(t, s, "base", "one"), start(t, s, "base", "two")
	defer one.Close()
	defer two.Close()
	inOverlay(t, one, "echo one >shared; rm other; echo >.wh.shared; mknod other c 0 0 2>/dev/null || true")
	if got := inOverlay(t, two, "cat shared; ls -A"); got != "content of sharedother\nshared\n" {
		t.Errorf("the other sees %q", got)
	}
	if after := shown(t, s.LayerTree(c.Layers[0])); after != before {
		t.Errorf("the codebase has become\n%s", after)
	}
}
