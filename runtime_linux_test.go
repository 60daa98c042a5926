package bailey_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestCommandIsCarriedByBubblewrap(t *testing.T) {
	testenv.Requires(t, testenv.Program("bwrap"))
	m := newManager(t, bailey.Config{Runtime: "bwrap"})
	c := shell(m, "echo ready; cat; exit 7")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if got := parentName(t, c.Pid()); got != "bwrap" {
		t.Errorf("process 1 is a child of %q", got)
	}
	fmt.Fprint(in, "and more")
	in.Close()
	if text, err := io.ReadAll(out); string(text) != "ready\nand more" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	var exit *bailey.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v", err)
	}
}

// parentName is what the parent of a process is called:
//
//	Name:	bailey-init
//	PPid:	4711
func parentName(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	name, err := os.ReadFile("/proc/" + parent + "/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

func TestCommandInBubblewrapIsSignalledAndKilled(t *testing.T) {
	testenv.Requires(t, testenv.Program("bwrap"))
	m := newManager(t, bailey.Config{Runtime: "bwrap"})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		c := shell(m, "exec sleep 1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if err := c.Signal(sig); err != nil {
			t.Error(err)
		}
		var exit *bailey.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.Signal() != sig {
			t.Errorf("got %v, want %v", err, sig)
		}
	}
}

func TestWrappedCommandNamesItsRuntime(t *testing.T) {
	testenv.Requires(t, testenv.Program("bwrap"))
	m := newManager(t, bailey.Config{Runtime: "bwrap", Binary: testenv.Binary(t, "bailey")})
	w, err := m.WrapCommand("sh", "-c", "echo wrapped; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.String(), `"runtime":"bwrap"`) {
		t.Errorf("got %s", w)
	}
	c := exec.Command("sh", "-c", w.String())
	c.Dir = "/"
	out, err := c.Output()
	var exit *exec.ExitError
	if string(out) != "wrapped\n" || !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestRuntimeOfTheCommandOnlyIsRefusedByName(t *testing.T) {
	for _, name := range []string{"landlock", "runc", "nonsense"} {
		m := newManager(t, bailey.Config{Runtime: name})
		if err := m.Command("true").Run(); err == nil || !strings.Contains(err.Error(), "runtime "+name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
