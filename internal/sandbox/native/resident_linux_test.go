package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func openResident(t testing.TB, s *spec.Spec) *Resident {
	t.Helper()
	requireSandbox(t)
	r, err := Open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func line(s *spec.Spec, text string, streams [3]*os.File) Launch {
	return Launch{Exec: []string{"/bin/sh"}, Argv: []string{"sh", "-c", text}, Env: s.Env, Umask: -1, Streams: streams}
}

// collected runs a line in a resident sandbox and returns how it ended and what
// it wrote.
func (r *Resident) collected(t testing.TB, text string) result {
	t.Helper()
	streams, collect := outputTo(t)
	j, err := r.Start(line(r.spec, text, streams))
	closeStreams(streams)
	if err != nil {
		t.Fatal(err)
	}
	st := j.Wait()
	return result{st, collect()}
}

func closeStreams(streams [3]*os.File) {
	for _, f := range streams {
		_ = f.Close()
	}
}

func TestResidentTellsHowEachCommandEnds(t *testing.T) {
	r := openResident(t, newSpec(t, t.TempDir(), "/bin/true"))
	for _, status := range []int{0, 1, 42, 255} {
		r.collected(t, fmt.Sprint("exit ", status)).exit(t, status)
	}
	if got := r.collected(t, "kill -TERM $$"); got.Wait.Signal() != unix.SIGTERM || got.Killed {
		t.Errorf("got %+v", got)
	}
	if got := r.collected(t, "echo out; echo err >&2"); got.out != "out\nerr\n" {
		t.Errorf("output %q", got.out)
	}
	// What one leaves behind the next finds.
	r.collected(t, "echo kept > /tmp/file").exit(t, 0)
	if got := r.collected(t, "cat /tmp/file"); got.out != "kept\n" {
		t.Errorf("the private directory holds %q", got.out)
	}
}

func TestResidentRunsManyCommandsAtOnce(t *testing.T) {
	r := openResident(t, newSpec(t, t.TempDir(), "/bin/true"))
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			for k := range 4 {
				want := (i*4 + k) % 256
				if got := r.collected(t, fmt.Sprintf("(true &); echo %d; exit %d", i, want)); got.Wait.ExitStatus() != want || got.out != fmt.Sprintln(i) {
					t.Errorf("command %d: status %d, output %q, want %d", i, got.Wait.ExitStatus(), got.out, want)
				}
			}
		})
	}
	group.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.inner) != 0 || len(r.free) != len(r.jobs) {
		t.Errorf("%d commands are still known, %d of %d slots free", len(r.inner), len(r.free), len(r.jobs))
	}
}

func TestResidentSaysWhatCannotBeStarted(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	l := line(s, "", nulls(t))
	l.Exec = []string{"/no/such/program", "/etc/passwd/x"}
	var failed *ExecError
	if _, err := r.Start(l); !errors.As(err, &failed) || failed.Errno != unix.ENOENT {
		t.Errorf("no program: %v", err)
	}
	l.Exec = []string{s.Dir}
	if _, err := r.Start(l); !errors.As(err, &failed) || failed.Errno != unix.EACCES {
		t.Errorf("a directory: %v", err)
	}
	l = line(s, "exit 7", nulls(t))
	l.Dir = "/no/such/directory"
	if _, err := r.Start(l); !errors.Is(err, unix.ENOENT) || errors.As(err, &failed) {
		t.Errorf("no directory: %v", err)
	}
	l.Dir = "/"
	l.Env = []string{strings.Repeat("x", 9<<20)}
	if _, err := r.Start(l); !errors.Is(err, unix.E2BIG) {
		t.Errorf("9 MB of environment: %v", err)
	}
	l.Env = []string{strings.Repeat("x", 1<<20)}
	if _, err := r.Start(l); !errors.As(err, &failed) || failed.Errno != unix.E2BIG {
		t.Errorf("a word of 1 MB: %v", err)
	}
	r.collected(t, "exit 3").exit(t, 3)
}

func TestResidentTakesDirectoryMaskAndArguments(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	streams, collect := outputTo(t)
	l := line(s, `pwd; umask; printf '%s|' "$@"; echo $NEW`, streams)
	l.Dir, l.Umask, l.Env = "/usr", 0o027, append(l.Env, "NEW=value")
	for i := range 3000 {
		l.Argv = append(l.Argv, strings.Repeat("a", i%200))
	}
	want := "/usr\n0027\n" + strings.Join(l.Argv[4:], "|") + "|value\n"
	j, err := r.Start(l)
	closeStreams(streams)
	if err != nil {
		t.Fatal(err)
	}
	j.Wait()
	if got := collect(); got != want {
		t.Errorf("got %d bytes, want %d: %.200q", len(got), len(want), got)
	}
}

