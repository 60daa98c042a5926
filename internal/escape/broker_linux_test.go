package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// absentNames are protected, and not there.
var absentNames = []string{".mcp.json", ".vscode", ".envrc", ".claude", ".bashrc", "bailey.json", ".gitmodules", ".config/fish"}

// makers are the ways to bring a name into being. They run in the directory
// that is to have it, and each works where nothing holds it.
var makers = []struct {
	name string
	way  func(name string) error
}{
	{"create", create},
	{"create to read", func(p string) error { return openAndClose(p, unix.O_RDONLY|unix.O_CREAT) }},
	{"create exclusively", func(p string) error { return openAndClose(p, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL) }},
	{"create by an absolute path", func(p string) error { return create(absolute(p)) }},
	{"create with slashes and dots", func(p string) error { return create(".//.///" + p) }},
	{"create from a subdirectory", func(p string) error { return inside("sub", func() error { return create("../" + p) }) }},
	{"create through a directory and back", func(p string) error { return inside("", func() error { return create("sub/../" + p) }) }},
	{"create through a link to the directory", func(p string) error {
		return through(".", "here", func(l string) error { return create(l + "/" + p) })
	}},
	{"create through a link that leads nowhere", func(p string) error { return through(p, "nowhere", create) }},
	{"create through two links", func(p string) error {
		return through(p, "second", func(l string) error { return through(l, "first", create) })
	}},
	{"create in /proc/self/cwd", func(p string) error { return create("/proc/self/cwd/" + p) }},
	{"create in /proc/PID/cwd", func(p string) error { return create(fmt.Sprintf("/proc/%d/cwd/%s", os.Getpid(), p)) }},
	{"create in /proc/self/task/TID/cwd", func(p string) error { return create(fmt.Sprintf("/proc/self/task/%d/cwd/%s", os.Getpid(), p)) }},
	{"create in /proc/self/root", func(p string) error { return create("/proc/self/root" + absolute(p)) }},
	{"create in /proc/self/fd", func(p string) error {
		return withDirectory(func(dir int) error { return create(fmt.Sprintf("/proc/self/fd/%d/%s", dir, p)) })
	}},
	{"create in /dev/fd", func(p string) error {
		return withDirectory(func(dir int) error { return create(fmt.Sprintf("/dev/fd/%d/%s", dir, p)) })
	}},
	{"create beside a descriptor", func(p string) error {
		return withDirectory(func(dir int) error {
			fd, err := unix.Openat(dir, p, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		})
	}},
	{"create by an absolute path and no descriptor", func(p string) error {
		fd, err := unix.Openat(-1, absolute(p), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}},
	{"openat2", func(p string) error {
		fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644})
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}},
	{"mkdir", func(p string) error { return unix.Mkdir(p, 0o755) }},
	{"mkdir with slashes", func(p string) error { return unix.Mkdir(".//"+p+"///", 0o755) }},
	{"mkdir beside a descriptor", func(p string) error { return withDirectory(func(dir int) error { return unix.Mkdirat(dir, p, 0o755) }) }},
	{"mknod", func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) }},
	{"fifo", func(p string) error { return unix.Mkfifo(p, 0o644) }},
	{"node of a socket", func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o644, 0) }},
	{"bind", bindTo},
	{"symlink", func(p string) error { return unix.Symlink("elsewhere", p) }},
	{"symlink beside a descriptor", func(p string) error {
		return withDirectory(func(dir int) error { return unix.Symlinkat("elsewhere", dir, p) })
	}},
	{"link", func(p string) error { return planted(func(f string) error { return unix.Link(f, p) }) }},
	{"link of a link", func(p string) error {
		return through("elsewhere", "loose", func(l string) error { return unix.Link(l, p) })
	}},
	{"link through a link", func(p string) error {
		return planted(func(f string) error {
			return through(f, "loose", func(l string) error { return unix.Linkat(unix.AT_FDCWD, l, unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW) })
		})
	}},
	{"link of a descriptor", func(p string) error {
		return planted(func(f string) error {
			return onDescriptor(f, func(fd int) error {
				return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
			})
		})
	}},
	{"link of an unnamed file", func(p string) error {
		return onDescriptor(".", func(fd int) error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
		}, unix.O_TMPFILE|unix.O_RDWR)
	}},
	{"rename", func(p string) error { return planted(func(f string) error { return unix.Rename(f, p) }) }},
	{"rename without replacing", func(p string) error {
		return planted(func(f string) error {
			return unix.Renameat2(unix.AT_FDCWD, f, unix.AT_FDCWD, p, unix.RENAME_NOREPLACE)
		})
	}},
	{"rename of a directory", func(p string) error {
		return inside("", func() error { return unix.Rename("sub", p+"/") })
	}},
	{"rename from a subdirectory", func(p string) error {
		return inside("sub", func() error { return planted(func(f string) error { return unix.Rename(f, "../"+p) }) })
	}},
	{"rename of a link", func(p string) error {
		return through("elsewhere", "loose", func(l string) error { return unix.Rename(l, p) })
	}},
}

