package native

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// session is a sandbox with a terminal.
type session struct {
	t   *testing.T
	p   *Process
	out *bufio.Reader
}

func terminalSession(t *testing.T, line string) *session {
	t.Helper()
	requireSandbox(t)
	p := start(t, shell(t, line), Options{
		Streams:  nulls(t),
		Terminal: &Terminal{Streams: [3]bool{true, true, true}, Size: &unix.Winsize{Row: 33, Col: 77}},
	})
	if p.Terminal == nil {
		t.Fatal("no terminal came out")
	}
	t.Cleanup(func() { p.Terminal.Close() })
	return &session{t, p, bufio.NewReader(p.Terminal)}
}

func (s *session) expect(want string) {
	s.t.Helper()
	if got, err := s.out.ReadString('\n'); strings.TrimRight(got, "\r\n") != want {
		s.t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.p.Terminal.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func TestTerminalIsTheSandboxsOwn(t *testing.T) {
	s := terminalSession(t, "stty -echo; tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; ls /dev/pts; echo tty >/dev/tty; exit 9")
	s.expect("/dev/pts/0")
	s.expect("33 77")
	s.expect("all")
	if line, err := s.out.ReadString('\n'); err != nil || strings.Join(strings.Fields(line), " ") != "0 ptmx" {
		t.Errorf("/dev/pts holds %q, %v", line, err)
	}
	s.expect("tty")
	(result{State: s.p.Wait()}).exit(t, 9)
	// The end of a terminal is an error, not an end of file.
	if _, err := io.ReadAll(s.out); err == nil {
		t.Error("the terminal goes on after the command's end")
	}
}

func TestKeysStopContinueAndInterrupt(t *testing.T) {
	s := terminalSession(t, "stty -echo; echo ready; while read line; do echo got $line; done")
	s.expect("ready")
	s.write("\x1a") // Ctrl-Z
	if st := s.p.Wait(); !st.Stopped() || st.Wait.StopSignal() != unix.SIGTSTP {
		t.Fatalf("got %#x, want a stop", uint32(st.Wait))
	}
	if err := s.p.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.write("line\n")
	s.expect("got line")
	s.write("\x03") // Ctrl-C
	if st := s.p.Wait(); !st.Wait.Signaled() || st.Wait.Signal() != unix.SIGINT {
		t.Errorf("got %#x, want an interrupt", uint32(st.Wait))
	}
}

func TestJobControlWorksInside(t *testing.T) {
	s := terminalSession(t, `stty -echo; exec 2>/dev/null; set -m
sh -c 'kill -STOP $$; exit 12'
echo stopped $(($? > 128))
fg >/dev/null; echo $?
exit 0`)
	// A shell in control of its jobs has the terminal and gives it away.
	s.expect("stopped 1")
	s.expect("12")
	(result{State: s.p.Wait()}).exit(t, 0)
}

func TestWindowSizeChangesReachTheCommand(t *testing.T) {
	s := terminalSession(t, "stty -echo; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done")
	s.expect("ready")
	if err := unix.IoctlSetWinsize(int(s.p.Terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132}); err != nil {
		t.Fatal(err)
	}
	s.expect("50 132")
	(result{State: s.p.Wait()}).exit(t, 0)
}

func TestHangUpReachesTheCommand(t *testing.T) {
	s := terminalSession(t, "stty -echo; trap 'exit 8' HUP; echo ready; while :; do read line || sleep 0.01; done")
	s.expect("ready")
	s.p.Terminal.Close()
	(result{State: s.p.Wait()}).exit(t, 8)
}

func TestTerminalReplacesOnlyTheStreamsAsked(t *testing.T) {
	requireSandbox(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null := openNull(t)
	p := start(t, shell(t, "for i in 0 1 2; do test -t $i && echo $i; done; true"), Options{
		Streams:  [3]*os.File{null, w, null},
		Terminal: &Terminal{Streams: [3]bool{true, false, true}},
	})
	w.Close()
	defer p.Terminal.Close()
	if out, err := io.ReadAll(r); string(out) != "0\n2\n" {
		t.Errorf("terminals: %q, %v", out, err)
	}
	(result{State: p.Wait()}).exit(t, 0)
}
