package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// describe lists a tree, a line for each file with everything that must be kept.
func describe(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	links := map[uint64]string{}
	must(t, Walk(open(t, dir), Visitor{Enter: func(n *Node) error {
		fmt.Fprintf(&b, "%q %o %d:%d", n.Path, n.Stat.Mode, n.Stat.Uid, n.Stat.Gid)
		fmt.Fprintf(&b, " %d.%09d", n.Stat.Mtim.Sec, n.Stat.Mtim.Nsec)
		attrs, err := n.Attrs(func(string) bool { return true })
		must(t, err)
		fmt.Fprintf(&b, " %q", attrs)
		switch {
		case n.IsRegular():
			content, err := os.ReadFile(dir + "/" + n.Path)
			must(t, err)
			fmt.Fprintf(&b, " %d bytes %x", n.Stat.Size, hash(content))
			if n.Stat.Nlink > 1 {
				if links[n.Stat.Ino] == "" {
					links[n.Stat.Ino] = n.Path
				}
				fmt.Fprintf(&b, " as %q", links[n.Stat.Ino])
			}
		case n.Type() == unix.S_IFLNK:
			target, err := n.Readlink()
			must(t, err)
			fmt.Fprintf(&b, " to %q", target)
		}
		b.WriteByte('\n')
		return nil
	}}))
	return b.String()
}

func hash(b []byte) (sum uint64) {
	for _, c := range b {
		sum = sum*1099511628211 + uint64(c) + 1
	}
	return sum
}

// varied makes a tree with one of everything.
func varied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/a/plain", "hello\n")
	write(t, dir+"/a/empty", "")
	write(t, dir+"/a/odd \xff\n\tname", "odd")
	write(t, dir+"/a/large", strings.Repeat("0123456789abcdef", 40_000))
	must(t, os.Chmod(dir+"/a/plain", 0o4751))
	must(t, os.Symlink("/nowhere/\xfe", dir+"/a/link"))
	must(t, os.Link(dir+"/a/plain", dir+"/z-same"))
	must(t, unix.Mkfifo(dir+"/pipe", 0o640))
	must(t, os.Mkdir(dir+"/shut", 0o755))
	write(t, dir+"/shut/in", "x")
	must(t, unix.Setxattr(dir+"/a/empty", "user.note", []byte("v\x00w"), 0))
	must(t, unix.Setxattr(dir+"/a", "user.dir", []byte("d"), 0))
	sparse(t, dir+"/sparse", 64<<20)
	old := time.Unix(1_000_000_000, 123_456_789)
	must(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		must(t, err)
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{unix.NsecToTimespec(old.UnixNano()), unix.NsecToTimespec(old.UnixNano())}, unix.AT_SYMLINK_NOFOLLOW)
	}))
	must(t, os.Chmod(dir+"/shut", 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir+"/shut", 0o755) })
	return dir
}

func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("in the middle"), size/2)
	must(t, err)
}

// target is a directory whose content can be removed whatever its modes are.
func target(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { must(t, Remove(open(t, dir), "to")) })
	must(t, os.Mkdir(dir+"/to", 0o700))
	return dir + "/to"
}