func create(path string) error { return openAndClose(path, unix.O_WRONLY|unix.O_CREAT) }

func openAndClose(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func absolute(path string) string {
	abs, _ := filepath.Abs(path)
	return abs
}

// inside makes a subdirectory and works from a directory, the current one if it
// has no name.
func inside(dir string, use func() error) error {
	_ = os.Mkdir("sub", 0o755)
	defer os.Remove("sub")
	if dir == "" {
		return use()
	}
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	defer os.Chdir(back)
	if err := os.Chdir(dir); err != nil {
		return err
	}
	return use()
}

func withDirectory(use func(dir int) error) error {
	return onDescriptor(".", use, unix.O_RDONLY|unix.O_DIRECTORY)
}

func bindTo(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

func init() {
	// make DIR MAKER NAME…: in every way, if none is named.
	attacks["make"] = func(args []string) {
		report("chdir", os.Chdir(args[0]))
		for _, name := range args[2:] {
			for _, m := range makers {
				if args[1] == "" || args[1] == m.name {
					report(m.name+" "+name, m.way(name))
				}
			}
		}
	}
}

// expectAbsent fails for every name that has come into being in a directory.
func expectAbsent(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v, %v", name, info, err)
		}
	}
}

func TestEveryMakerWorksWithoutASandbox(t *testing.T) {
	b := newBox(t)
	for _, m := range makers {
		t.Run(m.name, func(t *testing.T) {
			b.t = t
			dir := filepath.Join(b.outside, strings.ReplaceAll(strings.ReplaceAll(m.name, " ", "-"), "/", "_"))
			must(t, os.Mkdir(dir, 0o755))
			b.free("make", dir, m.name, ".envrc")
			if _, err := os.Lstat(dir + "/.envrc"); err != nil {
				t.Errorf("control: nothing was made, so this way shows nothing: %v", err)
			}
		})
	}
}

func TestProtectedNameDoesNotComeIntoBeing(t *testing.T) {
	granted := func(b *box) string { return b.outside }
	for name, where := range map[string]func(b *box) string{
		"project":           func(b *box) string { return b.project },
		"granted directory": granted,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			dir := where(b)
			b.policy = fmt.Sprintf(`{"filesystem": {"allowWrite": [".", %q]}}`, b.outside)
			must(t, os.Mkdir(dir+"/.config", 0o755))
			names := absentNames
			if dir == b.outside {
				names = append([]string{".git"}, names...)
			}
			before := listing(t, dir)
			b.attack("make", append([]string{dir, ""}, names...)...)
			expectAbsent(t, dir, names...)
			if after := listing(t, dir); before != after {
				t.Errorf("something was left: got\n%swant\n%s", after, before)
			}
			b.attack("make", dir, "", "ordinary")
			if _, err := os.Lstat(dir + "/ordinary"); err != nil {
				t.Errorf("control: an ordinary name is not made either: %v", err)
			}
		})
	}
}

// listing returns the names in a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out strings.Builder
	for _, e := range entries {
		fmt.Fprintln(&out, e.Name())
	}
	return out.String()
}

func TestProtectedNameDoesNotComeIntoBeingWithReadPatterns(t *testing.T) {
	b := newBox(t)
	b.policy = `{"filesystem": {"denyRead": ["**/*.key"]}}`
	must(t, os.Mkdir(b.project+"/.config", 0o755))
	b.attack("make", append([]string{b.project, ""}, absentNames...)...)
	expectAbsent(t, b.project, absentNames...)
}

// passages put a link in the place of a directory that is in the way to a
// protected name.
var passages = []string{
	"mkdir -p evil/fish; ln -s evil .config",
	"mkdir -p evil/fish; ln -s $PWD/evil .config",
	"mkdir -p evil/fish; ln -s evil l; ln -P l .config",
	"mkdir -p evil/fish; ln -s evil l; mv l .config",
	"mkdir -p evil/fish; mv evil .config",
	"mkdir -p a/.config/fish; mv a/.config .config",
	"mkdir -p evil/fish .config; mv evil/fish .config",
	"mkdir -p evil/fish .config; ln -s ../evil/fish .config/fish",
}

