//go:build unix

package seatbelt

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// standIn takes the arguments of sandbox-exec and confines nothing: what is tried
// with it is all that is around a profile.
func standIn(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sandbox-exec")
	const script = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n"
	// A program that is open for writing in a child that is just being forked
	// cannot be executed.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func shell(t *testing.T, line string) *spec.Spec {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &spec.Spec{
		Argv: []string{"sh", "-c", line}, Exec: []string{"/nonexistent/sh", "/bin/sh"}, Dir: dir,
		Env: []string{"HOME=/Users/u", "PATH=/usr/bin:/bin", "TMPDIR=/tmp"},
		Mounts: []spec.Mount{
			{Kind: spec.Tmpfs, Target: "/Users/u", Why: spec.PrivateHome},
			{Kind: spec.Bind, Target: "/Users/u/.config/git", Source: "/Users/u/.config/git"},
			{Kind: spec.Tmpfs, Target: "/private/tmp"},
			{Kind: spec.Symlink, Target: "/tmp", Source: "private/tmp"},
		},
	}
}

// begin starts a command and returns what it writes.
func begin(t *testing.T, s *spec.Spec) (*Process, *bufio.Reader) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	const patience = 30 * time.Second // what holds is seen at once
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p, err := start(standIn(t), s, [3]*os.File{null, w, w})
	if err != nil {
		t.Fatal(err)
	}
	return p, bufio.NewReader(r)
}

func finish(t *testing.T, p *Process, limit time.Duration) (syscall.WaitStatus, bool) {
	t.Helper()
	status, expired, err := p.Wait(limit)
	if err != nil {
		t.Fatal(err)
	}
	return status, expired
}

func TestStatusIsTheCommands(t *testing.T) {
	p, _ := begin(t, shell(t, "exit 42"))
	if status, _ := finish(t, p, 0); status.ExitStatus() != 42 {
		t.Errorf("got %v", status)
	}
	p, _ = begin(t, shell(t, "kill -9 $$"))
	if status, _ := finish(t, p, 0); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("got %v", status)
	}
}

func TestHomeAndTemporaryFilesAreTheRunsOwn(t *testing.T) {
	p, out := begin(t, shell(t, `pwd; echo "$HOME"; echo "$TMPDIR"; readlink "$HOME/.config/git"; echo own >"$TMPDIR/x" && cat "$TMPDIR/x"`))
	finish(t, p, 0)
	text, _ := io.ReadAll(out)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 5 || lines[1] != p.scratch.home() || lines[2] != p.scratch.temp() || lines[3] != "/Users/u/.config/git" || lines[4] != "own" {
		t.Errorf("got %q", lines)
	}
	if _, err := os.Lstat(p.scratch.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the scratch directory is left: %v", err)
	}
}

func TestSignalsReachTheCommandAndWhatItStarted(t *testing.T) {
	p, out := begin(t, shell(t, `trap 'echo heard; exit 7' USR1; echo ready; while :; do sleep 1000 & wait; done`))
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	if status, _ := finish(t, p, 0); status.ExitStatus() != 7 {
		t.Errorf("got %v", status)
	}
	// It ends when nobody holds the pipe any more.
	if text, err := io.ReadAll(out); string(text) != "heard\n" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTimeEndsTheCommand(t *testing.T) {
	p, _ := begin(t, shell(t, "sleep 1000"))
	if status, expired := finish(t, p, time.Millisecond); !expired || !status.Signaled() {
		t.Errorf("got %v, %v", status, expired)
	}
	p, _ = begin(t, shell(t, "true"))
	if status, expired := finish(t, p, time.Hour); expired || status.ExitStatus() != 0 {
		t.Errorf("got %v, %v", status, expired)
	}
}

func TestNoOtherDescriptorIsInherited(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := syscall.Dup(int(w.Fd())) // as a careless caller leaves one
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	p, out := begin(t, shell(t, "ls /dev/fd"))
	finish(t, p, 0)
	text, _ := io.ReadAll(out)
	if strings.Contains("\n"+string(text), "\n"+strconv.Itoa(fd)+"\n") {
		t.Errorf("descriptor %d is among\n%s", fd, text)
	}
}

func TestMissingProgramsAreToldFromThoseThatAreNone(t *testing.T) {
	s := shell(t, "true")
	s.Exec = []string{filepath.Join(s.Dir, "x")}
	for _, missing := range []bool{true, false} {
		_, err := Start(s, [3]*os.File{})
		var exec *ExecError
		if !errors.As(err, &exec) || exec.Missing != missing {
			t.Errorf("got %v", err)
		}
		if err := os.WriteFile(s.Exec[0], nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
