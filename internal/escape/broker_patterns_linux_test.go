package escape

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const patternSecret = "BEGIN-PATTERN-SECRET"

// openers are the ways to the content of dir/x.key, a file that a pattern may
// deny. They print what they get: the secret shows in the output. Each makes its
// own mess in the directory it is given.
var openers = []struct {
	name string
	way  func(dir string) error
}{
	{"open", func(d string) error { return show(d+"/x.key", unix.O_RDONLY) }},
	{"open without following", func(d string) error { return show(d+"/x.key", unix.O_RDONLY|unix.O_NOFOLLOW) }},
	{"open or create", func(d string) error { return show(d+"/x.key", unix.O_RDONLY|unix.O_CREAT) }},
	{"open to read and write", func(d string) error { return show(d+"/x.key", unix.O_RDWR) }},
	{"open to append", func(d string) error { return show(d+"/x.key", unix.O_RDWR|unix.O_APPEND|unix.O_CREAT) }},
	{"relative", func(d string) error { return show(relative(d+"/x.key"), unix.O_RDONLY) }},
	{"dots and slashes", func(d string) error { return show(d+"/.././/"+filepath.Base(d)+"//x.key", unix.O_RDONLY) }},
	{"/proc/self/root", func(d string) error { return show("/proc/self/root"+d+"/x.key", unix.O_RDONLY) }},
	{"/proc/self/cwd", func(d string) error { return show("/proc/self/cwd/"+relative(d+"/x.key"), unix.O_RDONLY) }},
	{"/proc/PID/cwd", func(d string) error {
		return show(fmt.Sprintf("/proc/%d/cwd/%s", os.Getpid(), relative(d+"/x.key")), unix.O_RDONLY)
	}},
	{"link", func(d string) error {
		return through(d+"/x.key", d+"/plain", func(l string) error { return show(l, unix.O_RDONLY) })
	}},
	{"link to read and write", func(d string) error {
		return through(d+"/x.key", d+"/plain", func(l string) error { return show(l, unix.O_RDWR) })
	}},
	{"link to the directory", func(d string) error {
		return through(d, d+"-link", func(l string) error { return show(l+"/x.key", unix.O_RDONLY) })
	}},
	{"path descriptor opened again", func(d string) error {
		return onDescriptor(d+"/x.key", func(fd int) error { return show(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY) }, unix.O_PATH)
	}},
	{"path descriptor opened by thread", func(d string) error {
		return onDescriptor(d+"/x.key", func(fd int) error {
			return show(fmt.Sprintf("/proc/self/task/%d/fd/%d", os.Getpid(), fd), unix.O_RDONLY)
		}, unix.O_PATH)
	}},
	{"path descriptor opened by number", func(d string) error {
		return onDescriptor(d+"/x.key", func(fd int) error {
			return show(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), unix.O_RDWR)
		}, unix.O_PATH)
	}},
	{"directory descriptor", func(d string) error {
		return onDescriptor(d, func(dir int) error {
			fd, err := unix.Openat(dir, "x.key", unix.O_RDONLY, 0)
			return showDescriptor(fd, err)
		}, unix.O_PATH|unix.O_DIRECTORY)
	}},
	{"openat2", func(d string) error {
		fd, err := unix.Openat2(unix.AT_FDCWD, d+"/x.key", &unix.OpenHow{})
		return showDescriptor(fd, err)
	}},
	{"hard link", func(d string) error { return named(d, func(p string) error { return unix.Link(d+"/x.key", p) }) }},
	{"hard link of a descriptor", func(d string) error {
		return named(d, func(p string) error {
			return onDescriptor(d+"/x.key", func(fd int) error { return linkDescriptor(fd, p) }, unix.O_PATH)
		})
	}},
	{"hard link of a name that is gone", func(d string) error {
		return named(d, func(p string) error {
			return onDescriptor(d+"/twice.key", func(fd int) error {
				if err := unix.Unlink(d + "/twice.key"); err != nil {
					return err
				}
				return linkDescriptor(fd, p)
			}, unix.O_PATH)
		})
	}},
	{"rename", func(d string) error { return named(d, func(p string) error { return unix.Rename(d+"/x.key", p) }) }},
	{"exchange", func(d string) error {
		return named(d, func(p string) error {
			if err := create(p); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, d+"/x.key", unix.AT_FDCWD, p, unix.RENAME_EXCHANGE)
		})
	}},
	{"exchange from the other side", func(d string) error {
		return named(d, func(p string) error {
			if err := create(p); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, d+"/x.key", unix.RENAME_EXCHANGE)
		})
	}},
	{"directory moved", func(d string) error {
		if err := unix.Rename(d, d+"-moved"); err != nil {
			return err
		}
		return show(d+"-moved/x.key", unix.O_RDONLY)
	}},
	{"too deep to be named", tooDeep},
	{"execute", func(d string) error {
		if err := os.Chmod(d+"/x.key", 0o755); err != nil {
			return err
		}
		out, err := exec.Command(d + "/x.key").CombinedOutput()
		fmt.Printf("%s", out)
		return err
	}},
}

