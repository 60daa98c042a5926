package rulefs

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// wants fails unless an error is one of those wanted; none is wanted by none.
func wants(t *testing.T, what string, err error, want ...unix.Errno) {
	t.Helper()
	if err == nil && len(want) == 0 {
		return
	}
	for _, e := range want {
		if errors.Is(err, e) {
			return
		}
	}
	t.Errorf("%s: got %v, want %v", what, err, want)
}

func opened(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestHiddenNamesDoNotExist(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None))
	w.put(t, ".env", "ok", "src/.env", "src/ok", "src/deep/.env/x")
	for _, name := range []string{".env", "src/.env", "src/deep/.env", "src/deep/.env/x"} {
		var st unix.Stat_t
		wants(t, "stat "+name, unix.Lstat(w.in(name), &st), unix.ENOENT)
		wants(t, "open "+name, opened(w.in(name), unix.O_RDONLY), unix.ENOENT)
		wants(t, "O_PATH "+name, opened(w.in(name), unix.O_PATH), unix.ENOENT)
		wants(t, "unlink "+name, unix.Unlink(w.in(name)), unix.ENOENT)
		wants(t, "rename "+name, unix.Rename(w.in(name), w.in("stolen")), unix.ENOENT)
		wants(t, "link "+name, unix.Link(w.in(name), w.in("stolen")), unix.ENOENT)
	}
	for _, name := range []string{".env", "src/.env", "src/deep/.env", "new/.env"} {
		if name == "new/.env" {
			wants(t, "mkdir new", unix.Mkdir(w.in("new"), 0o755))
		}
		p := w.in(name)
		wants(t, "create "+name, opened(p, unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
		wants(t, "mkdir "+name, unix.Mkdir(p, 0o755), unix.EACCES)
		wants(t, "mknod "+name, unix.Mknod(p, unix.S_IFREG|0o644, 0), unix.EACCES)
		wants(t, "symlink "+name, unix.Symlink("ok", p), unix.EACCES)
		wants(t, "link onto "+name, unix.Link(w.in("ok"), p), unix.EACCES)
		wants(t, "rename onto "+name, unix.Rename(w.in("ok"), p), unix.EACCES)
		wants(t, "exchange with "+name, unix.Renameat2(unix.AT_FDCWD, w.in("ok"), unix.AT_FDCWD, p, unix.RENAME_EXCHANGE), unix.ENOENT, unix.EACCES)
	}
	if got := listed(t, w.in("src")); !slices.Equal(got, []string{"deep", "ok"}) {
		t.Errorf("src lists %v", got)
	}
	wants(t, "rmdir around a hidden name", unix.Rmdir(w.in("src/deep")), unix.ENOTEMPTY)
	if data, err := os.ReadFile(w.out(".env")); string(data) != "content of .env" {
		t.Errorf("the hidden file changed: %q, %v", data, err)
	}
}

func TestLinksAreJudgedByWhatTheyLeadTo(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None), rule("v", pathrule.View))
	w.put(t, ".env", "v", "ok")
	for _, target := range []string{".env", "v", "ok"} {
		if err := os.Symlink(target, w.in("to-"+target)); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "through a link to a hidden name", opened(w.in("to-.env"), unix.O_RDONLY), unix.ENOENT)
	wants(t, "through a link to a viewed name", opened(w.in("to-v"), unix.O_RDONLY), unix.EACCES)
	wants(t, "through a link", opened(w.in("to-ok"), unix.O_RDONLY))
	wants(t, "creation through a link", opened(w.in("to-.env"), unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	// A link of the host's that leads out is followed by the kernel, in the
	// caller's own root directory.
	if err := os.Symlink("/etc/hostname", w.out("out")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(w.in("out")); got != "/etc/hostname" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestViewedFilesShowNameAndSizeOnly(t *testing.T) {
	w := newWorld(t, rule("v", pathrule.View), rule("dir", pathrule.View))
	w.put(t, "v", "dir/file", "w")
	if err := os.Chmod(w.out("v"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/secret/place", w.out("dir/link")); err != nil {
		t.Fatal(err)
	}
	_ = unix.Setxattr(w.out("v"), "user.secret", []byte("x"), 0)
	info, err := os.Lstat(w.in("v"))
	if err != nil || info.Size() != int64(len("content of v")) || info.Mode().Perm() != 0 {
		t.Errorf("got %v, %v", info, err)
	}
	if got := listed(t, w.in("dir")); !slices.Equal(got, []string{"file", "link"}) {
		t.Errorf("dir lists %v", got)
	}
	for _, name := range []string{"v", "dir/file"} {
		p := w.in(name)
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDONLY | unix.O_TRUNC, unix.O_RDONLY | unix.O_DIRECT} {
			wants(t, "open "+name, opened(p, flags), unix.EACCES)
		}
		wants(t, "truncate "+name, unix.Truncate(p, 0), unix.EACCES)
		wants(t, "link "+name, unix.Link(p, w.in("stolen")), unix.EPERM)
		wants(t, "rename "+name, unix.Rename(p, w.in("stolen")), unix.EACCES)
		wants(t, "exchange "+name, unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, w.in("w"), unix.RENAME_EXCHANGE), unix.EACCES)
		wants(t, "chmod "+name, unix.Chmod(p, 0o644), unix.EACCES)
		wants(t, "unlink "+name, unix.Unlink(p), unix.EACCES)
		wants(t, "exec "+name, exec.Command(p).Run(), unix.EACCES)
		_, err := unix.Getxattr(p, "user.secret", make([]byte, 8))
		wants(t, "getxattr "+name, err, unix.EACCES)
		reopenRefused(t, p)
	}
	_, err = os.Readlink(w.in("dir/link"))
	wants(t, "readlink", err, unix.EACCES)
	wants(t, "create in a viewed directory", opened(w.in("dir/new"), unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
}

// reopenRefused tries to open a file by a descriptor that only names it.
func reopenRefused(t *testing.T, p string) {
	t.Helper()
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("%s: O_PATH: %v", p, err)
		return
	}
	defer unix.Close(fd)
	wants(t, "open again "+p, opened("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY), unix.EACCES)
}

func TestReadOnlyNames(t *testing.T) {
	w := newWorld(t, rule("ro", pathrule.Read), rule("ro/*.out", pathrule.Write))
	w.put(t, "ro/a", "ro/a.out", "w")
	p := w.in("ro/a")
	if data, err := os.ReadFile(p); string(data) != "content of ro/a" {
		t.Errorf("got %q, %v", data, err)
	}
	wants(t, "open for writing", opened(p, unix.O_WRONLY), unix.EACCES)
	wants(t, "chmod", unix.Chmod(p, 0o777), unix.EROFS)
	wants(t, "utimes", os.Chtimes(p, info(t, p).ModTime(), info(t, p).ModTime()), unix.EROFS)
	wants(t, "unlink", unix.Unlink(p), unix.EROFS)
	wants(t, "rename", unix.Rename(p, w.in("x")), unix.EROFS)
	wants(t, "rename onto", unix.Rename(w.in("w"), p), unix.EROFS)
	wants(t, "link", unix.Link(p, w.in("x")), unix.EPERM)
	wants(t, "setxattr", unix.Setxattr(p, "user.x", []byte("y"), 0), unix.EROFS, unix.EACCES)
	wants(t, "create", opened(w.in("ro/new"), unix.O_CREAT|unix.O_WRONLY), unix.EROFS)
	wants(t, "create what a rule lets be written", opened(w.in("ro/new.out"), unix.O_CREAT|unix.O_WRONLY))
	wants(t, "write what a rule lets be written", opened(w.in("ro/a.out"), unix.O_WRONLY|unix.O_TRUNC))
}

func info(t *testing.T, name string) os.FileInfo {
	t.Helper()
	i, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAncestorsOfWhatIsGrantedShowOnlyTheWay(t *testing.T) {
	w := newWorld(t, rule("**", pathrule.None), rule("a/b/ok", pathrule.Write), rule("x/*/y", pathrule.Read))
	w.put(t, "a/b/ok/file", "a/b/other", "a/c/", "q", "x/1/y", "x/1/z", "x/2/")
	for dir, want := range map[string][]string{".": {"a", "x"}, "a": {"b"}, "a/b": {"ok"}, "a/b/ok": {"file"}, "x": {"1", "2"}, "x/1": {"y"}} {
		if got := listed(t, w.in(dir)); !slices.Equal(got, want) {
			t.Errorf("%s lists %v, want %v", dir, got, want)
		}
	}
	wants(t, "write", opened(w.in("a/b/ok/new"), unix.O_CREAT|unix.O_WRONLY))
	wants(t, "create beside the way", opened(w.in("a/b/new"), unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	wants(t, "remove the way", os.Remove(w.in("a")), unix.EACCES, unix.ENOTEMPTY)
	wants(t, "rename the way", unix.Rename(w.in("a"), w.in("b")), unix.EACCES)
}

func TestRenamingADirectoryRaisesNoPermission(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None), rule("src/gen", pathrule.Read), rule("top/secret", pathrule.None))
	w.put(t, "src/gen/a", "src/.env", "top/secret/s", "top/ok", "free/.env", "free/ok", "other/")
	wants(t, "what stays hidden moves", unix.Rename(w.in("free"), w.in("moved")))
	wants(t, "and stays hidden", opened(w.in("moved/.env"), unix.O_RDONLY), unix.ENOENT)
	wants(t, "what is read-only by its path", unix.Rename(w.in("src"), w.in("src2")), unix.EXDEV)
	wants(t, "what is hidden by its path", unix.Rename(w.in("top"), w.in("top2")), unix.EXDEV)
	wants(t, "by exchange", unix.Renameat2(unix.AT_FDCWD, w.in("top"), unix.AT_FDCWD, w.in("other"), unix.RENAME_EXCHANGE), unix.EXDEV)
	wants(t, "by exchange, the other way", unix.Renameat2(unix.AT_FDCWD, w.in("other"), unix.AT_FDCWD, w.in("top"), unix.RENAME_EXCHANGE), unix.EXDEV)
	if got := listed(t, w.in("top")); !slices.Equal(got, []string{"ok"}) {
		t.Errorf("top lists %v", got)
	}
	// Somebody else's directory in the place of one that is judged by its path.
	wants(t, "mkdir", unix.Mkdir(w.in("fresh"), 0o755))
	w.put(t, "fresh/secret")
	wants(t, "a name under which something would be hidden", unix.Rename(w.in("fresh"), w.in("top/x")))
}

// A name is judged by where its directory is when it is made, and a directory by
// what is in it when it is renamed, also where both happen at once.
func TestNamesAreMadeAndDirectoriesRenamedOneAfterTheOther(t *testing.T) {
	w := newWorld(t, rule("top/secret", pathrule.None))
	w.put(t, "free/")
	dir, err := unix.Open(w.in("free"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = unix.Rename(w.in("free"), w.in("top")) // whichever is possible
			_ = unix.Rename(w.in("top"), w.in("free"))
		}
	})
	made := 0
	for range 3000 {
		fd, err := unix.Openat(dir, "secret", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			continue
		}
		made++
		_ = unix.Close(fd)
		if _, err := os.Lstat(w.out("top/secret")); err == nil {
			t.Error("a hidden name was made")
			break
		}
		_ = unix.Unlinkat(dir, "secret", 0)
	}
	close(done)
	group.Wait()
	if made == 0 {
		t.Error("no name was ever made")
	}
}

func (w *world) link(t *testing.T, old, name string) {
	t.Helper()
	if err := os.Link(w.out(old), w.out(name)); err != nil {
		t.Fatal(err)
	}
}

func TestOneFileUnderTwoNames(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None))
	w.put(t, "a")
	w.link(t, "a", "b")
	listed(t, w.mnt) // which tells the kernel of both
	if data, err := os.ReadFile(w.in("b")); string(data) != "content of a" {
		t.Fatalf("got %q, %v", data, err)
	}
	if err := os.WriteFile(w.in("a"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(w.in("b")); string(data) != "new" {
		t.Errorf("got %q, %v", data, err)
	}
	if a, b := info(t, w.in("a")), info(t, w.in("b")); !os.SameFile(a, b) {
		t.Error("two names of a file have different numbers")
	}
}

// TestEveryNameOfAFileIsPermittedTheLeast: a name that was made without the rules
// gives no way around them, and files with other names elsewhere lose nothing.
func TestEveryNameOfAFileIsPermittedTheLeast(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None), rule("**/*.lock", pathrule.Read), rule("**/*.view", pathrule.View))
	w.put(t, ".env", "d/e/x.lock", "d/x.view", "two", "elsewhere", "plain", "later.lock", "met")
	w.link(t, "met", "d/unmet")
	w.link(t, ".env", "hidden")
	w.link(t, "d/e/x.lock", "d/read")
	w.link(t, "d/x.view", "viewed")
	w.link(t, "two", "d/two")
	if err := os.Link(w.out("elsewhere"), t.TempDir()+"/outside"); err != nil {
		t.Fatal(err)
	}
	free := []string{"two", "d/two", "elsewhere", "plain"}
	for _, name := range free {
		wants(t, "write "+name, opened(w.in(name), unix.O_RDWR))
	}
	for _, name := range []string{"hidden", "viewed"} {
		p := w.in(name)
		wants(t, "read "+name, opened(p, unix.O_RDONLY), unix.EACCES)
		wants(t, "write "+name, opened(p, unix.O_WRONLY|unix.O_TRUNC), unix.EACCES)
		wants(t, "link "+name, unix.Link(p, w.in("stolen")), unix.EPERM)
		wants(t, "rename "+name, unix.Rename(p, p+"2"))
		wants(t, "read under another name", opened(p+"2", unix.O_RDONLY), unix.EACCES)
	}
	wants(t, "read", opened(w.in("d/read"), unix.O_RDONLY))
	wants(t, "write what may be read", opened(w.in("d/read"), unix.O_WRONLY), unix.EACCES)
	wants(t, "truncate what may be read", unix.Truncate(w.in("d/read"), 0), unix.EACCES, unix.EROFS)
	wants(t, "link what may be read", unix.Link(w.in("d/read"), w.in("stolen")), unix.EPERM)
	if got := listed(t, w.mnt); !slices.Equal(got, []string{"d", "elsewhere", "hidden2", "later.lock", "met", "plain", "two", "viewed2"}) {
		t.Errorf("lists %v", got)
	}

	for i := range 3 { // links of its own
		name := "own" + strconv.Itoa(i)
		wants(t, "link", unix.Link(w.in("plain"), w.in(name)))
		free = append(free, name)
	}
	w.link(t, "later.lock", "later") // while it runs
	wants(t, "write what the host linked since", opened(w.in("later"), unix.O_WRONLY), unix.EACCES)
	for _, name := range free {
		wants(t, "write "+name, opened(w.in(name), unix.O_RDWR))
	}

	var open [2]*os.File
	for i, name := range []string{"met", "elsewhere"} {
		var err error
		if open[i], err = os.OpenFile(w.in(name), os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		defer open[i].Close()
	}
	w.change(t, rule("**/two", pathrule.Read), rule("**/{own0,unmet}", pathrule.View))
	if _, err := open[0].WriteAt([]byte("x"), 0); err == nil {
		t.Error("written by a descriptor to what is viewed now by a name that nobody met")
	}
	if _, err := open[1].WriteAt([]byte("x"), 0); err != nil {
		t.Error("a file without names under the new rules:", err)
	}
	wants(t, "read what is hidden no more", opened(w.in("hidden2"), unix.O_RDWR))
	wants(t, "write what may only be read now", opened(w.in("d/two"), unix.O_WRONLY), unix.EACCES)
	for _, name := range []string{"plain", "own1"} {
		wants(t, "read another name of what is viewed now", opened(w.in(name), unix.O_RDONLY), unix.EACCES)
	}
	w.change(t)
	for _, name := range free {
		wants(t, "write "+name, opened(w.in(name), unix.O_RDWR))
	}
}

// TestNamesThatCannotBeLookedAtCount: a sandbox can close its directories, or put
// them deeper than anybody looks.
func TestNamesThatCannotBeLookedAtCount(t *testing.T) {
	deep := strings.Repeat("d/", maxDeep+2)
	for what, hide := range map[string]func(w *world) error{
		"closed": func(w *world) error { return os.Chmod(w.out("dir"), 0o300) },
		"deep": func(w *world) error {
			at, err := unix.Open(w.host, unix.O_PATH|unix.O_CLOEXEC, 0)
			for range strings.Count(deep, "/") {
				err = errors.Join(err, unix.Mkdirat(at, "d", 0o755))
				next, failed := unix.Openat(at, "d", unix.O_PATH|unix.O_CLOEXEC, 0)
				_, at, err = unix.Close(at), next, errors.Join(err, failed)
			}
			return errors.Join(err, unix.Renameat(unix.AT_FDCWD, w.out("dir"), at, "dir"), unix.Close(at))
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, rule("**/.env", pathrule.None))
			w.put(t, "dir/.env", "plain")
			w.link(t, "dir/.env", "notes")
			if err := hide(w); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(w.out("dir"), 0o700) })
			wants(t, "read", opened(w.in("notes"), unix.O_RDONLY), unix.EACCES)
			wants(t, "a link of its own", unix.Link(w.in("plain"), w.in("more")))
			wants(t, "write that", opened(w.in("more"), unix.O_RDWR))
		})
	}
}

