package peer

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// confined is an argument with which this program gives something up, says so, and
// waits.
const confined = "confined"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == confined {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestConfinedProcessIsNoPeer(t *testing.T) {
	if own, err := boundsOf("self"); err != nil || own[0] != 0 {
		t.Skip("this process is confined itself: ", own, err)
	}
	for _, test := range []struct {
		name string
		argv []string
		free bool
	}{
		{"free", []string{"sh", "-c", "echo ready; read x"}, true},
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
