package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// writers are the ways to change a file, or the directory it is in. Each works
// on a file of the caller where nothing holds it.
var writers = []struct {
	name string
	way  func(victim string) error
}{
	{"absolute path", overwrite},
	{"append", func(v string) error { return writeWith(v, os.O_WRONLY|os.O_APPEND) }},
	{"truncate on open for reading", func(v string) error { return writeWith(v, os.O_RDONLY|os.O_TRUNC) }},
	{"truncate", func(v string) error { return unix.Truncate(v, 0) }},
	{"dot dot", func(v string) error { return overwrite(relative(v)) }},
	{"planted link", func(v string) error { return through(v, "link", overwrite) }},
	{"planted link to the directory", func(v string) error {
		return through(filepath.Dir(v), "dirlink", func(l string) error { return overwrite(l + "/" + filepath.Base(v)) })
	}},
	{"proc self root", func(v string) error { return overwrite("/proc/self/root" + v) }},
	{"proc self cwd", func(v string) error { return overwrite("/proc/self/cwd/" + relative(v)) }},
	{"proc thread cwd", func(v string) error {
		return overwrite(fmt.Sprintf("/proc/self/task/%d/cwd/%s", os.Getpid(), relative(v)))
	}},
	// Inside, the parent is process 1.
	{"root of the parent", func(v string) error { return overwrite(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), v)) }},
	{"cwd of the parent", func(v string) error {
		return overwrite(fmt.Sprintf("/proc/%d/cwd/%s%s", os.Getppid(), strings.Repeat("../", 20), v))
	}},
	{"reopen of a path descriptor", reopen},
	{"directory descriptor", viaDirectory},
	{"openat2", viaOpenat2},
	{"shared mapping", viaMapping},
	{"copy_file_range", viaCopyRange},
	{"splice", viaSplice},
	{"rename over", func(v string) error { return planted(func(p string) error { return os.Rename(p, v) }) }},
	{"exchange", func(v string) error {
		return planted(func(p string) error { return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, v, unix.RENAME_EXCHANGE) })
	}},
	{"rename away", func(v string) error { return os.Rename(v, v+".away") }},
	{"hard link of it", viaHardLink},
	{"hard link beside it", func(v string) error { return os.Link(v, v+".link") }},
	{"hard link over", func(v string) error {
		return planted(func(p string) error { return errors.Join(os.Remove(v), os.Link(p, v)) })
	}},
	{"unlink", os.Remove},
	{"new file beside it", func(v string) error { return os.WriteFile(v+".new", []byte("evil"), 0o644) }},
	{"unnamed file linked beside it", viaTmpfile},
	{"directory beside it", func(v string) error { return os.Mkdir(v+".dir", 0o755) }},
	{"fifo beside it", func(v string) error { return unix.Mkfifo(v+".fifo", 0o644) }},
	{"link beside it", func(v string) error { return os.Symlink("x", v+".symlink") }},
	{"socket beside it", bindBeside},
	{"chmod", func(v string) error { return os.Chmod(v, 0o666) }},
	{"fchmod", func(v string) error { return onDescriptor(v, func(fd int) error { return unix.Fchmod(fd, 0o666) }) }},
	{"chown", func(v string) error { return os.Lchown(v, os.Getuid(), os.Getgid()) }},
	{"times", func(v string) error { return os.Chtimes(v, time.Unix(1, 0), time.Unix(1, 0)) }},
	{"times of the descriptor", func(v string) error {
		return onDescriptor(v, func(fd int) error { return unix.Futimes(fd, []unix.Timeval{{Sec: 1}, {Sec: 1}}) })
	}},
	{"extended attribute", func(v string) error { return unix.Setxattr(v, "user.evil", []byte("1"), 0) }},
	{"extended attribute of the descriptor", func(v string) error {
		return onDescriptor(v, func(fd int) error { return unix.Fsetxattr(fd, "user.evil", []byte("1"), 0) })
	}},
	{"inode flags", setInodeFlags},
	{"allocate", func(v string) error {
		return onDescriptor(v, func(fd int) error { return unix.Fallocate(fd, 0, 0, 1<<16) }, unix.O_WRONLY)
	}},
	{"race of a link", raceLink},
}

