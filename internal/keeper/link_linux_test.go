package keeper

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// server is a server's end of a link.
type server struct {
	*Remote
	t     *testing.T
	exits chan Execution
	gone  chan string
}

// linkTo links to the keeper, as a server with that patience for orphans does.
func linkTo(t *testing.T, orphans time.Duration) *server {
	t.Helper()
	s := &server{t: t, exits: make(chan Execution, 100), gone: make(chan string, 100)}
	r, err := Own().Link(orphans, Told{
		Exit: func(x Execution) { s.exits <- x }, Gone: func(name string) { s.gone <- name },
		Event: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Remote = r
	t.Cleanup(r.Close)
	return s
}

func (s *server) open(name string) Standing {
	s.t.Helper()
	st, err := s.Open(name, compiled(s.t, "true"), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// run runs a command to its end.
func (s *server) run(e Exec) (Execution, string) {
	s.t.Helper()
	_, streams, err := s.Exec(e)
	if err != nil {
		s.t.Fatal(err)
	}
	defer streams.Close()
	out, _ := io.ReadAll(streams.Output)
	return <-s.exits, string(out)
}

func TestServerRunsCommands(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	x, out := s.run(Exec{Box: "one", ID: "a", Argv: []string{"sh", "-c", `echo "$GREETING $PWD"; exit 3`}, Env: []string{"GREETING=hi", "PATH=/bin"}, Dir: "/tmp"})
	if out != "hi /tmp\n" || unix.WaitStatus(x.Wait).ExitStatus() != 3 || x.Ended < x.Started || x.Killed || x.TimedOut {
		t.Errorf("%q, %+v", out, x)
	}
	_, _, err := s.Exec(Exec{Box: "one", ID: "b", Argv: []string{"no-such-program"}})
	var exec *native.ExecError
	if !errors.As(err, &exec) {
		t.Errorf("got %v", err)
	}
	if _, _, err := s.Exec(Exec{Box: "two", ID: "b", Argv: []string{"true"}}); !errors.Is(err, ErrMissing) {
		t.Errorf("in a sandbox that is not there: %v", err)
	}
	if _, _, err := s.Exec(Exec{Box: "one", ID: "a", Argv: []string{"true"}}); err == nil {
		t.Error("an id was given twice")
	}
	if err := s.Stop("one", 0); err != nil {
		t.Fatal(err)
	}
	if name := <-s.gone; name != "one" {
		t.Errorf("gone is %q", name)
	}
}

func TestServerWritesToCommands(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	for id, e := range map[string]Exec{
		"pipe":     {Input: InputPipe},
		"socket":   {Input: InputSocket},
		"fleeting": {Input: InputPipe, Fleeting: true},
	} {
		e.Box, e.ID, e.Argv = "one", id, []string{"cat"}
		_, streams, err := s.Exec(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := streams.Input.WriteString("to the cat"); err != nil {
			t.Fatal(err)
		}
		if !e.Fleeting {
			if err := s.FinishInput(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := streams.Input.Close(); err != nil {
			t.Fatal(err)
		}
		if out, _ := io.ReadAll(streams.Output); string(out) != "to the cat" {
			t.Errorf("%s: got %q", id, out)
		}
		<-s.exits
		streams.Close()
	}
	state, err := s.State()
	if err != nil || len(state.Execs) != 2 {
		t.Errorf("%+v, %v: a fleeting command is forgotten", state, err)
	}
}

// What a command writes while no server is there is read by the next one.
func TestCommandsOutliveTheServer(t *testing.T) {
	startKeeper(t)
	first := linkTo(t, time.Minute)
	pid := first.open("one").Pid
	_, streams, err := first.Exec(Exec{Box: "one", ID: "long", Argv: []string{"sh", "-c", "read x; echo got $x"}, Input: InputPipe, Tag: []byte("mine")})
	if err != nil {
		t.Fatal(err)
	}
	_, ended, err := first.Exec(Exec{Box: "one", ID: "short", Argv: []string{"sh", "-c", "echo done; exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	<-first.exits
	ended.Close()
	first.Close()

	second := linkTo(t, time.Minute)
	state, err := second.State()
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Boxes) != 1 || state.Boxes[0].Pid != pid || len(state.Execs) != 2 {
		t.Fatalf("got %+v", state)
	}
	x, ended, err := second.Attach("short")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := io.ReadAll(ended.Output); string(out) != "done\n" || unix.WaitStatus(x.Wait).ExitStatus() != 7 {
		t.Errorf("%q, %+v", out, x)
	}
	ended.Close()
	if _, err := streams.Input.WriteString("word\n"); err != nil { // the old end is as good
		t.Fatal(err)
	}
	streams.Close()
	x, again, err := second.Attach("long")
	if err != nil || string(x.Tag) != "mine" {
		t.Fatalf("%+v, %v", x, err)
	}
	defer again.Close()
	if out, _ := io.ReadAll(again.Output); string(out) != "got word\n" {
		t.Errorf("got %q", out)
	}
	if x := <-second.exits; x.ID != "long" {
		t.Errorf("%+v has ended", x)
	}
	for _, id := range []string{"long", "short", "never"} {
		if err := second.Forget(id); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := second.Attach("long"); !errors.Is(err, ErrMissing) {
		t.Errorf("after it was forgotten: %v", err)
	}
}

func TestSandboxesOfALostServerEnd(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Millisecond)
	pid := s.open("one").Pid
	if _, streams, err := s.Exec(Exec{Box: "one", ID: "a", Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	} else {
		streams.Close()
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s.Close()
	awaitEnd(t, fd)
}

func awaitEnd(t *testing.T, pidfd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("process 1 is still there: %v", err)
		}
		return
	}
}

func TestTimeoutEndsTheCommand(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	x, _ := s.run(Exec{Box: "one", ID: "a", Argv: []string{"sleep", "1000"}, Timeout: time.Millisecond})
	if !x.TimedOut || unix.WaitStatus(x.Wait).Signal() != unix.SIGKILL {
		t.Errorf("%+v", x)
	}
}

func TestServerSeesTheEndOfASandbox(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	pid := s.open("one").Pid
	if _, streams, err := s.Exec(Exec{Box: "one", ID: "a", Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	} else {
		defer streams.Close()
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.gone
	if state, err := s.State(); err != nil || len(state.Boxes)+len(state.Execs) > 0 {
		t.Errorf("%+v, %v", state, err)
	}
	s.open("one") // the name is free
}

func TestRootIsThatOfTheSandbox(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	s.run(Exec{Box: "one", ID: "a", Argv: []string{"sh", "-c", "mkdir /tmp/x; echo inside > /tmp/x/note; ln -s / /tmp/out"}})
	dir, err := s.Root("one", "/tmp/x")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	data, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/note")
	if err != nil || string(data) != "inside\n" {
		t.Errorf("%q, %v", data, err)
	}
	for _, bad := range []string{"/tmp/out", "/tmp/missing", "/../..", "/tmp/out/etc"} {
		if dir, err := s.Root("one", bad); err == nil {
			t.Errorf("%s was opened: %s", bad, dir.Name())
			dir.Close()
		}
	}
}

func TestFrozenSandboxStandsStill(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	_, streams, err := s.Exec(Exec{Box: "one", ID: "a", Argv: []string{"cat"}, Input: InputPipe})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Close()
	err = s.Freeze("one")
	if err != nil && strings.Contains(err.Error(), limits.ErrNoFreezer.Error()) {
		t.Log("refused here: ", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.Input.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(streams.Output.Fd()), Events: unix.POLLIN}}, 200); n != 0 {
		t.Errorf("a frozen command answered: %d, %v", n, err)
	}
	if state, err := s.State(); err != nil || !state.Boxes[0].Frozen {
		t.Errorf("%+v, %v", state, err)
	}
	if err := s.Thaw("one"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(streams.Output, buf); err != nil || buf[0] != 'x' {
		t.Errorf("%q, %v", buf, err)
	}
	if err := s.Freeze("one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop("one", 0); err != nil { // what stands still can be ended
		t.Fatal(err)
	}
}

func TestTerminalOfAServer(t *testing.T) {
	startKeeper(t)
	s := linkTo(t, time.Minute)
	s.open("one")
	_, streams, err := s.Exec(Exec{Box: "one", ID: "a", Argv: []string{"sh", "-c", "stty size; tty"}, Terminal: &native.Terminal{Size: &unix.Winsize{Row: 11, Col: 22}}})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Close()
	out, _ := io.ReadAll(streams.Output) // ends with EIO
	if !strings.HasPrefix(string(out), "11 22\r\n/dev/pts/") {
		t.Errorf("got %q", out)
	}
	<-s.exits
}