func TestCopyKeepsEverything(t *testing.T) {
	from, to := varied(t), target(t)
	must(t, Copy(open(t, to), open(t, from), CopyOptions{}))
	want, got := describe(t, from), describe(t, to)
	if want != got {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !strings.Contains(got, `as "a/plain"`) || !strings.Contains(got, "user.note") {
		t.Errorf("the sample lacks what it is for:\n%s", got)
	}
	var st unix.Stat_t
	must(t, unix.Stat(to+"/sparse", &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("the sparse file takes %d bytes", st.Blocks*512)
	}
}

func TestPlainCopyIsTheSameAsTheKernels(t *testing.T) {
	dir := t.TempDir()
	sparse(t, dir+"/from", 8<<20)
	from := open(t, dir+"/from")
	for name, c := range map[string]Copier{"range": {noClone: true}, "plain": {noClone: true, noRange: true}} {
		to, err := os.Create(dir + "/" + name)
		must(t, err)
		must(t, c.Copy(to, from, 8<<20))
		to.Close()
		want, _ := os.ReadFile(dir + "/from")
		got, _ := os.ReadFile(dir + "/" + name)
		if !bytes.Equal(want, got) {
			t.Errorf("%s: the copy differs", name)
		}
	}
}

func TestCopyNeverFollowsLinks(t *testing.T) {
	outside := t.TempDir()
	write(t, outside+"/secret", "secret")
	from, to := t.TempDir(), target(t)
	must(t, os.Symlink(outside, from+"/dir"))
	must(t, os.Symlink(outside+"/secret", from+"/file"))
	must(t, Copy(open(t, to), open(t, from), CopyOptions{}))
	for _, name := range []string{"dir", "file"} {
		if _, err := os.Readlink(to + "/" + name); err != nil {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
}

func TestFileThatWasExchangedIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", "one")
	err := Walk(open(t, dir), Visitor{Enter: func(n *Node) error {
		if n.IsDir() {
			return nil
		}
		must(t, os.Remove(dir+"/f"))
		must(t, unix.Mkfifo(dir+"/f", 0o600)) // blocks who opens it
		_, err := n.Open()
		return err
	}})
	if err == nil {
		t.Error("a pipe in the place of a file was opened")
	}
}

func TestForgedMarksOfOverlayfsAreNotCopied(t *testing.T) {
	from := t.TempDir()
	write(t, from+"/d/f", "x")
	must(t, unix.Setxattr(from+"/d", Opaque, []byte("y"), 0))
	must(t, unix.Setxattr(from+"/d/f", OverlayPrefix+"metacopy", []byte("y"), 0))
	to := target(t)
	must(t, Copy(open(t, to), open(t, from), CopyOptions{}))
	if got := describe(t, to); strings.Contains(got, "overlay") {
		t.Errorf("copied:\n%s", got)
	}
	if err := unix.Mknod(from+"/gone", unix.S_IFCHR, 0); err != nil {
		t.Fatal(err)
	}
	if err := Copy(open(t, target(t)), open(t, from), CopyOptions{}); err == nil {
		t.Error("a forged whiteout was copied")
	}
	to = target(t)
	must(t, Copy(open(t, to), open(t, from), CopyOptions{Marks: Preserve}))
	got := describe(t, to)
	if !strings.Contains(got, `"gone" 20000`) || !strings.Contains(got, Opaque) || strings.Contains(got, "metacopy") {
		t.Errorf("an upper directory became\n%s", got)
	}
}

func TestSocketsAreLeftOutAndNamed(t *testing.T) {
	from := t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: from + "/s"}))
	left := ""
	must(t, Copy(open(t, target(t)), open(t, from), CopyOptions{Left: func(path, why string) { left += path + ": " + why }}))
	if left != "s: a socket" {
		t.Errorf("left %q", left)
	}
}

func TestSkippedFilesAreNotCopied(t *testing.T) {
	from, to := t.TempDir(), target(t)
	write(t, from+"/keep", "")
	write(t, from+"/skip", "")
	write(t, from+"/dir/skip/f", "")
	must(t, Copy(open(t, to), open(t, from), CopyOptions{Skip: func(n *Node) bool { return n.Name == "skip" }}))
	got := ""
	must(t, Walk(open(t, to), Visitor{Enter: func(n *Node) error { got += n.Path + " "; return nil }}))
	if got != " dir keep " {
		t.Errorf("got %q", got)
	}
}

func TestRemoveTakesTreesDeeperThanDescriptors(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/deep", 0o700))
	at, err := os.Open(dir + "/deep")
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(int(at.Fd()), "d", 0o700))
		next, err := unix.Openat(int(at.Fd()), "d", unix.O_RDONLY, 0)
		must(t, err)
		at.Close()
		at = os.NewFile(uintptr(next), "d")
	}
	at.Close()
	if err := Walk(open(t, dir), Visitor{Enter: func(*Node) error { return nil }}); err == nil {
		t.Error("3000 directories in each other were walked")
	}
	must(t, Remove(open(t, dir), "deep"))
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRemoveDoesNotFollowLinks(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside+"/f", "x")
	must(t, os.Mkdir(dir+"/d", 0o700))
	must(t, os.Symlink(outside, dir+"/d/l"))
	must(t, Remove(open(t, dir), "d"))
	if _, err := os.Stat(outside + "/f"); err != nil {
		t.Error(err)
	}
}

func TestRemoveOpensDirectoriesThatAreShut(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/d/e/f", "x")
	must(t, os.Chmod(dir+"/d/e", 0))
	must(t, os.Chmod(dir+"/d", 0o500))
	must(t, Remove(open(t, dir), "d"))
	must(t, Remove(open(t, dir), "never was"))
}

func TestPutReplacesAWholeFileAndFollowsNothing(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, dir+"/d/f", "old")
	write(t, outside+"/f", "old")
	must(t, os.Symlink(outside, dir+"/l"))
	must(t, os.Symlink(outside+"/f", dir+"/d/link"))
	put := func(name string, err error) error {
		return Put(open(t, dir), name, Meta{Mode: 0o640, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), Mtime: unix.Timespec{Sec: 7}}, func(f *os.File) error {
			_, _ = f.WriteString("new")
			return err
		})
	}
	must(t, put("d/f", nil))
	must(t, put("d/link", nil))
	for _, name := range []string{"l/f", "../x", "/tmp/x", "l"} {
		if err := put(name, nil); name != "l" && err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := put("d/f", errors.New("the disk is full")); err == nil {
		t.Error("an error of the writer was lost")
	}
	for path, want := range map[string]string{dir + "/d/f": "new", outside + "/f": "old", dir + "/d/link": "new"} {
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if left, _ := os.ReadDir(dir + "/d"); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	var st unix.Stat_t
	must(t, unix.Stat(dir+"/d/f", &st))
	if st.Mode&0o777 != 0o640 || st.Mtim.Sec != 7 {
		t.Errorf("mode %o, time %d", st.Mode&0o777, st.Mtim.Sec)
	}
}

func TestMeasureCountsAFileWithTwoNamesOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", strings.Repeat("x", 8192))
	one, err := Measure(open(t, dir))
	must(t, err)
	must(t, os.Link(dir+"/a", dir+"/b"))
	two, err := Measure(open(t, dir))
	must(t, err)
	if one != two || one.Files != 2 || one.Bytes < 8192 || one.Length != 8192 {
		t.Errorf("got %+v and %+v", one, two)
	}
}

