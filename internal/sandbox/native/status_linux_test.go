package native

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestEveryExitStatusIsReported(t *testing.T) {
	requireSandbox(t)
	for status := range 256 {
		run(t, shell(t, fmt.Sprint("exit ", status))).exit(t, status)
	}
}

func TestEveryDeadlySignalIsReported(t *testing.T) {
	requireSandbox(t)
	for sig := unix.Signal(1); sig <= 64; sig++ {
		s := shell(t, fmt.Sprintf("kill -%d $$; exit 77", sig))
		switch sig {
		case unix.SIGCHLD, unix.SIGURG, unix.SIGWINCH, unix.SIGCONT:
			run(t, s).exit(t, 77)
		case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			p := start(t, s, Options{Streams: nulls(t)})
			if st := p.Wait(); !st.Stopped() || st.Wait.StopSignal() != sig {
				t.Errorf("%v: got %#x, want a stop", sig, uint32(st.Wait))
			}
			if err := p.Signal(unix.SIGCONT); err != nil {
				t.Error(err)
			}
			(result{State: p.Wait()}).exit(t, 77)
		default:
			if got := run(t, s); got.Killed || !got.Wait.Signaled() || got.Wait.Signal() != sig {
				t.Errorf("signal %d: got %#x (killed %v), output %q", sig, uint32(got.Wait), got.Killed, got.out)
			}
		}
	}
}

func TestCoreFlagIsThatOfTheCommand(t *testing.T) {
	requireSandbox(t)
	const line = "ulimit -S -c $(ulimit -H -c); kill -ABRT $$"
	outside := exec.Command("/bin/sh", "-c", line)
	outside.Dir = t.TempDir()
	_ = outside.Run()
	want := outside.ProcessState.Sys().(syscall.WaitStatus)
	if got := run(t, shell(t, line)); uint32(got.Wait) != uint32(want) {
		t.Errorf("inside %#x, outside %#x", uint32(got.Wait), uint32(want))
	}
	none := shell(t, "ulimit -c 0; kill -ABRT $$")
	if got := run(t, none); got.Wait.CoreDump() || got.Wait.Signal() != unix.SIGABRT {
		t.Errorf("without cores: got %#x", uint32(got.Wait))
	}
}

func TestArgumentsAndEnvironmentArriveExactly(t *testing.T) {
	requireSandbox(t)
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprint("argument ", i)
	}
	for name, args := range map[string][]string{
		"none":    {},
		"empty":   {"", "", ""},
		"large":   {strings.Repeat("x", 100<<10), "", strings.Repeat("y", 100<<10)},
		"many":    many,
		"strange": {"a b", "'", "\n", "\xff\xfe", "-c", "*", "~", "$HOME", "\\"},
	} {
		t.Run(name, func(t *testing.T) {
			s := probeSpec(t, append([]string{"args"}, args...)...)
			s.Env = append([]string{noRaceSleep, "EMPTY=", "PATH=/bin", "STRANGE=\xff = \n"}, many[:100]...)
			want := fmt.Sprintln(len(args), digest(args), digest(s.Env))
			if got := run(t, s).exit(t, 0).out; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestTooManyArgumentsAreAnError(t *testing.T) {
	requireSandbox(t)
	s := probeSpec(t, "args", strings.Repeat("x", 1<<20))
	err := launchError(t, s, nulls(t))
	if err.Error() != "launch: execute process 1: argument list too long" {
		t.Errorf("got %v", err)
	}
}

func expectLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); got != want+"\n" {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func TestStopAndContinueAreReported(t *testing.T) {
	requireSandbox(t)
	p := start(t, shell(t, "exec sleep 1000"), Options{Streams: nulls(t)})
	for range 3 {
		if err := p.Signal(unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		if st := p.Wait(); !st.Stopped() || st.Wait.StopSignal() != unix.SIGTSTP {
			t.Fatalf("got %#x, want a stop", uint32(st.Wait))
		}
		if err := p.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		// A stop signal wipes out a continue that is still on its way.
		if msg, ok := p.read(); !ok || !unix.WaitStatus(msg.what).Continued() {
			t.Fatalf("got %#x, %v, want a continue", msg.what, ok)
		}
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if st := p.Wait(); st.Wait.Signal() != unix.SIGTERM || st.Killed {
		t.Errorf("got %+v", st)
	}
}

// The command starts a child: a signal for the job reaches both, one for the
// process only the command.
func TestSignalsForTheJobReachItsGroup(t *testing.T) {
	requireSandbox(t)
	for _, test := range []struct {
		sig   unix.Signal
		group bool
	}{
		{unix.SIGHUP, true},
		{unix.SIGINT, true},
		{unix.SIGQUIT, true},
		{unix.SIGWINCH, true},
		{unix.SIGCONT, true},
		{unix.SIGTERM, false},
		{unix.SIGUSR1, false},
		{unix.SIGUSR2, false},
		{unix.SIGALRM, false},
		{unix.Signal(40), false},
	} {
		t.Run(test.sig.String(), func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s := probeSpec(t, "signals", strconv.Itoa(int(test.sig)), strconv.FormatBool(test.group))
			p := start(t, s, Options{Streams: [3]*os.File{openNull(t), w, w}})
			w.Close()
			out := bufio.NewReader(r)
			expectLine(t, out, "ready")
			if err := p.Signal(test.sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			want := "command\n"
			if test.group {
				want += "child\n"
			}
			if string(rest) != want {
				t.Errorf("got %q, want %q", rest, want)
			}
			(result{State: p.Wait()}).exit(t, 0)
		})
	}
}

func TestSignalsFromInsideDoNotReachProcessOne(t *testing.T) {
	requireSandbox(t)
	got := run(t, shell(t, `for s in HUP INT QUIT ILL ABRT FPE KILL SEGV PIPE ALRM TERM USR1 USR2 STOP TSTP TTIN TTOU 64; do kill -$s 1 || echo $s; done; echo alive`))
	if got.exit(t, 0).out != "alive\n" {
		t.Errorf("got %q", got.out)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	requireSandbox(t)
	run(t, probeSpec(t, "orphans", fmt.Sprint(testenv.Count(1000, 20000)))).exit(t, 0)
}

func TestWhatRunsInTheBackgroundEndsWithTheCommand(t *testing.T) {
	requireSandbox(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := start(t, shell(t, "setsid sh -c 'trap : TERM HUP INT; while :; do sleep 1000; done' & sleep 1000 & exit 4"),
		Options{Streams: [3]*os.File{openNull(t), w, w}})
	w.Close()
	(result{State: p.Wait()}).exit(t, 4)
	// Nobody holds the other end when Wait returns.
	if err := unix.SetNonblock(int(r.Fd()), true); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(int(r.Fd()), make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("somebody still holds stdout: read gave %d, %v", n, err)
	}
}
