package limits

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// loadVariable makes the test program do some work instead of the tests.
const loadVariable = "LIMITS_TEST_LOAD"

func TestMain(m *testing.M) {
	if os.Getpid() == 1 && os.Getenv(guestVariable) != "" {
		guestMain()
	}
	if kind := os.Getenv(loadVariable); kind != "" {
		work(kind)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work begins when its group is ready.
func work(kind string) {
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		os.Exit(3)
	}
	switch kind {
	case "allocate":
		allocate(600 << 20)
	case "spin":
		spin(300e6)
	case "fork":
		fork()
	case "own":
		own()
	case "scope":
		scope()
	}
}

// allocate uses memory, piece by piece: the kernel may refuse a large piece at
// once on a machine that has less.
func allocate(size int) {
	const piece = 4 << 20
	var pieces [][]byte
	for ; size > 0; size -= piece {
		p := make([]byte, piece)
		for i := 0; i < len(p); i += 4096 {
			p[i] = 1
		}
		pieces = append(pieces, p)
	}
	runtime.KeepAlive(pieces)
}

// spin uses processor time.
func spin(nanoseconds int64) {
	var used unix.Rusage
	for used.Utime.Nano()+used.Stime.Nano() < nanoseconds {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			os.Exit(3)
		}
	}
}

// fork starts processes until that fails, and then waits for its end.
func fork() {
	env := append(os.Environ(), loadVariable+"=wait")
	for range 200 {
		if _, err := syscall.ForkExec("/proc/self/exe", []string{"load"}, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}}); err != nil {
			break
		}
	}
	fmt.Println("full")
	_, _ = io.ReadAll(os.Stdin)
}

// own makes a group and says where.
func own() {
	g, err := Open(&spec.Limits{Memory: 64 << 20}, false, 0)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println(g.parts[0].dir)
	_, _ = io.ReadAll(os.Stdin)
}

// load is a process of the test program that works when it is told to.
type load struct {
	*exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

func newLoad(t *testing.T, kind string) *load {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), loadVariable+"="+kind, "GOMAXPROCS=1")
	cmd.Stderr = io.Discard
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &load{cmd, in, out}
}

func (l *load) begin(t *testing.T) {
	t.Helper()
	if _, err := l.in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// line reads what the load says.
func (l *load) line(t *testing.T) string {
	t.Helper()
	var text string
	if _, err := fmt.Fscanln(l.out, &text); err != nil {
		t.Fatal(err)
	}
	return text
}

// confined is a load in a group, which goes with the test.
func confined(t *testing.T, kind string, l *spec.Limits) (*load, *Group) {
	t.Helper()
	w := newLoad(t, kind)
	g, err := Open(l, true, w.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	w.begin(t)
	return w, g
}

func dirs(g *Group) (list []string) {
	for i := range g.parts {
		list = append(list, g.parts[i].dir)
	}
	return list
}

func stat(g *Group, file, name string) int64 {
	for i := range g.parts {
		if n, ok := field(g.parts[i].read(file), name); ok {
			return n
		}
	}
	return -1
}

func processes(dir string) string {
	text, err := os.ReadFile(dir + "/cgroup.procs")
	return string(text) + strconv.FormatBool(err == nil)
}
