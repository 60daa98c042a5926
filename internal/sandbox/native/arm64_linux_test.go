package native

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// writeImage is the role that writes the program of process 1 to a file.
func writeImage(args []string) error {
	return os.WriteFile(args[0], image(initParams{exec: args[1:], terminal: -1, resident: len(args) == 1}), 0o755)
}

// The process 1 of arm64 is emulated; what it starts is this machine's. The
// emulator makes a plain fork of vfork, so a program that cannot be started is
// seen as a child that exits with 127 instead of being reported.
func TestProcessOneOnArm64(t *testing.T) {
	testenv.Requires(t, testenv.Modules, testenv.UserNamespaces, testenv.NoRace, testenv.Program("qemu-aarch64"))
	dir := t.TempDir()
	writer := buildForArm64(t, dir)
	t.Run("resident", func(t *testing.T) { emulateResident(t, writer, filepath.Join(dir, "resident")) })
	exited := func(status int) uint32 { return uint32(status << 8) }
	for _, test := range []struct {
		name string
		exec []string
		line string
		want []uint32
	}{
		{"success", []string{"/bin/sh"}, "exit 0", []uint32{exited(0)}},
		{"exit status", []string{"/no/such/program", "/bin/sh"}, "exit 42", []uint32{exited(42)}},
		{"signal", []string{"/bin/sh"}, "kill -TERM $$", []uint32{uint32(unix.SIGTERM)}},
		{"orphans", []string{"/bin/sh"}, "for i in 1 2 3 4 5; do (true &) ; done; exit 3", []uint32{exited(3)}},
		{"no program", []string{"/no/such/program"}, "", []uint32{exited(127)}},
		{"forwarded signal", []string{"/bin/sh"}, "trap 'exit 8' TERM; kill -STOP $$; while :; do sleep 0.01; done", []uint32{0x137f, exited(8)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(dir, "init")
			write := exec.Command("qemu-aarch64", append([]string{"-0", "write-image", writer, file}, test.exec...)...)
			if out, err := write.CombinedOutput(); err != nil {
				t.Fatalf("write the image: %v\n%s", err, out)
			}
			got := emulate(t, file, test.line)
			if want := append([]uint32{msgStarted}, test.want...); !slices.Equal(got, want) {
				t.Errorf("messages %#x, want %#x", got, want)
			}
		})
	}
}

// buildForArm64 builds this test binary.
func buildForArm64(t *testing.T, dir string) string {
	t.Helper()
	writer := filepath.Join(dir, "image")
	build := exec.Command("go", "test", "-c", "-o", writer, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for arm64: %v\n%s", err, out)
	}
	return writer
}

// emulateResident asks a process 1 that stays for commands.
func emulateResident(t *testing.T, writer, file string) {
	if out, err := exec.Command("qemu-aarch64", "-0", "write-image", writer, file).CombinedOutput(); err != nil {
		t.Fatalf("write the image: %v\n%s", err, out)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &Resident{control: os.NewFile(uintptr(pair[0]), "control"), done: make(chan struct{}), inner: make(map[uint32]*Job), umask: -1}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	if err := unix.SetNonblock(pair[1], false); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("qemu-aarch64", file)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = namespaced()
	runtime.LockOSThread()
	old := blockSignals()
	err = cmd.Start()
	restoreSignals(old)
	runtime.UnlockOSThread()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	r.proc, r.Pid = &Process{Pid: cmd.Process.Pid, pidfd: -1, status: -1}, cmd.Process.Pid
	go r.listen()
	s := newSpec(t, t.TempDir(), "/bin/true")
	r.spec = s
	for _, test := range []struct {
		line string
		dir  string
		want uint32
	}{
		{"exit 5", "", 5 << 8}, {"[ $(pwd) = /usr ]", "/usr", 0}, {"[ \"$FOO\" = bar ] && exit 9", "/", 9 << 8}, {"kill -9 $$", "", 9},
	} {
		l := line(s, test.line, nulls(t))
		l.Dir, l.Env = test.dir, []string{"FOO=bar", "PATH=/usr/bin:/bin"}
		j, err := r.Start(l)
		if err != nil {
			t.Fatalf("%s: %v", test.line, err)
		}
		if st := j.Wait(); uint32(st.Wait) != test.want {
			t.Errorf("%s: got %#x, want %#x", test.line, uint32(st.Wait), test.want)
		}
	}
	j, err := r.Start(line(s, "exec sleep 1000", nulls(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if st := j.Wait(); st.Wait.Signal() != unix.SIGTERM {
		t.Errorf("got %+v", st)
	}
	_ = unix.Shutdown(pair[0], unix.SHUT_WR) // the owner is gone
	<-r.done
}

// namespaced are the namespaces of a process 1.
func namespaced() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
	}
}

// emulate runs an image as process 1 of a namespace and returns its messages.
// At each stop it sends what a terminal's owner would: continue, and terminate.
func emulate(t *testing.T, file, line string) []uint32 {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("qemu-aarch64", file, "-c", line)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = namespaced()
	runtime.LockOSThread()
	old := blockSignals() // as the launch does
	err = cmd.Start()
	restoreSignals(old)
	runtime.UnlockOSThread()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for {
		var buf [messageSize]byte
		if _, err := io.ReadFull(r, buf[:]); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		msg := decodeMessage(buf[:]).what
		// Whether it was seen to go on depends on when it ended.
		if !unix.WaitStatus(msg).Continued() {
			got = append(got, msg)
		}
		if unix.WaitStatus(msg).Stopped() {
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Process.Signal(unix.SIGCONT)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("process 1: %v", err)
	}
	return got
}