func init() {
	attacks["write"] = func(args []string) {
		for _, w := range writers {
			if args[1] == "" || args[1] == w.name {
				report(w.name, w.way(args[0]))
			}
		}
	}
}

func overwrite(path string) error { return writeWith(path, os.O_WRONLY|os.O_TRUNC) }

func writeWith(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if flag&os.O_WRONLY == 0 {
		return nil
	}
	_, err = f.WriteString("evil")
	return err
}

func relative(path string) string {
	dir, _ := os.Getwd()
	rel, _ := filepath.Rel(dir, path)
	return rel
}

// through plants a link to target in the working directory and uses it.
func through(target, name string, use func(string) error) error {
	if err := os.Symlink(target, name); err != nil {
		return err
	}
	defer os.Remove(name)
	return use(name)
}

// planted makes a file in the working directory and uses it.
func planted(use func(string) error) error {
	if err := os.WriteFile("planted", []byte("evil"), 0o644); err != nil {
		return err
	}
	defer os.Remove("planted")
	return use("planted")
}

func onDescriptor(path string, use func(fd int) error, flags ...int) error {
	flag := unix.O_RDONLY
	if len(flags) > 0 {
		flag = flags[0]
	}
	fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

func reopen(v string) error {
	return onDescriptor(v, func(fd int) error { return overwrite(fmt.Sprintf("/proc/self/fd/%d", fd)) }, unix.O_PATH)
}

func viaDirectory(v string) error {
	return onDescriptor(filepath.Dir(v), func(dir int) error {
		fd, err := unix.Openat(dir, filepath.Base(v), unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}, unix.O_PATH|unix.O_DIRECTORY)
}

func viaOpenat2(v string) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, v, &unix.OpenHow{Flags: unix.O_RDWR | unix.O_TRUNC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func viaMapping(v string) error {
	return onDescriptor(v, func(fd int) error {
		m, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			// A read-only mapping may be made writable afterwards.
			if m, err = unix.Mmap(fd, 0, 4, unix.PROT_READ, unix.MAP_SHARED); err != nil {
				return err
			}
			if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err != nil {
				return err
			}
		}
		copy(m, "evil")
		return unix.Munmap(m)
	}, writableIfPossible(v))
}

func writableIfPossible(v string) int {
	if unix.Access(v, unix.W_OK) == nil {
		return unix.O_RDWR
	}
	return unix.O_RDONLY
}

func viaCopyRange(v string) error {
	return planted(func(p string) error {
		return onDescriptor(p, func(in int) error {
			return onDescriptor(v, func(out int) error {
				_, err := unix.CopyFileRange(in, nil, out, nil, 4, 0)
				return err
			}, writableIfPossible(v))
		})
	})
}

func viaSplice(v string) error {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	if _, err := unix.Write(p[1], []byte("evil")); err != nil {
		return err
	}
	return onDescriptor(v, func(out int) error {
		_, err := unix.Splice(p[0], nil, out, nil, 4, 0)
		return err
	}, writableIfPossible(v))
}

func viaHardLink(v string) error {
	defer os.Remove("hardlink")
	if err := unix.Linkat(unix.AT_FDCWD, v, unix.AT_FDCWD, "hardlink", 0); err != nil {
		return err
	}
	return overwrite("hardlink")
}

func viaTmpfile(v string) error {
	fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, v+".tmpfile", unix.AT_SYMLINK_FOLLOW)
}

func bindBeside(v string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The whole path may be longer than an address: go there.
	back, _ := os.Getwd()
	defer os.Chdir(back)
	if err := os.Chdir(filepath.Dir(v)); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrUnix{Name: "evil.sock"})
}

func setInodeFlags(v string) error {
	const noDump = 0x40
	return onDescriptor(v, func(fd int) error {
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, noDump)
	})
}

