package rulefs

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

func (w *world) change(t *testing.T, rules ...pathrule.Rule) {
	t.Helper()
	if err := w.view.Change([][]pathrule.Rule{rules}); err != nil {
		t.Fatal(err)
	}
}

func TestRulesChangeAtOnce(t *testing.T) {
	w := newWorld(t)
	w.put(t, "dir/f", "dir/g")
	p := w.in("dir/f")
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 7)
	if _, err := f.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	if mapped[0] != 'c' {
		t.Fatal("the map does not show the file")
	}

	w.change(t, rule("dir/f", pathrule.Read))
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("written by a descriptor after the right was taken back")
	}
	wants(t, "open for writing", opened(p, unix.O_WRONLY), unix.EACCES)
	wants(t, "open for reading", opened(p, unix.O_RDONLY))

	w.change(t, rule("dir/f", pathrule.View))
	wants(t, "open", opened(p, unix.O_RDONLY), unix.EACCES)
	if _, err := f.ReadAt(buf, 0); err == nil {
		t.Errorf("read %q by a descriptor after the right was taken back", buf)
	}
	if !faults(func() byte { return mapped[0] }) {
		t.Error("a map shows the file after the right was taken back")
	}

	w.change(t, rule("dir/f", pathrule.None))
	wants(t, "open", opened(p, unix.O_RDONLY), unix.ENOENT)
	if got := listed(t, w.in("dir")); !slices.Equal(got, []string{"g"}) {
		t.Errorf("lists %v", got)
	}

	w.change(t)
	wants(t, "open", opened(p, unix.O_RDWR))
	if got := listed(t, w.in("dir")); !slices.Equal(got, []string{"f", "g"}) {
		t.Errorf("lists %v", got)
	}
}

// faults says whether a look at memory is refused.
func faults(look func() byte) (did bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { did = recover() != nil }()
	_ = look()
	return false
}

func TestBadRulesChangeNothing(t *testing.T) {
	w := newWorld(t, rule("a", pathrule.None))
	w.put(t, "a")
	if err := w.view.Change([][]pathrule.Rule{{rule("{", pathrule.Write)}}); err == nil {
		t.Error("bad rules were taken")
	}
	wants(t, "open", opened(w.in("a"), unix.O_RDONLY), unix.ENOENT)
}

// shows says whether a file inside has a content; "" is none.
func (w *world) shows(name, content string) func() bool {
	return func() bool {
		data, err := os.ReadFile(w.in(name))
		return string(data) == content && (err == nil) == (content != "")
	}
}

func TestWhatTheHostDoesIsSeen(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None))
	w.put(t, "d/f")
	see := func(what, name, content string) {
		t.Helper()
		eventually(t, what, w.shows(name, content))
	}
	see("a file", "d/f", "content of d/f")
	see("no file", "d/new", "")
	if got := listed(t, w.in("d")); !slices.Equal(got, []string{"f"}) {
		t.Errorf("lists %v", got)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(w.out("d/f"), []byte("changed by the host"), 0o644))
	see("a change", "d/f", "changed by the host")
	must(os.WriteFile(w.out("d/new"), []byte("new"), 0o644))
	see("a new file", "d/new", "new")
	eventually(t, "it is listed", func() bool { return slices.Equal(listed(t, w.in("d")), []string{"f", "new"}) })
	must(os.Rename(w.out("d/new"), w.out("d/f")))
	see("a file in the place of another", "d/f", "new")
	see("its old name", "d/new", "")
	must(os.Rename(w.out("d"), w.out("e")))
	see("a directory under another name", "e/f", "new")
	see("its old name", "d/f", "")
	must(os.Rename(w.out("e/f"), w.out("e/.env")))
	see("a file with a hidden name", "e/.env", "")
	must(os.RemoveAll(w.out("e")))
	eventually(t, "nothing is left", func() bool { return len(listed(t, w.mnt)) == 0 })
}

func TestTwoViewsOfADirectory(t *testing.T) {
	w := newWorld(t)
	other, _ := w.show(t, rule("secret", pathrule.None))
	w.put(t, "f", "secret")
	read := func(name string) string {
		data, _ := os.ReadFile(name)
		return string(data)
	}
	eventually(t, "both see a file", func() bool {
		return read(w.in("f")) == "content of f" && read(other+"/f") == "content of f"
	})
	if read(other+"/secret") != "" || read(w.in("secret")) == "" {
		t.Error("one view has the rules of another")
	}
	if err := os.WriteFile(w.in("f"), []byte("from the first"), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second sees it", func() bool { return read(other+"/f") == "from the first" })
	if err := os.Remove(other + "/f"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first sees it", func() bool { return len(listed(t, w.mnt)) == 1 && read(w.in("f")) == "" })
}

func TestNameThatWasHiddenAppearsWhenRulesLetIt(t *testing.T) {
	w := newWorld(t) // at its root, which has no name that could be forgotten with all below it
	w.put(t, "f")
	w.change(t, rule("**/f", pathrule.None))
	wants(t, "open", opened(w.in("f"), unix.O_RDONLY), unix.ENOENT)
	w.change(t, rule("**/g", pathrule.None))
	wants(t, "open after", opened(w.in("f"), unix.O_RDONLY))
}