// show prints the content of a file.
func show(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	return showDescriptor(fd, err)
}

func showDescriptor(fd int, err error) error {
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	data, err := io.ReadAll(f)
	fmt.Printf("%s\n", data)
	return err
}

// named gives the file a name that no pattern denies, and shows it.
func named(dir string, rename func(to string) error) error {
	if err := rename(dir + "/innocent"); err != nil {
		return err
	}
	return show(dir+"/innocent", unix.O_RDONLY)
}

func linkDescriptor(fd int, to string) error {
	const itself = 0x1000 // AT_EMPTY_PATH, which unix has for other calls
	if err := unix.Linkat(fd, "", unix.AT_FDCWD, to, itself); err == nil {
		return nil
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// tooDeep moves the file's directory to where its path is longer than any call
// can tell, and makes a link of a descriptor from before.
func tooDeep(dir string) error {
	return onDescriptor(dir+"/x.key", func(fd int) error {
		for i, top := range []string{dir + "-chain0", dir + "-chain1"} {
			at := top + strings.Repeat("/"+strings.Repeat("d", 200), 15)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
			from := []string{dir, dir + "-chain0"}[i]
			if err := unix.Rename(from, at+"/in"); err != nil {
				return err
			}
		}
		if err := linkDescriptor(fd, dir+"-out"); err != nil {
			return err
		}
		return show(dir+"-out", unix.O_RDONLY)
	}, unix.O_PATH)
}

func init() {
	// open DIR OPENER: the directory is for this way alone.
	attacks["open"] = func(args []string) {
		for _, o := range openers {
			if o.name == args[1] {
				report(o.name, o.way(args[0]))
			}
		}
	}
}

// patternPlaces are where a file can be that a pattern denies.
var patternPlaces = []struct {
	name   string
	policy string
	// readOnly says that a plain path denies writing.
	readOnly bool
}{
	{"project", `{"filesystem": {"denyRead": ["**/*.key"]}}`, false},
	{"read-only project", `{"filesystem": {"allowWrite": ["loot"], "denyWrite": ["secrets"], "denyRead": ["**/*.key"]}}`, true},
	{"nothing writable", `{"filesystem": {"denyWrite": ["."], "denyRead": ["**/*.key"]}}`, true},
	{"private directory", `{"filesystem": {"privateWrite": ["secrets"], "denyRead": ["**/*.key"]}}`, false},
	{"private project", `{"filesystem": {"privateWrite": ["."], "denyRead": ["**/*.key"]}}`, false},
}

// plantSecret makes the directory of one way.
func (b *box) plantSecret(way string) string {
	dir := b.project + "/secrets/here"
	b.write(dir+"/x.key", "#!/bin/echo "+patternSecret+"\n")
	if way == "hard link of a name that is gone" {
		b.write(dir+"/twice.key", patternSecret)
		must(b.t, os.Link(dir+"/twice.key", dir+"/second.key"))
	}
	return dir
}

func TestFileOfADeniedPatternIsNotRead(t *testing.T) {
	for _, p := range patternPlaces {
		for _, o := range openers {
			if p.readOnly && o.name == "hard link of a name that is gone" {
				continue // such files are refused there
			}
			t.Run(p.name+"/"+o.name, func(t *testing.T) {
				b := newBox(t)
				b.policy = p.policy
				dir := b.plantSecret(o.name)
				if out := b.attack("open", dir, o.name); strings.Contains(out, patternSecret) {
					t.Errorf("the sandbox read it")
				}
				if p.name != "project" {
					return
				}
				must(t, exec.Command("rm", "-rf", b.project+"/secrets").Run())
				b.plantSecret(o.name)
				if out := b.free("open", dir, o.name); !strings.Contains(out, patternSecret) {
					t.Errorf("control: without a sandbox it is not read either")
				}
			})
		}
	}
}

func TestFileThatComesLaterIsNotRead(t *testing.T) {
	b := newBox(t)
	b.policy = `{"filesystem": {"denyRead": ["**/*.key"]}}`
	c := b.command("sh", "-c", "echo > loot/started; until [ -e late/x.key ]; do sleep 0.01; done; cat late/x.key; cat late/other")
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	must(t, c.Start())
	b.await("started")
	b.write(b.project+"/late/other", "innocent")
	b.write(b.project+"/late/tmp", patternSecret)
	must(t, os.Rename(b.project+"/late/tmp", b.project+"/late/x.key"))
	_ = c.Wait()
	if strings.Contains(out.String(), patternSecret) || !strings.Contains(out.String(), "innocent") {
		t.Errorf("got %q, want the innocent file alone", out.String())
	}
}

func init() {
	// read-race has an innocent and a denied path in one place by turns.
	attacks["read-race"] = func([]string) {
		end := time.Now().Add(1500 * time.Millisecond)
		buf := make([]byte, 64)
		flipText("late/x.pub", "late/x.key", end, func(at uintptr) {
			for _, flags := range []uintptr{unix.O_RDONLY, unix.O_RDWR} {
				fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, atCwd, at, flags|unix.O_CLOEXEC, 0, 0, 0)
				if errno == 0 {
					n, _ := unix.Read(int(fd), buf)
					if n > 0 && buf[0] == 'B' {
						fmt.Printf("%s\n", buf[:n])
					}
					_ = unix.Close(int(fd))
				}
			}
		})
	}
}

func TestDeniedPatternIsNotRacedAround(t *testing.T) {
	b := newBox(t)
	b.write(b.project+"/late/x.key", patternSecret)
	b.write(b.project+"/late/x.pub", "public")
	b.policy = `{"filesystem": {"denyRead": ["**/*.key"]}}`
	if out := b.attack("read-race"); strings.Contains(out, patternSecret) {
		t.Errorf("the sandbox read it")
	}
	if out := b.free("read-race"); !strings.Contains(out, patternSecret) {
		t.Errorf("control: without a sandbox it is not read either")
	}
}

// changes are what a pattern in denyWrite keeps from happening to a file, and
// removals what happens to its name and its attributes.
func isRemoval(writer string) bool {
	switch writer {
	case "unlink", "hard link over", "chmod", "fchmod", "chown", "times", "times of the descriptor",
		"extended attribute", "extended attribute of the descriptor", "inode flags":
		return true
	}
	return false
}

func TestFileOfADeniedPatternIsNotWritten(t *testing.T) {
	testPatternWriters(t, func(name string) bool { return !isRemoval(name) })
}

func TestFileOfADeniedPatternIsNotRemovedOrMarked(t *testing.T) { testPatternWriters(t, isRemoval) }

func testPatternWriters(t *testing.T, which func(name string) bool) {
	b := newBox(t)
	b.policy = `{"filesystem": {"denyWrite": ["**/victim*"]}}`
	for _, w := range writers {
		if !which(w.name) || w.name == "socket beside it" {
			continue // the last one makes another name
		}
		t.Run(w.name, func(t *testing.T) {
			b.t = t
			dir := filepath.Join(b.project, "held", strings.ReplaceAll(w.name, " ", "-"))
			b.write(dir+"/victim", "original")
			unchanged(t, func() { b.attack("write", dir+"/victim", w.name) }, dir+"/victim")
			if got := listing(t, dir); got != "victim\n" {
				t.Errorf("got the names %q, want victim alone", got)
			}
		})
	}
}

func TestNameOfADeniedPatternDoesNotComeIntoBeing(t *testing.T) {
	b := newBox(t)
	b.policy = `{"filesystem": {"denyWrite": ["**/*.lock", "conf/local"]}}`
	must(t, os.Mkdir(b.project+"/deep", 0o755))
	b.attack("make", b.project+"/deep", "", "x.lock")
	expectAbsent(t, b.project, "deep/x.lock")
	b.run("sh", "-c", "mkdir -p evil/local; ln -s evil conf; mv evil conf; mkdir conf; mv evil/local conf; mkdir conf/local")
	expectAbsent(t, b.project, "conf/local")
}

func init() {
	// lend asks for what the broker could open and the command could not.
	attacks["lend"] = func(args []string) {
		for _, flags := range []int{unix.O_RDONLY, unix.O_RDONLY | unix.O_CREAT, unix.O_RDONLY | unix.O_CREAT | unix.O_NOFOLLOW} {
			for _, path := range args {
				report(path, show(path, flags))
				report("link to "+path, through(path, "lent", func(l string) error { return show(l, flags) }))
			}
		}
	}
	attacks["host-terminal"] = func([]string) {
		for _, flags := range []int{unix.O_RDONLY, unix.O_RDONLY | unix.O_CREAT, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT} {
			for _, path := range []string{"/dev/tty", "/dev/../dev/tty", "/proc/self/root/dev/tty"} {
				fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
				report("open "+path, err)
				if err == nil {
					report("size", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 77, Col: 99}))
				}
			}
		}
	}
}