func TestOwnersAreKeptForRoot(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	from, to := t.TempDir(), target(t)
	write(t, from+"/f", "x")
	must(t, os.Lchown(from+"/f", 1234, 4321))
	must(t, Copy(open(t, to), open(t, from), CopyOptions{}))
	var st unix.Stat_t
	must(t, unix.Stat(to+"/f", &st))
	if st.Uid != 1234 || st.Gid != 4321 {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
}

func TestStackIsWalkedAsOverlayfsShowsIt(t *testing.T) {
	top, middle, bottom := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, bottom+"/both/low", "")
	write(t, bottom+"/both/changed", "low")
	write(t, bottom+"/gone/f", "")
	write(t, bottom+"/hidden/f", "")
	write(t, bottom+"/blocked/f", "")
	write(t, bottom+"/replaced", "")
	write(t, middle+"/both/middle", "")
	write(t, middle+"/both/changed", "middle")
	must(t, unix.Mknod(middle+"/gone", unix.S_IFCHR, 0))
	must(t, unix.Mknod(middle+"/blocked", unix.S_IFCHR, 0))
	write(t, middle+"/hidden/g", "")
	must(t, unix.Setxattr(middle+"/hidden", Opaque, []byte("y"), 0))
	write(t, top+"/both/top", "")
	write(t, top+"/hidden/h", "")
	write(t, top+"/blocked/i", "")
	write(t, top+"/replaced/dir", "")
	stack := []*os.File{open(t, top), open(t, middle), open(t, bottom)}
	for marks, want := range map[Marks]string{
		Preserve: "blocked(opaque) blocked/i both both/changed both/low both/middle both/top gone(whiteout) hidden(opaque) hidden/g hidden/h replaced(opaque) replaced/dir ",
		Drop:     "blocked blocked/i both both/changed both/low both/middle both/top hidden hidden/g hidden/h replaced replaced/dir ",
	} {
		to := target(t)
		must(t, CopyStack(open(t, to), stack, CopyOptions{Marks: marks}))
		got := ""
		must(t, Walk(open(t, to), Visitor{Enter: func(n *Node) error {
			if n.Path == "" {
				return nil
			}
			got += n.Path
			if n.Opaque {
				got += "(opaque)"
			}
			if n.IsWhiteout() {
				got += "(whiteout)"
			}
			got += " "
			return nil
		}}))
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if content, _ := os.ReadFile(to + "/both/changed"); string(content) != "middle" {
			t.Errorf("changed: %q", content)
		}
	}
}

func TestOwnTreeIsCopiedWhateverItsModesForbid(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from+"/closed/file", "secret")
	write(t, from+"/listed/file", "listed")
	write(t, from+"/none", "none")
	modes := map[string]os.FileMode{"/closed/file": 0, "/closed": 0, "/listed": 0o400, "/none": 0o200, "": 0o500}
	for _, name := range []string{"/closed/file", "/closed", "/listed", "/none", ""} {
		must(t, os.Chmod(from+name, modes[name]))
	}
	t.Cleanup(func() {
		for _, dir := range []string{from, to} {
			for _, name := range []string{"", "/closed", "/listed"} {
				must(t, os.Chmod(dir+name, 0o700))
			}
		}
	})
	must(t, Copy(open(t, to), open(t, from), CopyOptions{Own: true}))
	for _, dir := range []string{from, to} {
		for _, name := range []string{"", "/closed", "/listed", "/none"} {
			if info, err := os.Lstat(dir + name); err != nil || info.Mode().Perm() != modes[name] {
				t.Errorf("%s of %s: got %v, %v; want mode %v", name, map[bool]string{true: "the copy", false: "the original"}[dir == to], info, err, modes[name])
			}
		}
	}
	must(t, os.Chmod(to+"/closed", 0o700))
	if info, err := os.Lstat(to + "/closed/file"); err != nil || info.Mode().Perm() != 0 || info.Size() != 6 {
		t.Errorf("the file in a closed directory: got %v, %v", info, err)
	}
}