func TestLinkInTheWayToAProtectedNameIsNotMade(t *testing.T) {
	for _, line := range passages {
		t.Run(line, func(t *testing.T) {
			b := newBox(t)
			b.run("sh", "-c", line)
			expectAbsent(t, b.project, ".config/fish")
			for _, left := range []string{"evil", "a", "l", ".config"} {
				must(t, os.RemoveAll(filepath.Join(b.project, left)))
			}

			free := b.freeCommand("")
			free.Path, free.Args = "/bin/sh", []string{"sh", "-c", line}
			b.runFree(free)
			if _, err := os.Stat(b.project + "/.config/fish"); err != nil {
				t.Errorf("control: without a sandbox: %v", err)
			}
		})
	}
}

func TestProtectedNameBehindALinkOfTheHostDoesNotComeIntoBeing(t *testing.T) {
	b := newBox(t)
	must(t, os.Mkdir(b.project+"/dotfiles", 0o755))
	must(t, os.Symlink("dotfiles", b.project+"/.config"))
	b.run("sh", "-c", "mkdir .config/fish; mkdir dotfiles/fish")
	expectAbsent(t, b.project, ".config/fish")
}

// races change what a call is about while it is judged. Each is tried for a
// while; the first argument is an innocent name, the second the guilty one, of
// the same length.
var races = []struct {
	name string
	race func(innocent, guilty string, end time.Time)
}{
	{"path of open", func(i, g string, end time.Time) {
		flipText(i, g, end, func(at uintptr) {
			fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, atCwd, at, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644, 0, 0)
			if errno == 0 {
				_ = unix.Close(int(fd))
			}
			_ = unix.Unlink(i)
		})
	}},
	{"path of mkdir", func(i, g string, end time.Time) {
		flipText(i, g, end, func(at uintptr) {
			_, _, _ = unix.Syscall(unix.SYS_MKDIRAT, atCwd, at, 0o755)
			_ = unix.Rmdir(i)
		})
	}},
	{"path of rename", func(i, g string, end time.Time) {
		source := append([]byte("source"), 0)
		flipText(i, g, end, func(at uintptr) {
			_ = create("source")
			_, _, _ = unix.Syscall6(unix.SYS_RENAMEAT2, atCwd, uintptr(unsafe.Pointer(&source[0])), atCwd, at, 0, 0)
			_ = unix.Unlink(i)
		})
		_ = unix.Unlink("source")
	}},
	{"path of symlink", func(i, g string, end time.Time) {
		text := append([]byte("text"), 0)
		flipText(i, g, end, func(at uintptr) {
			_, _, _ = unix.Syscall(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(&text[0])), atCwd, at)
			_ = unix.Unlink(i)
		})
	}},
	{"address of bind", func(i, g string, end time.Time) {
		flipText("\x01\x00"+i, "\x01\x00"+g, end, func(at uintptr) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_, _, _ = unix.Syscall(unix.SYS_BIND, uintptr(fd), at, uintptr(2+len(i)))
				_ = unix.Close(fd)
			}
			_ = unix.Unlink(i)
		})
	}},
	{"directory descriptor", func(i, g string, end time.Time) {
		_ = os.Mkdir("race", 0o755)
		here, _ := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY, 0)
		there, _ := unix.Open("race", unix.O_PATH|unix.O_DIRECTORY, 0)
		used, _ := unix.Dup(there)
		beside(end, func() {
			_ = unix.Dup3(here, used, 0)
			_ = unix.Dup3(there, used, 0)
		}, func() {
			if fd, err := unix.Openat(used, g, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644); err == nil {
				_ = unix.Close(fd)
			}
			_ = unix.Mkdirat(used, g, 0o755)
			_ = os.RemoveAll("race/" + g)
		})
		_ = os.RemoveAll("race")
	}},
	{"working directory", func(i, g string, end time.Time) {
		_ = os.Mkdir("race", 0o755)
		here := absolute(".")
		beside(end, func() {
			_ = unix.Chdir(here + "/race")
			_ = unix.Chdir(here)
		}, func() {
			_ = openAndClose(g, unix.O_CREAT|unix.O_WRONLY)
			_ = os.Remove(here + "/race/" + g)
		})
		_ = unix.Chdir(here)
		_ = os.RemoveAll("race")
	}},
	{"link and directory", func(i, g string, end time.Time) {
		_ = os.Mkdir("race", 0o755)
		_ = os.Symlink(".", "other")
		beside(end, func() {
			_ = unix.Renameat2(unix.AT_FDCWD, "race", unix.AT_FDCWD, "other", unix.RENAME_EXCHANGE)
		}, func() {
			_ = create("race/" + g)
			_ = unix.Mkdir("race/"+g, 0o755)
			_ = os.Remove("race/" + g)
		})
		_ = os.RemoveAll("race")
		_ = os.RemoveAll("other")
	}},
}

