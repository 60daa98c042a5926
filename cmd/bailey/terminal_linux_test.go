package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// screen is a terminal with a program on it.
type screen struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	cmd    *exec.Cmd
	ended  chan struct{}

	mu   sync.Mutex
	text []byte
	more chan struct{}
}

// openScreen makes a terminal of 24 rows and 80 columns.
func openScreen(t *testing.T) *screen {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: os.NewFile(uintptr(fd), "ptmx"), tty: tty, more: make(chan struct{}, 1), ended: make(chan struct{})}
	s.resize(24, 80)
	go s.read()
	t.Cleanup(func() {
		if s.cmd != nil {
			s.cmd.Process.Kill()
			<-s.ended
		}
		s.tty.Close()
		s.master.Close()
	})
	return s
}

// start runs a program as the leader of the terminal's session. Streams that
// are nil are the terminal.
func (s *screen) start(cmd *exec.Cmd) {
	s.t.Helper()
	if cmd.Stdin == nil {
		cmd.Stdin = s.tty
	}
	if cmd.Stdout == nil {
		cmd.Stdout = s.tty
	}
	if cmd.Stderr == nil {
		cmd.Stderr = s.tty
	}
	cmd.ExtraFiles = []*os.File{s.tty}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.cmd = cmd
	go func() {
		cmd.Wait()
		close(s.ended)
	}()
}

func (s *screen) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.text = append(s.text, buf[:n]...)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// rest returns what appeared after what was expected.
func (s *screen) rest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// expect waits until the text appears after what was expected before.
func (s *screen) expect(text string) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		i := bytes.Index(s.text, []byte(text))
		if i >= 0 {
			s.text = s.text[i+len(text):]
		}
		seen := string(s.text)
		s.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-s.more:
		case <-deadline:
			s.t.Fatalf("%q did not appear; on the screen: %q", text, seen)
		}
	}
}

func (s *screen) write(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) resize(rows, columns uint16) {
	if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) raw() bool { return !s.has(unix.ICANON) }

func (s *screen) has(flag uint32) bool {
	t, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return t.Lflag&flag != 0
}

// until waits for something that nothing tells about.
func (s *screen) until(what string, is func() bool) {
	s.t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.t.Fatalf("never: %s; on the screen: %q", what, s.text)
}

// wait returns the status, after checking that the terminal is as it was.
func (s *screen) wait() int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		s.t.Fatalf("it does not end; on the screen: %q", s.text)
	}
	if s.raw() {
		s.t.Error("the terminal was left raw")
	}
	return s.cmd.ProcessState.ExitCode()
}

func TestTerminalBecomesATerminal(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("-c", "tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; exit 7"))
	s.expect("/dev/pts/0\r\n24 80\r\nall\r\n")
	if got := s.wait(); got != 7 {
		t.Errorf("status %d", got)
	}
}

func TestPipesStayPipesBesideATerminal(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	var out bytes.Buffer
	s := openScreen(t)
	cmd := b.command("-c", `for fd in 0 1 2; do [ -t $fd ] && echo "$fd tty" || echo "$fd pipe"; done; echo seen >&2`)
	cmd.Stdin, cmd.Stdout = strings.NewReader(""), &out
	s.start(cmd)
	s.expect("seen\r\n")
	s.wait()
	if want := "0 pipe\n1 pipe\n2 tty\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestAllOutputArrivesBeforeTheEnd(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("-c", "seq 20000; echo the last line"))
	s.expect("\r\n19999\r\n20000\r\nthe last line\r\n")
	if got := s.wait(); got != 0 {
		t.Errorf("status %d", got)
	}
}

func TestControlCharactersReachTheCommand(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("-c", `trap i=1 INT; echo ready; while [ -z "$i" ]; do sleep 0.01; done; echo interrupted; read -r line; echo "line: $line"; cat; echo end`))
	s.expect("ready\r\n")
	s.until("raw mode", s.raw)
	s.write("\x03")
	s.expect("interrupted")
	s.write("hello\r")
	s.expect("line: hello\r\n")
	s.write("\x04")
	s.expect("end\r\n")
	if got := s.wait(); got != 0 {
		t.Errorf("status %d", got)
	}
}

