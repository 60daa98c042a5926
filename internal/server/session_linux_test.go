package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
)

// talk is a session in a sandbox of its own.
type talk struct {
	*site
	sandbox, session string
}

func newTalk(t *testing.T, shell string) *talk {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	n, err := s.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: id, Shell: shell, Env: map[string]string{"FROM": "outside"}})
	if err != nil {
		t.Fatal(err)
	}
	return &talk{s, id, n.GetId()}
}

func (k *talk) say(line string) *baileyv1.RunExecResponse {
	k.t.Helper()
	r, err := k.RunSession(ann, &baileyv1.RunSessionRequest{SandboxId: k.sandbox, SessionId: k.session, Command: line})
	if err != nil {
		k.t.Fatalf("%s: %v", line, err)
	}
	return r
}

func TestSessionKeepsItsState(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		k := newTalk(t, shell)
		for _, step := range []struct {
			line, out, err string
			code           int32
		}{
			{"mkdir -p d && cd d; export A=1; b=2", "", "", 0},
			{"pwd; echo $A $b $FROM", "/workspace/d\n1 2 outside\n", "", 0},
			{"printf 'no newline'", "no newline", "", 0},
			{"printf '\\000\\377\\001'; printf e >&2", "\x00\xff\x01", "e", 0},
			{"false", "", "", 1},
			{"cat <<END\none\ntwo $A\nEND", "one\ntwo 1\n", "", 0},
			{"cat <<'END'\n  \\keep $A\\\n\nEND\n", "  \\keep $A\\\n\n", "", 0},
			{"f() { echo in f: \"$1\"; return 7; }", "", "", 0},
			{"f 'a  b'", "in f: a  b\n", "", 7},
			{"", "", "", 0},
			{"# nothing", "", "", 0},
			{"echo '123 0'; echo 9 0", "123 0\n9 0\n", "", 0},
			{"read x; echo \"<$x>\"", "<>\n", "", 0},
			{"sleep 1000 & echo started", "started\n", "", 0},
			{"kill $!; wait $! 2>/dev/null; echo $?", "143\n", "", 0},
			{"if true; then\necho a\nfi\necho b", "a\nb\n", "", 0},
			{"(exit 9)", "", "", 9},
		} {
			r := k.say(step.line)
			if string(r.GetStdout()) != step.out || string(r.GetStderr()) != step.err || r.GetExit().GetCode() != step.code {
				t.Errorf("%s, %q: got %q, %q, %d", shell, step.line, r.GetStdout(), r.GetStderr(), r.GetExit().GetCode())
			}
		}
		if r := k.say("exit 5"); r.GetExit().GetCode() != 5 {
			t.Errorf("%s: exit: %v", shell, r.GetExit())
		}
		_, err := k.RunSession(ann, &baileyv1.RunSessionRequest{SandboxId: k.sandbox, SessionId: k.session, Command: "true"})
		wantReason(t, err, connect.CodeFailedPrecondition, "session_ended")
		n, err := k.GetSession(ann, &baileyv1.GetSessionRequest{SandboxId: k.sandbox, SessionId: k.session})
		if err != nil || n.GetAlive() || n.GetExit().GetCode() != 5 {
			t.Errorf("%v, %v", n, err)
		}
	}
}

// A syntax error is one of the command, and not the end of the shell.
func TestSessionSurvivesNonsense(t *testing.T) {
	k := newTalk(t, "bash")
	if r := k.say("if then fi ((("); r.GetExit().GetCode() == 0 || len(r.GetStderr()) == 0 {
		t.Errorf("got %v", r)
	}
	if r := k.say("echo on"); string(r.GetStdout()) != "on\n" {
		t.Errorf("got %v", r)
	}
}