const atCwd = ^uintptr(99) // AT_FDCWD

// beside does one thing again and again while another is done, on threads of
// their own.
func beside(end time.Time, one, other func()) {
	var done atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		runtime.LockOSThread()
		for !done.Load() {
			one()
		}
	}()
	for time.Now().Before(end) {
		other()
	}
	done.Store(true)
	<-stopped
}

// flipText has two texts of the same length in one place by turns.
func flipText(one, other string, end time.Time, use func(at uintptr)) {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	copy(page, one)
	beside(end, func() {
		copy(page, other)
		copy(page, one)
	}, func() { use(uintptr(unsafe.Pointer(&page[0]))) })
}

func init() {
	attacks["race"] = func(args []string) {
		duration, _ := time.ParseDuration(args[1])
		for _, r := range races {
			if args[0] == "" || args[0] == r.name {
				r.race("innocent1", ".mcp.json", time.Now().Add(duration))
				report(r.name, nil)
			}
		}
	}
}

func TestProtectedNameIsNotRacedIn(t *testing.T) {
	b := newBox(t)
	b.attack("race", "", "700ms")
	expectAbsent(t, b.project, ".mcp.json")
	for _, r := range races {
		must(t, os.RemoveAll(b.project+"/.mcp.json"))
		if r.name == "working directory" || r.name == "directory descriptor" || r.name == "link and directory" {
			continue // removes it again as often as not
		}
		var lost error
		for range 20 { // on a busy machine it takes longer
			b.free("race", r.name, "300ms")
			if _, lost = os.Lstat(b.project + "/.mcp.json"); lost == nil {
				break
			}
		}
		if lost != nil {
			t.Errorf("control: %s does not win without a sandbox", r.name)
		}
	}
}

// leftovers are what must not be left in the project, whoever makes it.
var leftovers = []struct {
	name string
	way  func() error
}{
	{"whiteout by rename", func() error {
		if err := create("white-rename"); err != nil {
			return err
		}
		return unix.Renameat2(unix.AT_FDCWD, "white-rename", unix.AT_FDCWD, "moved", unix.RENAME_WHITEOUT)
	}},
	{"whiteout by mknod", func() error { return unix.Mknod("white", unix.S_IFCHR, 0) }},
	{"setuid by open", func() error { return openWith("setuid", 0o4755) }},
	{"setgid by open", func() error { return openWith("setgid", 0o2755) }},
	{"setuid by mknod", func() error { return unix.Mknod("setuidnode", unix.S_IFREG|0o4755, 0) }},
	{"setuid by an unnamed file", func() error {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o4755)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, "unnamed", unix.AT_SYMLINK_FOLLOW)
	}},
	{"setuid by mkdir", func() error { return unix.Mkdir("setuiddir", 0o4755) }},
}

func openWith(name string, mode uint32) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func init() {
	attacks["leave"] = func([]string) {
		for _, l := range leftovers {
			report(l.name, l.way())
		}
	}
}

func TestNoNodeAndNoOwnersProgramIsLeft(t *testing.T) {
	b := newBox(t)
	found := func() (bad []string) {
		entries, err := os.ReadDir(b.project)
		must(t, err)
		for _, e := range entries {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(b.project, e.Name()), &st))
			if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFBLK || st.Mode&0o6000 != 0 {
				bad = append(bad, fmt.Sprintf("%s %o", e.Name(), st.Mode))
			}
		}
		return bad
	}
	b.attack("leave")
	if bad := found(); len(bad) > 0 {
		t.Errorf("left in the project: %q", bad)
	}
	b.run("sh", "-c", "rm -rf white-rename setuid setgid setuidnode unnamed setuiddir moved")
	b.free("leave")
	if len(found()) < 3 {
		t.Errorf("control: without a sandbox only %q was left", found())
	}
}