func TestResidentPassesSignalsOn(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	other, err := r.Start(line(s, "exec sleep 1000", nulls(t)))
	if err != nil {
		t.Fatal(err)
	}
	j, err := r.Start(line(s, "exec sleep 1000", nulls(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		sig  unix.Signal
		want func(State) bool
	}{
		{unix.SIGTSTP, func(st State) bool { return st.Stopped() && st.Wait.StopSignal() == unix.SIGTSTP }},
		{unix.SIGCONT, nil},
		{unix.SIGTERM, func(st State) bool { return st.Wait.Signal() == unix.SIGTERM && !st.Killed }},
	} {
		if err := j.Signal(step.sig); err != nil {
			t.Fatal(err)
		}
		if step.want != nil {
			if st := j.Wait(); !step.want(st) {
				t.Errorf("%v: got %+v", step.sig, st)
			}
		}
	}
	if err := j.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v", err)
	}
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	if st := other.Wait(); st.Wait.Signal() != unix.SIGKILL || st.Killed {
		t.Errorf("the other: got %+v", st)
	}
}

func TestResidentEndsWithEverythingInIt(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	requireSandbox(t)
	r, err := Open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	streams, collect := outputTo(t)
	j, err := r.Start(line(s, "sleep 1000 & exec sleep 1000", streams))
	closeStreams(streams)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if st := j.Wait(); !st.Killed {
		t.Errorf("got %+v", st)
	}
	collect() // ends only when nobody holds the pipe
	if _, err := r.Start(line(s, "exit 0", nulls(t))); !errors.Is(err, ErrEnded) {
		t.Errorf("a command after the end: %v", err)
	}
	if _, err := os.Stat(fmt.Sprint("/proc/", r.Pid)); err == nil {
		t.Error("process 1 is still there")
	}
	r.Close() // a second time does nothing
}

func TestResidentGivesATerminalToEachCommand(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	l := line(s, "tty; stty size; ps -o tpgid= -p $$ | tr -d ' '; echo $$; kill -TSTP $$; echo went on; exit 5", nulls(t))
	l.Terminal = &Terminal{Streams: [3]bool{true, true, true}, Size: &unix.Winsize{Row: 33, Col: 77}}
	j, err := r.Start(l)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Terminal.Close()
	shown := make(chan string)
	go func() {
		out, _ := io.ReadAll(j.Terminal) // ends with an error when the other end is closed
		shown <- string(out)
	}()
	if st := j.Wait(); !st.Stopped() || st.Wait.StopSignal() != unix.SIGTSTP {
		t.Errorf("got %+v, want a stop", st)
	}
	if err := j.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	(result{State: j.Wait()}).exit(t, 5)
	out := <-shown
	words := strings.Fields(out)
	if len(words) < 7 || words[0] != "/dev/pts/0" || words[1] != "33" || words[2] != "77" || words[3] != words[4] || words[6] != "on" {
		t.Errorf("the terminal showed %q", out)
	}
}

func TestKilledSessionTakesItsCommandAlong(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	l := line(s, "trap '' HUP TERM INT; while :; do sleep 0.01; done", nulls(t))
	l.Terminal = &Terminal{Streams: [3]bool{true, true, true}}
	j, err := r.Start(l)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Terminal.Close()
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	if st := j.Wait(); st.Wait.Signal() != unix.SIGKILL {
		t.Errorf("got %+v", st)
	}
	deadline := time.Now().Add(10 * time.Second)
	for r.collected(t, fmt.Sprintf("kill -0 %d", j.Pid())).Wait.ExitStatus() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the command lives on")
		}
	}
}

func TestResidentHasOneProcess(t *testing.T) {
	r := openResident(t, newSpec(t, t.TempDir(), "/bin/true"))
	if got := r.collected(t, "set -- /proc/[0-9]*; echo $#; cat /proc/1/cmdline | tr '\\0' ' '; cat /proc/1/environ 2>/dev/null; ls -l /proc/1/fd 2>&1 | grep -c '>'"); got.out != "2\nbailey-init 0\n" { // the other is the shell
		t.Errorf("got %q", got.out)
	}
}

func TestResidentsProcessesHaveOnlyTheirStreams(t *testing.T) {
	s := newSpec(t, t.TempDir(), "/bin/true")
	r := openResident(t, s)
	if got := r.collected(t, "ls /proc/self/fd"); got.out != "0\n1\n2\n3\n" { // 3 is what ls reads
		t.Errorf("descriptors %q", got.out)
	}
}

// BenchmarkResidentCommand is to be compared with BenchmarkForkAndExec.
func BenchmarkResidentCommand(b *testing.B) {
	testenv.Requires(b, testenv.UserNamespaces)
	s := newSpec(b, b.TempDir(), "/bin/true")
	r := openResident(b, s)
	null := openNull(b)
	l := Launch{Exec: []string{"/bin/true"}, Argv: []string{"true"}, Env: s.Env, Umask: -1, Streams: [3]*os.File{null, null, null}}
	for b.Loop() {
		j, err := r.Start(l)
		if err != nil {
			b.Fatal(err)
		}
		j.Wait()
	}
}

func BenchmarkForkAndExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// begun is a sandbox that is begun before its Spec is known.
func begun(t *testing.T) (n *Nascent, pid int) {
	t.Helper()
	requireSandbox(t)
	n, err := BeginResident()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Abandon)
	return n, n.embryo.proc.Pid
}

func TestResidentCanBeBegunBeforeItsSpecIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		same   bool
	}{
		"as foreseen":         {func(*spec.Spec) {}, true},
		"another environment": {func(s *spec.Spec) { s.Env = append(s.Env, "WHO=me") }, true},
		"another network":     {func(s *spec.Spec) { s.Network = spec.NetworkHost }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, pid := begun(t)
			s := newSpec(t, t.TempDir(), "/bin/true")
			c.change(s)
			r, err := Open(s, Options{Nascent: n})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			if (r.Pid == pid) != c.same {
				t.Errorf("process 1 is %d, %d was begun; want the same: %v", r.Pid, pid, c.same)
			}
			if got := r.collected(t, "exit 7"); got.Wait.ExitStatus() != 7 {
				t.Errorf("got %+v", got)
			}
			if !c.same && unix.Kill(pid, 0) != unix.ESRCH {
				t.Errorf("process %d, which was begun, is still there", pid)
			}
		})
	}
}

func TestAbandonedResidentLeavesNothing(t *testing.T) {
	n, pid := begun(t)
	n.Abandon()
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("process %d: got %v, want %v", pid, err, unix.ESRCH)
	}
	n.Abandon() // once more does nothing
}