func TestSessionsAreIndependent(t *testing.T) {
	k := newTalk(t, "")
	other, err := k.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: k.sandbox})
	if err != nil {
		t.Fatal(err)
	}
	k.say("cd /tmp; X=1")
	second := &talk{k.site, k.sandbox, other.GetId()}
	if r := second.say("pwd; echo $X"); string(r.GetStdout()) != "/workspace\n\n" {
		t.Errorf("got %v", r)
	}
	l, err := k.ListSessions(ann, &baileyv1.ListSessionsRequest{SandboxId: k.sandbox})
	if err != nil || len(l.GetSessions()) != 2 {
		t.Errorf("%v, %v", l, err)
	}
	if _, err := k.CloseSession(ann, &baileyv1.CloseSessionRequest{SandboxId: k.sandbox, SessionId: other.GetId()}); err != nil {
		t.Fatal(err)
	}
	if r := k.say("echo $X"); string(r.GetStdout()) != "1\n" {
		t.Errorf("got %v", r)
	}
}

// A line of many megabytes is bytes like any other; beyond the limit it is cut.
func TestSessionTakesLongLines(t *testing.T) {
	k := newTalk(t, "")
	const size = 20 << 20
	r := k.say("head -c 20971520 /dev/zero | tr '\\0' x; echo -n y >&2")
	if len(r.GetStdout()) != usualOutput || !r.GetStdoutTruncated() || string(r.GetStderr()) != "y" || r.GetStderrTruncated() {
		t.Errorf("got %d bytes of %d, cut %v; %q", len(r.GetStdout()), size, r.GetStdoutTruncated(), r.GetStderr())
	}
	long := strings.Repeat("z", 200_000)
	if r := k.say("echo " + long); !bytes.Equal(r.GetStdout(), []byte(long+"\n")) {
		t.Errorf("got %d bytes", len(r.GetStdout()))
	}
}

func TestSessionIsInterrupted(t *testing.T) {
	k := newTalk(t, "")
	r, err := k.RunSession(ann, &baileyv1.RunSessionRequest{SandboxId: k.sandbox, SessionId: k.session, Command: "X=kept; sleep 1000", Timeout: durationpb.New(50 * time.Millisecond)})
	if err != nil || !r.GetExit().GetTimedOut() || r.GetExit().GetCode() != 130 {
		t.Errorf("%v, %v", r, err)
	}
	if r := k.say("echo $X"); string(r.GetStdout()) != "kept\n" {
		t.Errorf("got %v", r)
	}
	ctx, cancel := context.WithCancel(ann)
	cancel()
	if _, err := k.RunSession(ctx, &baileyv1.RunSessionRequest{SandboxId: k.sandbox, SessionId: k.session, Command: "sleep 1000"}); err == nil {
		t.Error("a client that is gone was answered")
	}
	if r := k.say("echo $X"); string(r.GetStdout()) != "kept\n" { // after the other was interrupted
		t.Errorf("got %v", r)
	}
}

func TestIdleSessionSurvivesAnInterrupt(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		k := newTalk(t, shell)
		k.say("X=kept")
		for range 3 {
			if _, err := k.InterruptSession(ann, &baileyv1.InterruptSessionRequest{SandboxId: k.sandbox, SessionId: k.session}); err != nil {
				t.Fatal(err)
			}
		}
		if r := k.say("echo $X"); string(r.GetStdout()) != "kept\n" {
			t.Errorf("%s: got %v", shell, r)
		}
	}
}

func TestSessionGoesOnAfterARestart(t *testing.T) {
	k := newTalk(t, "")
	k.say("cd /tmp; X=kept")
	k.restart()
	if r := k.say("pwd; echo $X"); string(r.GetStdout()) != "/tmp\nkept\n" {
		t.Errorf("got %v", r)
	}
}

