package engine

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// slow is an engine without walls whose start takes until a signal comes.
type slow struct {
	open
	// late says that the command runs all the same: it had begun already.
	late bool
}

func (s slow) Name() string {
	if s.late {
		return "late"
	}
	return "slow"
}

func (s slow) Start(sp *spec.Spec, o Options) (Command, error) {
	_, _ = io.WriteString(o.Streams[1], "begun\n")
	fds := []unix.PollFd{{Fd: int32(o.Interrupt), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n == 1 && err == nil {
			break
		}
	}
	if !s.late {
		return nil, ErrInterrupted
	}
	return s.open.Start(sp, o)
}

func TestASignalBeforeTheCommandRuns(t *testing.T) {
	for _, c := range []struct {
		name, engine, line string
		signal             unix.Signal
		status             int
	}{
		{"ends the start", "slow", "exit 3", unix.SIGINT, foreground.Signalled + int(unix.SIGINT)},
		{"ends it by its own number", "slow", "exit 3", unix.SIGTERM, foreground.Signalled + int(unix.SIGTERM)},
		{"is the command's if that may run", "late", "exec sleep 1000", unix.SIGTERM, foreground.Signalled + int(unix.SIGTERM)},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{"hand-over", c.engine, "/bin/sh", "-c", c.line}
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its status follows
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
		})
	}
}
