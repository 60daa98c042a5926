package peer

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// With one of these arguments this program gives something up, says so, and waits.
const (
	bound    = "bound"    // has no way to new privileges
	confined = "confined" // is under a filter, too
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == bound || os.Args[1] == confined) {
		if err := giveUp(os.Args[1] == confined); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func giveUp(calls bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil || !calls {
		return err
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: 1, Filter: &allow}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func init() { runtime.LockOSThread() } // main stays on the first thread

func TestConfinedProcessIsNoPeer(t *testing.T) {
	for _, test := range []struct {
		name string
		argv []string
		free bool
	}{
		{"free", []string{"sh", "-c", "echo ready; read x"}, true},
		{"without a way to privileges", []string{os.Args[0], bound}, true},
		{"confined", []string{os.Args[0], confined}, false},
	} {
		c := exec.Command(test.argv[0], test.argv[1:]...)
		stdin, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			t.Fatalf("%s: %q, %v", test.name, line, err)
		}
		if err := CheckFree(c.Process.Pid); (err == nil) != test.free {
			t.Errorf("%s: %v", test.name, err)
		}
		_ = stdin.Close()
		_ = c.Wait() // sh reports the end of its input
	}
	if err := CheckFree(1 << 30); err == nil {
		t.Error("a process that is not there is a peer")
	}
}

func TestOnlyTheModeOfOwnSocketsIsMarked(t *testing.T) {
	if !IsMarked(Mode) || IsMarked(0o600) || IsMarked(unix.S_IFSOCK|0o777) {
		t.Error("the mark is not told from other modes")
	}
}