// The input of a command is what was sent with it, whatever bytes that are, and
// not what the next command is.
func TestSessionCommandsHaveInput(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		k := newTalk(t, shell)
		tell := func(line, stdin string) string {
			t.Helper()
			r, err := k.RunSession(ann, &baileyv1.RunSessionRequest{SandboxId: k.sandbox, SessionId: k.session, Command: line, Stdin: []byte(stdin)})
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return string(r.GetStdout()) + string(r.GetStderr())
		}
		large := strings.Repeat("\x00\xff\n", 1<<20)
		for _, step := range []struct{ line, stdin, want string }{
			{"read x; read y; cd /tmp", "one\ntwo\nthree", ""},
			{"echo $x $y $PWD; cat", "1 0\nexit", "one two /tmp\n1 0\nexit"},
			{"cat", "", ""},
			{"cat", large, large},
			{"cat >/dev/null; false", "x", ""},
			{"echo $?; ls -A", "unread", "0\n" + ".bailey-input"},
			{"ls -A", "", ""},
		} {
			if got := tell(step.line, step.stdin); got != step.want && (step.stdin != "unread" || !strings.HasPrefix(got, step.want)) {
				t.Errorf("%s: %s: got %.60q, want %.60q", shell, step.line, got, step.want)
			}
		}
	}
}

func TestSessionTellsWhatItsCommandsUsed(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		k := newTalk(t, shell)
		used := func(line string) time.Duration {
			u := k.say(line).GetExit().GetRusage()
			return u.GetUserTime().AsDuration() + u.GetSystemTime().AsDuration()
		}
		first := used(busy)
		if first < 5*time.Millisecond || first > time.Minute {
			t.Errorf("%s: %v of processors", shell, first)
		}
		if second := used(":"); second < 0 || second > first {
			t.Errorf("%s: %v of processors for nothing, after %v", shell, second, first)
		}
	}
}

func TestSessionTellsWhatItsCommandsWrite(t *testing.T) {
	const size = 1 << 20
	write := fmt.Sprintf("head -c %d /dev/zero > file", size)
	for _, shell := range []string{"bash", "sh"} {
		k := newTalk(t, shell)
		if u := k.run(k.sandbox, write).GetExit().GetRusage(); u.GetWrittenBytes() < size {
			t.Skip("the sandbox's files are not on a disk")
		}
		written := func(line string) int64 { return k.say(line).GetExit().GetRusage().GetWrittenBytes() }
		for i, test := range []struct {
			line string
			want bool
		}{{write, true}, {":", false}, {write, true}, {"(" + write + ")", true}} {
			if got := written(test.line); got >= size != test.want {
				t.Errorf("%s: line %d, %s: %d bytes were written", shell, i, test.line, got)
			}
		}
		k.restart()
		written(":") // what came before is not known
		if got := written(write); got < size {
			t.Errorf("%s: %d bytes were written after a restart", shell, got)
		}
	}
}

func TestWhatTheKernelSaysOfAProcessIsRead(t *testing.T) {
	if got := innermost("Name:\tsh\nNSpid:\t4711\t12\t3\nVmHWM:\t1 kB\n"); got != 3 {
		t.Errorf("got process %d", got)
	}
	if read, written := disk("rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n"); read != 4096 || written != 8192 {
		t.Errorf("got %d and %d", read, written)
	}
	for _, text := range []string{"", "NSpid:\n", "read_bytes\n"} {
		if read, written := disk(text); innermost(text) != 0 || read != 0 || written != 0 {
			t.Errorf("%q: got %d, %d and %d", text, innermost(text), read, written)
		}
	}
}

func TestStatusOfASessionIsRead(t *testing.T) {
	for _, test := range []struct {
		first, second string
		want          status
		ok            bool
	}{
		{"7 3 0m0.250s 1m2.000s", "0m1.000s 0m0.500s", status{7, 3, keeper.Spent{User: 1250 * time.Millisecond, System: 62500 * time.Millisecond}}, true},
		{"7 0 0m0,250s 0m0,000s", "0m0,000s 0m0,000s", status{7, 0, keeper.Spent{User: 250 * time.Millisecond}}, true},
		{"7 0", "", status{}, false},
		{"a b 0m0s 0m0s", "0m0s 0m0s", status{}, false},
		{"7 0 0m0s 0m0s", "nothing", status{}, false},
		{"7 0 x 0m0s", "0m0s 0m0s", status{}, false},
	} {
		got, err := parseStatus(test.first, func() string { return test.second })
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%q: %+v, %v", test.first, got, err)
		}
	}
}