// raceLink exchanges an innocent file and a link under one name while it is
// opened again and again, for whoever checks a path first and opens it then.
func raceLink(v string) error {
	for name, make := range map[string]func() error{
		"innocent": func() error { return os.WriteFile("innocent", nil, 0o644) },
		"guilty":   func() error { return os.Symlink(v, "guilty") },
	} {
		if err := make(); err != nil {
			return err
		}
		defer os.Remove(name)
	}
	var done atomic.Bool
	go func() {
		runtime.LockOSThread()
		for !done.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, "innocent", unix.AT_FDCWD, "guilty", unix.RENAME_EXCHANGE)
		}
	}()
	defer done.Store(true)
	for range 3000 {
		if err := overwrite("innocent"); err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func TestEveryWriterWorksWithoutASandbox(t *testing.T) {
	b := newBox(t)
	for _, w := range writers {
		t.Run(w.name, func(t *testing.T) {
			dir := filepath.Join(b.outside, strings.ReplaceAll(w.name, " ", "-"))
			b.write(dir+"/victim", "original")
			before := snapshot(t, dir)
			b.t = t
			b.free("write", dir+"/victim", w.name)
			if before == snapshot(t, dir) {
				t.Errorf("control: nothing changed, so this way of writing shows nothing")
			}
		})
	}
}

func TestNothingIsWrittenOutsideTheGrant(t *testing.T) {
	b := newBox(t)
	victims := []string{
		b.outside + "/victim",        // not visible
		b.home + "/src/other/victim", // not visible, beside the project
		b.home + "/.profile",         // not visible, in a directory that is private inside
		b.home + "/.gitconfig",       // visible, read-only
	}
	for _, v := range victims {
		b.write(v, "original")
	}
	for _, v := range victims {
		unchanged(t, func() { b.attack("write", v, "") }, v, filepath.Dir(victims[0]), filepath.Dir(victims[1]))
	}
	if entries, _ := filepath.Glob(b.home + "/.*"); len(entries) != 2 {
		t.Errorf("files appeared in the home directory: %q", entries)
	}
}

func init() {
	// touch tries what changes a file of the system, in ways that leave it as it
	// is even if they succeed: a test must not harm the machine it finds open.
	attacks["touch"] = func(args []string) {
		for _, path := range args {
			for _, flag := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND} {
				report("open "+path, onDescriptor(path, func(int) error {
					keep(strings.ReplaceAll(path, "/", "-"), nil)
					return nil
				}, flag))
			}
			if info, err := os.Stat(path); err == nil {
				report("chmod "+path, os.Chmod(path, info.Mode()))
				report("times "+path, os.Chtimes(path, time.Time{}, info.ModTime()))
			}
		}
	}
}

func TestSystemFilesAreNotWritten(t *testing.T) {
	b := newBox(t)
	paths := []string{"/etc/hostname", "/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/usr/share/common-licenses/GPL-3"}
	unchanged(t, func() { b.attack("touch", paths...) }, paths...)
	b.expectNoLoot()
	name := fmt.Sprintf("bailey-escape-%d", os.Getpid())
	for _, dir := range []string{"/", "/etc", "/usr", "/usr/bin", "/usr/local/bin", "/opt"} {
		path := filepath.Join(dir, name)
		b.run("sh", "-c", `: > "$1"`, "sh", path)
		if os.Remove(path) == nil {
			t.Errorf("the sandbox made %s", path)
		}
	}
	t.Run("control", func(t *testing.T) {
		testenv.Requires(t, testenv.Root)
		b.t = t
		b.free("touch", "/etc/hosts")
		b.expectLoot("-etc-hosts")
	})
}

func TestGrantedDirectoryIsWritten(t *testing.T) {
	b := newBox(t)
	b.policy = fmt.Sprintf(`{"filesystem": {"allowWrite": [%q]}}`, b.outside)
	b.write(b.outside+"/victim", "original")
	b.attack("write", b.outside+"/victim", "absolute path")
	if got, _ := os.ReadFile(b.outside + "/victim"); string(got) != "evil" {
		t.Errorf("with the grant given: got %q, want evil", got)
	}
}