// A loop or script around the command must hear of the interrupt, which the
// caller's terminal took for a byte.
func TestInterruptEndsTheCommandAndTheJobAroundIt(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	inside := b.command("-c", "echo ready; exec sleep 60")
	script := exec.Command("sh", append([]string{"-c", `"$@"; echo went on`, "sh"}, inside.Args...)...)
	script.Dir, script.Env = inside.Dir, inside.Env
	s.start(script)
	s.expect("ready\r\n")
	s.until("raw mode", s.raw)
	s.write("\x03")
	s.wait()
	ws, ok := script.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() || ws.Signal() != syscall.SIGINT {
		t.Errorf("the script ended with %v, want it interrupted", script.ProcessState)
	}
}

func TestSizeFollowsTheTerminal(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("--shell", "sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done"))
	s.expect("ready\r\n")
	waitForHandlers(t, s.cmd.Process.Pid)
	s.resize(50, 132)
	s.expect("50 132\r\n")
	s.resize(10, 20)
	s.expect("10 20\r\n")
	s.cmd.Process.Signal(syscall.SIGTERM)
	if got := s.wait(); got != 143 {
		t.Errorf("status %d", got)
	}
}

func TestTerminalIsRestoredWhenNothingStarts(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("no-such-program"))
	s.expect("\x1b[1;31mbailey:\x1b[0m no-such-program: command not found\r\n")
	if got := s.wait(); got != 127 {
		t.Errorf("status %d", got)
	}
	b.env = append(b.env, "NO_COLOR=1")
	plain := openScreen(t)
	plain.start(b.command("no-such-program"))
	plain.expect("bailey: no-such-program")
	plain.wait()
}

// startShell runs an interactive shell outside of any sandbox, with bailey in
// its PATH.
func startShell(t *testing.T, b *bench) *screen {
	t.Helper()
	s := openScreen(t)
	shell := exec.Command("bash", "--norc", "--noprofile", "-i")
	shell.Dir = b.dir
	shell.Env = append(b.env, "PS1=outer> ", "PATH="+filepath.Dir(testenv.Binary(t, "bailey"))+":/usr/bin:/bin", "HISTFILE=")
	s.start(shell)
	s.expect("outer> ")
	return s
}

func TestStoppingAndContinuing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("bash"))
	b := newBench(t)
	s := startShell(t, b)
	s.write("bailey -c 'echo ready; read x; echo got:$x; exec cat'\r")
	s.expect("ready\r\n")
	s.write("one\r")
	s.expect("got:one\r\n")
	s.write("\x1a") // Ctrl-Z
	s.expect("Stopped")
	s.expect("outer> ")
	s.write("echo shell $((40+2))\r")
	s.expect("shell 42\r\n")
	s.write("fg\r")
	s.expect("exec cat'\r\n")
	s.until("raw mode after fg", s.raw)
	s.write("again\r")
	s.expect("again\r\nagain\r\n")
	s.write("\x04")
	s.expect("outer> ")
	s.write("exit\r")
	s.wait()
}

// TestACommandThatStopsItself has said everything by then, and a shell that
// waits for its job goes on.
func TestACommandThatStopsItself(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("bash"))
	b := newBench(t)
	s := startShell(t, b)
	for range 5 {
		s.write("bailey -c 'echo be\"\"fore; kill -TSTP $$; echo af\"\"ter'\r")
		s.expect("before\r\n")
		s.expect("Stopped")
		s.expect("outer> ")
		s.write("fg\r")
		s.expect("after\r\n")
		s.expect("outer> ")
	}
	s.write("exit\r")
	s.wait()
}

func TestBackgroundLeavesTheTerminalAlone(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("bash"))
	b := newBench(t)
	s := startShell(t, b)
	s.write("bailey -c 'sleep 0.5; echo from the background' &\r")
	s.expect("outer> ")
	for range 5 {
		s.write("echo typed $((40+2))\r")
		s.expect("typed 42\r\n")
	}
	s.expect("from the background")
	s.write("wait; echo status $?\r")
	s.expect("status 0\r\n")
	// One that reads is left waiting, and gets the line after fg.
	s.write("bailey -c 'read x; echo got:$x' &\r")
	s.expect("outer> ")
	s.write("echo typed $((40+3))\r")
	s.expect("typed 43\r\n")
	s.write("fg\r")
	s.expect("got:$x'")
	s.write("for the command\r")
	s.expect("got:for the command\r\n")
	s.expect("outer> ")
	s.write("exit\r")
	s.wait()
}