// eventually waits for something that happens beside the test. What never happens
// is ended with the test.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for !happened() {
		if t.Context().Err() != nil {
			t.Fatal("never happened: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNumbersAreThoseOfTheHost(t *testing.T) {
	w := newWorld(t)
	w.put(t, "a", "d/b")
	for _, name := range []string{"a", "d", "d/b"} {
		var in, out unix.Stat_t
		if unix.Lstat(w.in(name), &in) != nil || unix.Lstat(w.out(name), &out) != nil || in.Ino != out.Ino {
			t.Errorf("%s: got %d, the host has %d", name, in.Ino, out.Ino)
		}
	}
}

func TestOperationsThatOnlyTheHostsRootMayDo(t *testing.T) {
	w := newWorld(t)
	w.put(t, "f")
	p := w.in("f")
	wants(t, "chown", unix.Chown(p, 12345, -1), unix.EPERM, unix.EINVAL)
	wants(t, "mknod of a device", unix.Mknod(w.in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.EPERM)
	wants(t, "mknod of a whiteout", unix.Mknod(w.in("white"), unix.S_IFCHR, 0), unix.EPERM)
	for _, name := range []string{"security.capability", "security.selinux", "trusted.x", "system.posix_acl_access"} {
		if err := unix.Setxattr(p, name, []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0); err == nil {
			t.Errorf("%s could be set", name)
		}
	}
	if strings.HasPrefix(runOutput(t, "id", "-u"), "0") {
		// What root owns and nobody may read is root's to change, and no more.
		if err := os.Chmod(w.out("f"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kernel knows the new mode", func() bool { return info(t, p).Mode().Perm() == 0 })
		wants(t, "open what its mode forbids", opened(p, unix.O_RDONLY), unix.EACCES)
	}
}

func runOutput(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestFilesThatAreMadeReadOnlyAndThenFilled(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []uint32{0o444, 0o000, 0o200} {
		name := "f" + strconv.Itoa(int(mode))
		fd, err := unix.Open(w.in(name), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, mode)
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Write(fd, []byte("data"))
		if n != 4 || err != nil {
			t.Errorf("%o: wrote %d, %v", mode, n, err)
		}
		buf := make([]byte, 10)
		if n, err := unix.Pread(fd, buf, 0); string(buf[:max(n, 0)]) != "data" {
			t.Errorf("%o: read %q, %v", mode, buf[:max(n, 0)], err)
		}
		wants(t, "ftruncate", unix.Ftruncate(fd, 2))
		_ = unix.Close(fd)
		if got := info(t, w.out(name)); got.Size() != 2 || got.Mode().Perm() != os.FileMode(mode) {
			t.Errorf("%o: the host has %v", mode, got)
		}
	}
}

func TestFilesOutliveTheirNames(t *testing.T) {
	w := newWorld(t)
	w.put(t, "a", "b", "c")
	for name, lose := range map[string]func() error{
		"a": func() error { return unix.Unlink(w.in("a")) },
		"b": func() error { return unix.Rename(w.in("c"), w.in("b")) },
	} {
		f, err := os.OpenFile(w.in(name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wants(t, "lose the name", lose())
		if _, err := f.WriteAt([]byte("later"), 100); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		buf := make([]byte, 5)
		if _, err := f.ReadAt(buf, 100); string(buf) != "later" {
			t.Errorf("%s: read %q, %v", name, buf, err)
		}
		if i, err := f.Stat(); err != nil || i.Size() != 105 {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
}

// Whoever asks about an open file in the very moment in which it loses its name,
// or gets another, is answered.
func TestOpenFilesAreFoundWhileTheyAreRenamed(t *testing.T) {
	w := newWorld(t)
	for round := range 100 {
		w.put(t, "new", "old")
		f, err := os.Open(w.in("old"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			done <- errors.Join(os.Rename(w.in("old"), w.in("moved")), os.Rename(w.in("new"), w.in("moved")))
		}()
		var found error
		for more := true; more; {
			select {
			case err = <-done:
				more = false
			default:
			}
			if found == nil {
				var stat unix.Statx_t
				found = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_SIZE, &stat)
			}
		}
		f.Close()
		if err != nil || found != nil {
			t.Fatalf("round %d: renaming: %v; looking: %v", round, err, found)
		}
	}
}

func TestAProgramCanBeWrittenAndRun(t *testing.T) {
	w := newWorld(t)
	true_, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		name := "true" + strconv.Itoa(i)
		if err := os.WriteFile(w.in(name), true_, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{w.in(name), w.out(name)} {
			if err := exec.Command(p).Run(); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

func TestLocksAreBetweenProcesses(t *testing.T) {
	w := newWorld(t)
	w.put(t, "f")
	open := func() int {
		fd, err := unix.Open(w.in("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	a, b := open(), open()
	wants(t, "flock", unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB))
	wants(t, "a second flock", unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB), unix.EAGAIN)
	own := unix.Flock_t{Type: unix.F_WRLCK}
	for _, fd := range []int{a, b} { // which belongs to the process; see notPOSIX
		wants(t, "lock of the process", unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &own))
	}
	own.Type = unix.F_UNLCK
	wants(t, "unlock of the process", unix.FcntlFlock(uintptr(b), unix.F_SETLK, &own))
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	wants(t, "lock of a range", unix.FcntlFlock(uintptr(a), unix.F_OFD_SETLK, &lock))
	wants(t, "a second lock of a range", unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &lock), unix.EAGAIN)
}

func TestWithoutItsServerAViewGivesErrors(t *testing.T) {
	w := newWorld(t, rule("**/.env", pathrule.None))
	w.put(t, ".env", "ok")
	f, err := os.Open(w.in("ok"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.server.Close()
	asked := 0
	eventually(t, "the mount is dead", func() bool {
		asked++ // the kernel knows nothing of this name yet
		_, err := os.Lstat(w.in("name" + strconv.Itoa(asked)))
		return errors.Is(err, unix.ENOTCONN)
	})
	if n, err := f.Read(make([]byte, 10)); err == nil {
		t.Errorf("read %d bytes that the kernel never had", n)
	}
	for _, name := range []string{".env", "new"} {
		wants(t, "open "+name, opened(w.in(name), unix.O_RDONLY), unix.ENOTCONN, unix.ECONNABORTED, unix.ENOENT)
		wants(t, "create "+name, opened(w.in(name), unix.O_CREAT|unix.O_WRONLY), unix.ENOTCONN, unix.ECONNABORTED)
	}
}
