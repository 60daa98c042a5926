package change

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// bench is a directory and a workspace on it, which tests fill as overlayfs does.
type bench struct {
	t      testing.TB
	source string
	store  delta.Store
	*delta.Delta
}

func newBench(t testing.TB, lines ...string) *bench {
	t.Helper()
	base := quickDir(t)
	b := &bench{t: t, source: base + "/source", store: delta.At(base + "/data")}
	b.must(os.Mkdir(b.source, 0o755))
	b.fill(b.source, lines...)
	var err error
	b.Delta, err = b.store.Create(delta.Options{Name: "w", Stack: []delta.Lower{{Dir: b.source}}, Target: b.source})
	b.must(err)
	t.Cleanup(b.Close)
	return b
}

// quickDir is a directory in memory, where nothing has to wait for a disk, if there
// is one that has attributes.
func quickDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "change-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = unix.Setxattr(dir, "user.test", []byte("x"), 0)
	}
	if err != nil {
		dir, err = filepath.EvalSymlinks(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// fill makes files from lines: "dir/", "file=text", "file*=text" for a program,
// "link -> target", "name == file" for another name of a file, "-gone" for a
// whiteout, "!dir/" for a directory that replaces another.
func (b *bench) fill(dir string, lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		b.must(b.make(dir, line))
	}
}

func (b *bench) make(dir, line string) error {
	name, text, isLink := strings.Cut(line, " -> ")
	place := func(n string) string {
		p := dir + "/" + n
		b.must(os.MkdirAll(filepath.Dir(p), 0o755))
		return p
	}
	other, file, isName := strings.Cut(line, " == ")
	switch {
	case isName:
		return os.Link(place(file), place(other))
	case isLink:
		p := place(name)
		_ = os.Remove(p)
		return os.Symlink(text, p)
	case line[0] == '-':
		return unix.Mknod(place(line[1:]), unix.S_IFCHR, 0)
	case line[0] == '!':
		p := place(strings.Trim(line, "!/"))
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		return unix.Setxattr(p, tree.Opaque, []byte("y"), 0)
	case strings.HasSuffix(line, "/"):
		return os.MkdirAll(place(strings.TrimSuffix(line, "/")), 0o755)
	}
	name, text, _ = strings.Cut(line, "=")
	mode := os.FileMode(0o644)
	if n, ok := strings.CutSuffix(name, "*"); ok {
		name, mode = n, 0o755
	}
	if err := os.WriteFile(place(name), []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(place(name), mode)
}

// write is fill for what the command in the workspace wrote.
func (b *bench) write(lines ...string) {
	b.t.Helper()
	b.fill(b.Upper(), lines...)
}

// state describes every file of a tree.
func state(t testing.TB, dir string, times bool) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(data)
			if links := info.Sys().(*syscall.Stat_t).Nlink; links > 1 {
				text += fmt.Sprintf(" with %d names", links)
			}
			if times {
				text += info.ModTime().String()
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			text += " " + target
		}
		out[p[len(dir)+1:]] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantState(t testing.TB, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%q is %.80q, want %.80q", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%q is there: %.80q", name, got[name])
		}
	}
}

// everything is a source, a delta and what the two are together, with every kind
// of change.
var (
	sourceLines = []string{
		"same=1\n", "text=a\nb\nc\n", "gone=bye\n", "script=#!/bin/sh\n", "program*=x", "binary=\x00\x01old", "link -> text", "kept -> same",
		"dir/x=1\n", "dir/y=2\n", "old/a=1\n", "old/sub/b=2\n", "swap/inner=1\n", "flat=file\n", "noeol=last", "blank name=1\n", "empty=",
	}
	deltaLines = []string{
		"same=1\n", "text=a\nB\nc\nd\n", "-gone", "script*=#!/bin/sh\n", "program=x", "binary=\x00\x02new and longer", "link -> dir/x",
		"dir/x=1\n", "dir/z=3\n", "-dir/y", "-old", "swap=now a file\n", "flat/deep/f=now a directory\n", "noeol=last\nmore", "blank name=2\n",
		"new=fresh\n", "new.bin=\x00\xff\x01", "very/deep/new*=#!\n", "odd\tname\n\"\\\xff=bytes\n", "newlink -> nowhere", "newempty=",
	}
	resultLines = []string{
		"same=1\n", "text=a\nB\nc\nd\n", "script*=#!/bin/sh\n", "program=x", "binary=\x00\x02new and longer", "link -> dir/x", "kept -> same",
		"dir/x=1\n", "dir/z=3\n", "swap=now a file\n", "flat/deep/f=now a directory\n", "noeol=last\nmore", "blank name=2\n", "empty=",
		"new=fresh\n", "new.bin=\x00\xff\x01", "very/deep/new*=#!\n", "odd\tname\n\"\\\xff=bytes\n", "newlink -> nowhere", "newempty=",
	}
)

