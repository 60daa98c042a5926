package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// This program is the one that hands over, and the one that is handed to.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Word:
		os.Exit(Main([]Engine{open{}, slow{}, slow{late: true}}, os.Args[2:]))
	case os.Args[0] == "hand-over":
		s := spec.Spec{Runtime: os.Args[1], Argv: os.Args[2:], Exec: os.Args[2:3], Network: spec.NetworkHost, TimeoutMillis: 60_000}
		fmt.Fprintln(os.Stderr, HandOver("/proc/self/exe", Order{Spec: s, Quiet: true, Origins: spec.Origins{
			{Key: "filesystem.denyRead", Entry: "x"}: {File: "bailey.jsonc", Line: 2, Column: 3},
		}}))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// open is an engine without walls.
type open struct{}

func (open) Name() string { return "open" }

func (open) Refuses(s *spec.Spec) error {
	var reasons []*spec.Unsupported
	if s.Argv[0] == "refused" {
		reasons = append(reasons, Refuse("open", "filesystem.denyRead", "x", "has no walls"))
	}
	return Refused(reasons)
}

func (open) Start(s *spec.Spec, o Options) (Command, error) {
	c := exec.Command(s.Argv[0], s.Argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = o.Streams[0], o.Streams[1], o.Streams[2]
	if err := c.Start(); err != nil {
		errno := unix.ENOENT
		errors.As(err, &errno)
		return nil, &native.ExecError{Name: s.Argv[0], Errno: errno}
	}
	return running{c}, nil
}

type running struct{ *exec.Cmd }

func (r running) Wait() native.State {
	_ = r.Cmd.Wait() // how it ended is in its state
	return native.State{Wait: unix.WaitStatus(r.ProcessState.Sys().(syscall.WaitStatus))}
}

func (r running) Signal(sig unix.Signal) error { return r.Process.Signal(sig) }

func (r running) Pid() int { return r.Process.Pid }

func (r running) Terminal() *os.File { return nil }

func (r running) Used() limits.Usage { return limits.Unknown() }

func (r running) Listeners() []native.Listener { return nil }

func TestOrderIsCarriedOutByItsEngine(t *testing.T) {
	for _, test := range []struct {
		name   string
		argv   []string
		status int
		stdout string
		stderr string
	}{
		{"runs", []string{"open", "/bin/sh", "-c", "cat; exit 42"}, 42, "in", ""},
		{"bytes that are no text", []string{"open", "/bin/echo", "\xff\xfe"}, 0, "\xff\xfe\n", ""},
		{"refused", []string{"open", "refused"}, foreground.Own, "", "bailey: bailey.jsonc:2:3: filesystem.denyRead x: the open runtime has no walls"},
		{"missing", []string{"open", "/no/such/program"}, foreground.NotFound, "", "no such file"},
		{"not runnable", []string{"open", "/etc/passwd"}, foreground.NotRunnable, "", "permission denied"},
		{"another engine", []string{"none", "/bin/true"}, foreground.Own, "", "runtime none: this baileyd does not have it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			c := exec.Command("/proc/self/exe")
			c.Args = append([]string{"hand-over"}, test.argv...)
			c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in"), &stdout, &stderr
			_ = c.Run() // its status follows
			if got := c.ProcessState.ExitCode(); got != test.status || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("status %d, stdout %q, stderr %q; want %d, %q, %q", got, stdout.String(), stderr.String(), test.status, test.stdout, test.stderr)
			}
		})
	}
}

func TestWhatIsNoOrderIsRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"x"}, {"1"}, {"3", "4"}, {"-1"}} {
		if o, err := receive(args); err == nil || !reflect.DeepEqual(o, Order{}) {
			t.Errorf("%q: got %+v, %v", args, o, err)
		}
	}
}