func TestBrokerDoesNotLendItsRights(t *testing.T) {
	b := newBox(t)
	b.policy = `{"filesystem": {"denyRead": ["**/*.key"]}}`
	id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x6261696c, 4096, unix.IPC_CREAT|0o600)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0) })
	const key = "1650551148" // 0x6261696c
	paths := []string{"/proc/1/maps", "/proc/1/environ", "/proc/1/auxv", "/proc/sysvipc/shm", "/proc/1/task/1/maps"}
	out := b.attack("lend", paths...)
	for _, mark := range []string{"bailey-init", "HOME=", key} {
		if strings.Contains(out, mark) {
			t.Errorf("the sandbox read what has %q in it", mark)
		}
	}
	if out := b.free("lend", "/proc/sysvipc/shm"); !strings.Contains(out, key) {
		t.Errorf("control: without a sandbox the segment is not seen")
	}
	if out := b.attack("lend", "/proc/self/maps", "/proc/self/status"); !strings.Contains(out, "attacker") || !strings.Contains(out, "Umask") {
		t.Errorf("control: it cannot read about itself")
	}
}

func TestTerminalOfTheHostIsNotLent(t *testing.T) {
	b := newBox(t)
	master, slave := openTerminal(t)
	drain(t, master, slave)
	size := unix.Winsize{Row: 24, Col: 80}
	must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size))
	must(t, on(slave, b.cli("-q", "--deny-read", "**/*.key", "--", b.program, "attack", "host-terminal")).Run())
	got, err := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ)
	must(t, err)
	if *got != size {
		t.Errorf("the host's terminal is %v, want %v", *got, size)
	}
	must(t, on(slave, b.freeCommand("host-terminal")).Run())
	if got, _ := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ); *got == size {
		t.Errorf("control: without a sandbox the size stays")
	}
}
