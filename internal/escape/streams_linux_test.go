package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	attacks["descriptors"] = func([]string) {
		for fd := 3; fd < 1024; fd++ {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
				continue
			}
			target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/") || target == os.DevNull {
				continue // the Go runtime's own
			}
			fmt.Println(fd, target)
			_, _ = unix.Write(fd, []byte("evil"))
			if at, err := unix.Openat(fd, "created-by-descriptor", unix.O_CREAT|unix.O_WRONLY, 0o644); err == nil {
				unix.Close(at)
			}
			keep("fd-"+strconv.Itoa(fd), []byte(target))
		}
	}
}

func TestOnlyStreamsAreInherited(t *testing.T) {
	b := newBox(t)
	b.write(b.outside+"/file", "original")
	file, err := os.OpenFile(b.outside+"/file", os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	dir, err := os.Open(b.outside)
	must(t, err)
	defer dir.Close()
	// A launcher that leaks: these have no close-on-exec in it, at the numbers
	// Bailey itself works with and above.
	extra := []*os.File{file, dir, file, dir, file, dir, file, dir, file, dir, file}
	launch := b.freeCommand("launch", b.project, "", b.program, "attack", "descriptors")
	launch.ExtraFiles = extra
	unchanged(t, func() { b.runFree(launch) }, b.outside)
	b.expectNoLoot()

	free := b.freeCommand("descriptors")
	free.ExtraFiles = extra[:2]
	b.runFree(free)
	b.expectLoot("fd-3", "fd-4")
	if _, err := os.Stat(b.outside + "/created-by-descriptor"); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestDirectoryAsStreamIsRefused(t *testing.T) {
	b := newBox(t)
	dir, err := os.Open(b.outside)
	must(t, err)
	defer dir.Close()
	fd, err := unix.Open(b.outside, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	path := os.NewFile(uintptr(fd), "path")
	defer path.Close()
	const line = "ls -la /dev/stdin/; echo ran > loot/ran; echo evil > /proc/self/fd/0/evil"
	for _, f := range []*os.File{dir, path} {
		for stream := range 3 {
			c := b.command("sh", "-c", line)
			switch stream {
			case 0:
				c.Stdin = f
			case 1:
				c.Stdout = f
			case 2:
				c.Stderr = f
			}
			if err := c.Run(); err == nil || !strings.Contains(err.Error(), "directory") {
				t.Errorf("%s as stream %d: got %v, want a refusal", f.Name(), stream, err)
			}
		}
	}
	b.expectNoLoot()
	free := exec.Command("sh", "-c", line)
	free.Dir, free.Stdin = b.project, dir
	_ = free.Run()
	b.expectLoot("ran")
	if _, err := os.Stat(b.outside + "/evil"); err != nil {
		t.Errorf("control: %v", err)
	}
}

func init() {
	attacks["stdin"] = func([]string) {
		for _, path := range []string{"/proc/self/fd/0", "/dev/stdin", "/dev/fd/0"} {
			for _, w := range []struct {
				name string
				way  func(string) error
			}{
				{"write", overwrite},
				{"append", func(p string) error { return writeWith(p, os.O_WRONLY|os.O_APPEND) }},
				{"read and write", func(p string) error { return writeWith(p, os.O_RDWR) }},
				{"truncate on open", func(p string) error { return writeWith(p, os.O_RDONLY|os.O_TRUNC) }},
				{"truncate", func(p string) error { return unix.Truncate(p, 0) }},
				{"ftruncate", func(string) error { return unix.Ftruncate(0, 0) }},
				{"fallocate", func(string) error { return unix.Fallocate(0, 0, 0, 1<<16) }},
				{"write to it", func(string) error { _, err := unix.Write(0, []byte("evil")); return err }},
				{"hard link", func(p string) error {
					defer os.Remove("stolen")
					if err := unix.Linkat(unix.AT_FDCWD, p, unix.AT_FDCWD, "stolen", unix.AT_SYMLINK_FOLLOW); err != nil {
						return err
					}
					return overwrite("stolen")
				}},
				{"hard link of the descriptor", func(string) error {
					return unix.Linkat(0, "", unix.AT_FDCWD, "stolen", unix.AT_EMPTY_PATH)
				}},
			} {
				report(w.name+" "+path, w.way(path))
			}
		}
	}
	attacks["stdout"] = func([]string) {
		data, err := os.ReadFile("/proc/self/fd/1")
		if err == nil {
			keep("read-back", data)
		}
	}
}

// withStdin runs an attack with a file of the host as its stdin, opened for
// reading.
func (b *box) withStdin(path, attack string, sandboxed bool) {
	b.t.Helper()
	in, err := os.Open(path)
	must(b.t, err)
	defer in.Close()
	if !sandboxed {
		free := b.freeCommand(attack)
		free.Stdin = in
		b.runFree(free)
		return
	}
	c := b.command(b.program, "attack", attack)
	c.Stdin = in
	b.runCmd(c)
}

func TestReadOnlyStdinIsNotWritten(t *testing.T) {
	b := newBox(t)
	input := b.outside + "/input"
	b.write(input, "original")
	unchanged(t, func() { b.withStdin(input, "stdin", true) }, input)
	b.withStdin(input, "stdin", false)
	if got, _ := os.ReadFile(input); string(got) == "original" {
		t.Errorf("control: without a sandbox the file is unchanged")
	}
}

func TestWriteOnlyStdoutIsNotReadBack(t *testing.T) {
	b := newBox(t)
	log := b.outside + "/log"
	b.write(log, "BEGIN SECRET of another command\n")
	open := func() *os.File {
		f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	c := b.command(b.program, "attack", "stdout")
	c.Stdout = open()
	b.runCmd(c)
	b.expectNoLoot()
	free := b.freeCommand("stdout")
	free.Stdout = open()
	must(t, free.Run())
	b.expectLoot("read-back")
}

func init() {
	attacks["terminal"] = func(args []string) {
		fd, _ := strconv.Atoi(args[0])
		if len(args) == 1 {
			// Whose terminal it is may type into it: try to own it first.
			c := exec.Command("/proc/self/exe", "attack", "terminal", args[0], "owner")
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: fd}
			report("as the owner", c.Run())
		}
		evil := [1]byte{'E'}
		console := [2]byte{2, 0} // TIOCLINUX: select
		disc := int32(1)         // SLIP
		for _, garbage := range []uintptr{0, 1 << 32, 0xdeadbeef << 32} {
			for name, call := range map[string][2]uintptr{
				"TIOCSTI":   {unix.TIOCSTI, uintptr(unsafe.Pointer(&evil))},
				"TIOCLINUX": {unix.TIOCLINUX, uintptr(unsafe.Pointer(&console))},
				"TIOCSETD":  {unix.TIOCSETD, uintptr(unsafe.Pointer(&disc))},
				"TIOCSCTTY": {unix.TIOCSCTTY, 1},
			} {
				_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), call[0]|garbage, call[1])
				report(name, asError(errno))
			}
		}
		for _, path := range []string{"/dev/tty", fmt.Sprintf("/proc/self/fd/%d", fd)} {
			tty, err := os.OpenFile(path, os.O_RDWR, 0)
			report("open "+path, err)
			if err == nil {
				_, _, errno := unix.Syscall(unix.SYS_IOCTL, tty.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&evil)))
				report("TIOCSTI on "+path, asError(errno))
			}
		}
	}
}