func TestAPipelineSharesTheTerminal(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("bash"), testenv.Program("less"))
	b := newBench(t)
	s := startShell(t, b)

	// Ctrl-C is for all of it.
	s.write("bailey -c 'trap \"echo inner >&2; exit 1\" INT; echo ready >&2; while :; do sleep 0.01; done' | cat\r")
	s.expect("ready\r\n")
	time.Sleep(50 * time.Millisecond)
	s.write("\x03")
	s.expect("inner")
	s.expect("outer> ")
	s.write("echo status ${PIPESTATUS[0]}\r")
	s.expect("status 1\r\n")

	// What is typed is seen once.
	s.write("bailey cat | tr a-z A-Z\r")
	s.expect("A-Z\r\n")
	time.Sleep(200 * time.Millisecond)
	s.write("abc\r")
	s.expect("abc\r\nABC\r\n")
	s.write("def\r")
	s.expect("def\r\nDEF\r\n")
	s.write("\x04")
	s.expect("outer> ")

	// A pager at either end gets the keys.
	s.write("seq 1000 | bailey less\r")
	s.expect("\r\n:")
	s.write("G")
	s.expect("1000")
	s.write("q")
	s.expect("outer> ")
	s.write("bailey seq 1000 | less\r")
	s.expect("\r\n:")
	s.write("G")
	s.expect("1000")
	s.write("q")
	s.expect("outer> ")
	s.write("exit\r")
	s.wait()
}

func TestAPasswordIsNotEchoedInAPipeline(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("bash"))
	b := newBench(t)
	s := startShell(t, b)
	s.write("bailey -c 'read -rs -p Password: x </dev/tty; echo; echo ${#x}' | cat\r")
	s.expect("cat\r\n")
	s.expect("Password:")
	s.until("no echo", func() bool { return !s.has(unix.ECHO) })
	s.write("s3cret\r")
	s.expect("6\r\n")
	s.mu.Lock()
	if bytes.Contains(s.text, []byte("s3cret")) {
		t.Errorf("the password is on the screen: %q", s.text)
	}
	s.mu.Unlock()
	s.expect("outer> ")
	s.write("exit\r")
	s.wait()
}

func TestFullScreenPrograms(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("tmux"), testenv.Program("vim"))
	b := newBench(t)
	p := b.pane()
	p.tmux("resize-window", "-x", "80", "-y", "24")
	p.keys(testenv.Binary(t, "bailey")+" vim -u NONE -N file.txt", "Enter")
	p.expect("[New]")
	p.keys("i", "written inside", "Escape")
	p.expect("written inside")
	p.keys("C-z")
	p.expect("Stopped")
	p.keys("clear; fg", "Enter")
	p.expect("written inside")
	p.tmux("resize-window", "-x", "100", "-y", "40")
	p.expect(strings.Repeat("~\n", 35)) // painted again
	p.keys(":put =&columns", "Enter")
	p.expect("\n100\n")
	p.keys(":wq", "Enter")
	for range 500 {
		if data, _ := os.ReadFile(filepath.Join(b.dir, "file.txt")); string(data) == "written inside\n100\n" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	data, _ := os.ReadFile(filepath.Join(b.dir, "file.txt"))
	t.Errorf("file.txt holds %q", data)
}

func TestZshCompletes(t *testing.T) {
	testenv.Requires(t, testenv.Program("zsh"))
	b := newBench(t)
	b.write("_bailey", zshCompletion(), 0o644)
	s := openScreen(t)
	shell := exec.Command("zsh", "-f", "-i")
	shell.Dir = b.dir
	shell.Env = append(b.env, "PS1=zsh> ", "PATH="+filepath.Dir(testenv.Binary(t, "bailey"))+":/usr/bin:/bin")
	s.start(shell)
	s.expect("zsh> ")
	s.write("autoload -U compinit; compinit -u -D; source ./_bailey; echo loa''ded\r")
	s.expect("loaded\r\n")
	s.expect("zsh> ")
	for line, want := range map[string]string{
		"bailey --allow-r\t":         "ead",
		"bailey -t code-s\t":         "rict",
		"bailey config sch\t":        "ma",
		"bailey presets show lock\t": "ed",
	} {
		s.write(line)
		s.expect(want)
		s.write("\x15\r")
		s.expect("zsh> ")
	}
}
