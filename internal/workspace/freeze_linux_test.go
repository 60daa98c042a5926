package workspace

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// writerDir has the test binary write to a directory.
const writerDir = "BAILEY_TEST_WRITER_DIR"

// writeInTurns writes ever greater numbers to one file and then to another, each
// all the way to the disk, on two threads. It ends with the test that started it,
// whatever ended that: its standard input is at its end then.
func writeInTurns(dir string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	write := func(name string, n uint64) error {
		f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, n), 0); err != nil {
			return err
		}
		return f.Sync()
	}
	turn := make(chan uint64)
	done := make(chan error)
	go func() {
		for n := range turn {
			done <- write("b", n)
		}
	}()
	for n := uint64(1); ; n++ {
		if write("a", n) != nil {
			return 1
		}
		turn <- n
		if <-done != nil {
			return 1
		}
		if n == 1 {
			_, _ = os.Stdout.WriteString("begun\n")
		}
	}
}

// startWriter starts the writer in a process namespace of its own.
func startWriter(t *testing.T, dir string) (_ Sandbox, pid int) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), writerDir+"="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	_, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
		t.Fatalf("the writer said %q, %v", line, err)
	}
	ns, err := os.Readlink("/proc/" + strconv.Itoa(c.Process.Pid) + "/ns/pid")
	must(t, err)
	return Sandbox(ns), c.Process.Pid
}

// goesOn waits until a writer has written something.
func goesOn(t *testing.T, dir string, pid int) {
	t.Helper()
	for first := number(t, dir+"/a"); number(t, dir+"/a") == first; {
		if isDead(pid) {
			t.Fatal("the writer has ended")
		}
	}
}

func number(t *testing.T, file string) uint64 {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return binary.BigEndian.Uint64(data)
}

func TestSnapshotOfARunningWriterIsNeverTorn(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.NoRace)
	memory(t)
	s := newStore(t)
	imported(t, s, "base", project(t, "x"))
	d := start(t, s, "base", "one")
	defer d.Close()
	sandbox, pid := startWriter(t, d.Upper())
	last := uint64(0)
	for range testenv.Count(200, 2000) {
		n, err := s.SnapshotRunning("one", sandbox)
		must(t, err)
		dir := s.LayerTree(n.Layers[0])
		a, b := number(t, dir+"/a"), number(t, dir+"/b")
		if a != b && a != b+1 {
			t.Fatalf("a is %d and b is %d", a, b)
		}
		if a < last {
			t.Fatalf("a is %d, and was %d before", a, last)
		}
		last = a
		must(t, s.RemoveSnapshot("one", n.ID))
	}
	goesOn(t, d.Upper(), pid)
}

func TestFrozenSandboxStandsStill(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.NoRace)
	memory(t)
	dir := t.TempDir()
	sandbox, pid := startWriter(t, dir)
	thaw, err := sandbox.Freeze()
	must(t, err)
	a, b := number(t, dir+"/a"), number(t, dir+"/b")
	for range 1000 {
		if number(t, dir+"/a") != a || number(t, dir+"/b") != b {
			t.Fatal("it goes on")
		}
	}
	thaw()
	goesOn(t, dir, pid)
	if _, err := Sandbox("pid:[1]").Freeze(); err == nil {
		t.Error("a namespace that does not exist was frozen")
	}
}

func TestHolderIsTheSandboxBelowWhoHoldsTheLock(t *testing.T) {
	s := newStore(t)
	imported(t, s, "base", project(t, "x"))
	d := start(t, s, "base", "one")
	defer d.Close()
	if _, err := s.Holder("one"); err == nil {
		t.Error("this process has no sandbox, and one was found")
	}
	if _, err := s.Holder("missing"); err == nil {
		t.Error("a workspace that does not exist is held")
	}
}