// openTerminal returns both ends of a new pseudo-terminal without echo.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	must(t, err)
	s, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(t, err)
	attr, err := unix.IoctlGetTermios(s, unix.TCGETS)
	must(t, err)
	attr.Lflag &^= unix.ICANON | unix.ECHO
	must(t, unix.IoctlSetTermios(s, unix.TCSETS, attr))
	master, slave = os.NewFile(uintptr(m), "master"), os.NewFile(uintptr(s), "slave")
	t.Cleanup(func() {
		master.Close()
		slave.Close()
	})
	return master, slave
}

// typed returns how many bytes wait to be read from a terminal: as if a person
// had typed them.
func typed(t *testing.T, slave *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ)
	must(t, err)
	return n
}

func TestNothingIsTypedIntoTheCallersTerminal(t *testing.T) {
	b := newBox(t)
	_, slave := openTerminal(t)
	c := b.command(b.program, "attack", "terminal", "0")
	c.Stdin = slave
	b.runCmd(c)
	if n := typed(t, slave); n != 0 {
		t.Errorf("%d bytes were typed into the terminal", n)
	}
	if disc, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCGETD); err != nil || disc != 0 {
		t.Errorf("the line discipline is %d (%v), want 0", disc, err)
	}

	if os.Geteuid() != 0 {
		if text, _ := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); strings.TrimSpace(string(text)) != "1" {
			return // this kernel lets only root type
		}
	}
	free := b.freeCommand("terminal", "0")
	free.Stdin = slave
	free.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	b.runFree(free)
	if typed(t, slave) == 0 {
		t.Errorf("control: without a sandbox nothing was typed")
	}
}

func init() {
	attacks["ignore-signals"] = func([]string) {
		for sig := 1; sig < 65; sig++ {
			if sig != int(unix.SIGKILL) && sig != int(unix.SIGSTOP) {
				ignoreSignal(sig)
			}
		}
		keep("deaf", nil)
		time.Sleep(time.Minute)
	}
}

func ignoreSignal(sig int) {
	action := [4]uintptr{1} // SIG_IGN
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

func TestDeafCommandIsEnded(t *testing.T) {
	b := newBox(t)
	mark := filepath.Base(b.root) + "-deaf"
	c := b.command(b.program, "attack", "ignore-signals", mark)
	must(t, c.Start())
	b.await("deaf")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		must(t, c.Signal(sig))
	}
	must(t, c.Kill())
	if err := c.Wait(); err == nil {
		t.Error("the command ended by itself")
	}
	if pids := processes(mark); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
}