func (b *bench) result(lines ...string) map[string]string {
	b.t.Helper()
	dir := b.t.TempDir()
	b.fill(dir, lines...)
	return state(b.t, dir, false)
}

func (b *bench) changes() *Comparison {
	b.t.Helper()
	c, err := Of(b.Delta)
	b.must(err)
	b.t.Cleanup(c.Close)
	return c
}

func listOf(list []Change) string {
	var b strings.Builder
	_ = WriteList(&b, list)
	return b.String()
}

func TestEveryKindOfChangeIsFound(t *testing.T) {
	for _, test := range []struct {
		name          string
		source, delta []string
		want          string
	}{
		{"nothing", []string{"a=1"}, nil, ""},
		{"copied up and the same", []string{"a=1", "d/b=2"}, []string{"a=1", "d/b=2"}, ""},
		{"added", nil, []string{"a=1", "d/b=2"}, "A a\nA d/\nA d/b\n"},
		{"content", []string{"a=1"}, []string{"a=2"}, "M a\n"},
		{"length", []string{"a=1"}, []string{"a=11"}, "M a\n"},
		{"mode", []string{"a=1"}, []string{"a*=1"}, "m a 0644 -> 0755\n"},
		{"link", []string{"a -> b"}, []string{"a -> c"}, "L a -> c\n"},
		{"link and the same", []string{"a -> b"}, []string{"a -> b"}, ""},
		{"type", []string{"a=1"}, []string{"a -> b"}, "T a -> b\n"},
		{"removed", []string{"a=1", "b=2"}, []string{"-a"}, "D a\n"},
		{"removed directory", []string{"d/a=1", "d/e/b=2"}, []string{"-d"}, "D d/\nD d/a\nD d/e/\nD d/e/b\n"},
		{"whiteout of nothing", []string{"a=1"}, []string{"-b"}, ""},
		{"replaced directory", []string{"d/a=1", "d/b=2"}, []string{"!d/", "d/b=2", "d/c=3"}, "D d/a\nA d/c\n"},
		{"directory becomes file", []string{"d/a=1"}, []string{"d=1"}, "T d\nD d/a\n"},
		{"file becomes directory", []string{"d=1"}, []string{"d/a=1"}, "T d/\nA d/a\n"},
		{"a name before its directory's files", []string{"d/a=1"}, []string{"d-x=1", "d/a=2"}, "M d/a\nA d-x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.source...)
			b.write(test.delta...)
			if got := listOf(b.changes().Changes); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestOnlyTheTimeIsNoChange(t *testing.T) {
	b := newBench(t, "a=1")
	b.write("a=1")
	b.must(os.Chtimes(b.Upper()+"/a", time.Time{}, time.Unix(1, 0)))
	if got := listOf(b.changes().Changes); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestAttributesAreAChange(t *testing.T) {
	b := newBench(t, "a=1")
	b.write("a=1")
	b.must(unix.Setxattr(b.Upper()+"/a", "user.note", []byte("x"), 0))
	if got := listOf(b.changes().Changes); !strings.HasPrefix(got, "m a ") {
		t.Errorf("got %q", got)
	}
}

// TestLayersCountTogether: what was sealed in a snapshot differs from the
// directory as well.
func TestLayersCountTogether(t *testing.T) {
	b := newBench(t, "a=1", "b=1", "d/x=1", "d/y=1")
	layer := t.TempDir()
	b.fill(layer, "a=2", "-b", "-d", "new=1", "twice=1")
	b.write("!d/", "d/z=1", "-new", "twice=2")
	c, err := Compare(Stack{Tops: []string{b.Upper(), layer}, Bottoms: []string{b.source}})
	b.must(err)
	defer c.Close()
	want := "M a\nD b\nD d/x\nD d/y\nA d/z\nA twice\n"
	if got := listOf(c.Changes); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPatchIsWhatGitApplies(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, sourceLines...)
	b.write(deltaLines...)
	c := b.changes()
	var patch bytes.Buffer
	b.must(c.WritePatch(&patch, c.Changes))
	cmd := exec.Command(git, "apply", "--verbose", "-")
	cmd.Dir, cmd.Stdin = b.source, &patch
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.source), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s", err, out)
	}
	wantState(t, state(t, b.source, false), b.result(resultLines...))
}

func TestPatchLeavesRepositoriesOut(t *testing.T) {
	b := newBench(t, ".git/HEAD=a\n")
	b.write(".git/HEAD=b\n", "sub/.git/x=1\n", "f=1\n")
	c := b.changes()
	var patch bytes.Buffer
	b.must(c.WritePatch(&patch, c.Changes))
	if got := patch.String(); strings.Contains(got, ".git/") || !strings.Contains(got, "b/f") {
		t.Errorf("got %s", got)
	}
}

// sparse makes files that take no room on the disk.
func (b *bench) sparse(size int64, files ...string) {
	b.t.Helper()
	for _, name := range files {
		f, err := os.Create(name)
		b.must(err)
		b.must(f.Truncate(size))
		b.must(f.Close())
	}
}

// TestSizeDoesNotMatter: a command makes files of any size for nothing, and who
// looks at them does not read them.
func TestSizeDoesNotMatter(t *testing.T) {
	const most = 1 << 43
	b := newBench(t)
	b.sparse(most, b.source+"/same", b.source+"/end", b.source+"/mode", b.Upper()+"/same", b.Upper()+"/end", b.Upper()+"/mode", b.Upper()+"/giant")
	b.must(os.Chmod(b.Upper()+"/mode", 0o755))
	f, err := os.OpenFile(b.Upper()+"/end", os.O_WRONLY, 0)
	b.must(err)
	defer f.Close()
	_, err = f.WriteAt([]byte("x"), most-1)
	b.must(err)
	c := b.changes()
	if got, want := listOf(c.Changes), "M end\nA giant\nm mode 0644 -> 0755\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var shown bytes.Buffer
	b.must(c.WriteUnified(&shown, c.Changes, false))
	if got, want := shown.String(), "added giant\n  too large to be shown line by line\n"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var patch bytes.Buffer
	err = c.WritePatch(&patch, c.Changes)
	if err == nil || !strings.Contains(err.Error(), "end has more than 64 MiB") || patch.Len() > 0 {
		t.Errorf("got %v and %d bytes", err, patch.Len())
	}
	b.must(c.WritePatch(&patch, Select(c.Changes, []string{"mode"})))
	if got, want := patch.String(), "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.apply(Options{Paths: []string{"giant"}})
	if info, err := os.Stat(b.source + "/giant"); err != nil || info.Size() != most {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestTextOnATerminalIsHarmless(t *testing.T) {
	b := newBench(t, "a=plain\n")
	b.write("a=\x1b[2Jclear\n", "n\x1b]0;x=\x9bm\n")
	c := b.changes()
	var shown, exact bytes.Buffer
	b.must(c.WriteUnified(&shown, c.Changes, true))
	b.must(c.WriteUnified(&exact, c.Changes, false))
	if bytes.IndexByte(shown.Bytes(), 0x1b) >= 0 || bytes.IndexByte(shown.Bytes(), 0x9b) >= 0 {
		t.Errorf("shown: %q", shown.String())
	}
	for _, text := range []string{"-plain", "+\\x1b[2Jclear", "changed a"} {
		if !strings.Contains(shown.String(), text) {
			t.Errorf("%q is not in %q", text, shown.String())
		}
	}
	if !strings.Contains(exact.String(), "+\x1b[2Jclear\n") {
		t.Errorf("exact: %q", exact.String())
	}
}

func TestJSONNamesOddPathsByTheirBytes(t *testing.T) {
	b := newBench(t, "a=1")
	b.write("a=22", "b\xff=1")
	var out bytes.Buffer
	b.must(WriteJSON(&out, b.changes().Changes))
	var got struct {
		Summary Summary
		Changes []struct {
			Path      string
			PathBytes []byte
			Kind      Kind
		}
	}
	b.must(json.Unmarshal(out.Bytes(), &got))
	if got.Summary != (Summary{Added: 1, Changed: 1, Bytes: 3}) || len(got.Changes) != 2 || string(got.Changes[1].PathBytes) != "b\xff" || got.Changes[0].Kind != Changed {
		t.Errorf("got %+v of %s", got, out.String())
	}
}

func TestMergePutsBothChangesTogether(t *testing.T) {
	const base = "1\n2\n3\n4\n5\n"
	for _, test := range []struct {
		name, base, ours, theirs, want string
		conflict                       bool
	}{
		{"apart", base, "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "one\n2\n3\n4\nfive\n", false},
		{"the same", base, "1\nx\n3\n4\n5\n", "1\nx\n3\n4\n5\n", "1\nx\n3\n4\n5\n", false},
		{"only ours", base, "", base, "", false},
		{"only theirs", base, base, "1\n", "1\n", false},
		{"ends", base, "0\n" + base, base + "6\n", "0\n" + base + "6\n", false},
		{"clash", base, "1\nx\n3\n4\n5\n", "1\ny\n3\n4\n5\n", "1\n<<<<<<< workspace\nx\n=======\ny\n>>>>>>> directory\n3\n4\n5\n", true},
		{"both append", "1\n", "1\na\n", "1\nb\n", "1\n<<<<<<< workspace\na\n=======\nb\n>>>>>>> directory\n", true},
		{"neighbours", base, "1\nx\n3\n4\n5\n", "1\n2\ny\n4\n5\n", "1\n<<<<<<< workspace\nx\n3\n=======\n2\ny\n>>>>>>> directory\n4\n5\n", true},
		{"no end of line", "1\n2", "1\nx", "1\ny", "1\n<<<<<<< workspace\nx\n=======\ny\n>>>>>>> directory\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, conflict := Merge([]byte(test.base), []byte(test.ours), []byte(test.theirs))
			if string(got) != test.want || conflict != test.conflict {
				t.Errorf("got %q, %v, want %q, %v", got, conflict, test.want, test.conflict)
			}
		})
	}
}

func FuzzMergeKeepsWhatOnlyOneChanged(f *testing.F) {
	f.Add("a\nb\n", "a\nc\n")
	f.Fuzz(func(t *testing.T, base, other string) {
		for _, pair := range [][2]string{{other, base}, {base, other}, {other, other}} {
			if got, conflict := Merge([]byte(base), []byte(pair[0]), []byte(pair[1])); string(got) != other || conflict {
				t.Errorf("base %q, ours %q, theirs %q: got %q, %v", base, pair[0], pair[1], got, conflict)
			}
		}
	})
}

func TestSelectTakesTheWayToAPathAlong(t *testing.T) {
	b := newBench(t, "x/old=1")
	b.write("d/e/f=1", "d/g=1", "-x")
	got := listOf(Select(b.changes().Changes, []string{"d/e", "x"}))
	if want := "A d/\nA d/e/\nA d/e/f\nD x/\nD x/old\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSummaryCountsFiles(t *testing.T) {
	b := newBench(t, sourceLines...)
	b.write(deltaLines...)
	got := fmt.Sprintf("%+v", Summarize(b.changes().Changes))
	if want := "{Added:8 Changed:9 Deleted:5 Bytes:82}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
