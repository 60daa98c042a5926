package server

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

func (s *site) exec1(id string, c *baileyv1.Command) *baileyv1.RunExecResponse {
	s.t.Helper()
	r, err := s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: c})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *site) begin1(id string, c *baileyv1.Command) string {
	s.t.Helper()
	e, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: id, Command: c})
	if err != nil {
		s.t.Fatal(err)
	}
	return e.GetId()
}

func TestCommandsAreBytes(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Env: map[string]string{"A": "sandbox", "B": "sandbox"}})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, test := range map[string]struct {
		command *baileyv1.Command
		out     string
		code    int32
		signal  string
	}{
		"argv":       {&baileyv1.Command{Argv: []string{"printf", "%s|", "a b", "", "$HOME", "*"}}, "a b||$HOME|*|", 0, ""},
		"stdin":      {&baileyv1.Command{Argv: []string{"cat"}, Stdin: every}, string(every), 0, ""},
		"no stdin":   {&baileyv1.Command{Argv: []string{"cat"}}, "", 0, ""},
		"env":        {&baileyv1.Command{Shell: "echo $A $B", Env: map[string]string{"B": "command"}}, "sandbox command\n", 0, ""},
		"cwd":        {&baileyv1.Command{Shell: "pwd", Cwd: "/tmp"}, "/tmp\n", 0, ""},
		"signal":     {&baileyv1.Command{Shell: "kill -USR1 $$"}, "", 138, "SIGUSR1"},
		"missing":    {&baileyv1.Command{Argv: []string{"no-such-program"}}, "", 127, ""},
		"no program": {&baileyv1.Command{Argv: []string{"/etc/passwd"}}, "", 126, ""},
		"terminal":   {&baileyv1.Command{Shell: "stty size; test -t 0 -a -t 1 -a -t 2 && echo yes", Terminal: &baileyv1.TerminalSize{Rows: 12, Columns: 34}}, "12 34\r\nyes\r\n", 0, ""},
	} {
		r := s.exec1(id, test.command)
		if string(r.GetStdout()) != test.out || r.GetExit().GetCode() != test.code || r.GetExit().GetSignal() != test.signal {
			t.Errorf("%s: got %q, %q, %v", name, r.GetStdout(), r.GetStderr(), r.GetExit())
		}
		if failed := r.GetExit().GetError() != ""; failed != (test.code >= 126 && test.signal == "") {
			t.Errorf("%s: error %q", name, r.GetExit().GetError())
		}
	}
	if l, err := s.ListExecs(ann, &baileyv1.ListExecsRequest{SandboxId: id}); err != nil || len(l.GetExecs()) > 0 {
		t.Errorf("commands that were answered are remembered: %v, %v", l, err)
	}
}

// busy uses processor time, and much memory, in children.
const busy = "(i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done); dd if=/dev/zero of=/dev/null bs=64M count=1 status=none"

func TestCommandsTellWhatTheyUsed(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for name, c := range map[string]*baileyv1.Command{"pipes": {Shell: busy}, "terminal": {Shell: busy, Terminal: &baileyv1.TerminalSize{Rows: 1, Columns: 1}}} {
		u := s.exec1(id, c).GetExit().GetRusage()
		if cpu := u.GetUserTime().AsDuration() + u.GetSystemTime().AsDuration(); cpu < 5*time.Millisecond || cpu > time.Minute || u.GetUserTime().AsDuration() == 0 {
			t.Errorf("%s: %v of processors: %v", name, cpu, u)
		}
		if most := u.GetMaxRssBytes(); most < 64<<20 || most > 200<<20 {
			t.Errorf("%s: %d bytes of memory", name, most)
		}
		if u.GetWallTime().AsDuration() <= 0 {
			t.Errorf("%s: no time", name)
		}
	}
	// What others used is not in it.
	if u := s.run(id, "true").GetExit().GetRusage(); u.GetMaxRssBytes() <= 0 || u.GetMaxRssBytes() > 32<<20 {
		t.Errorf("one that does nothing: %v", u)
	}
}

func TestBadCommandsAreRefused(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for name, c := range map[string]*baileyv1.Command{
		"nothing":  {},
		"both":     {Argv: []string{"true"}, Shell: "true"},
		"empty":    {Argv: []string{""}},
		"NUL":      {Argv: []string{"echo", "a\x00b"}},
		"variable": {Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}},
		"timeout":  {Argv: []string{"true"}, Timeout: durationpb.New(-1)},
	} {
		if _, err := s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: c}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What does not fit is cut, and the command goes on.
func TestOutputIsBounded(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Resources: &baileyv1.Resources{OutputBytes: 100_000}})
	line := "head -c 5000000 /dev/zero; echo err >&2"
	r := s.exec1(id, &baileyv1.Command{Shell: line})
	if len(r.GetStdout()) != 100_000 || !r.GetStdoutTruncated() || r.GetStderrTruncated() || r.GetExit().GetCode() != 0 {
		t.Errorf("%d bytes, %v", len(r.GetStdout()), r.GetExit())
	}
	e := s.begin1(id, &baileyv1.Command{Shell: line, OutputLimitBytes: 1000})
	out, exit := s.collect(id, e, 0)
	if len(out) != 1000 || exit.GetCode() != 0 {
		t.Errorf("%d bytes, %v", len(out), exit)
	}
	d, err := s.GetExec(ann, &baileyv1.GetExecRequest{SandboxId: id, ExecId: e})
	if err != nil || !d.GetOutputTruncated() || d.GetStdoutBytes() != 5_000_000 || d.GetStderrBytes() != 4 {
		t.Errorf("%v, %v", d, err)
	}
}

func TestReadersAttachWhereTheyWere(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	e := s.begin1(id, &baileyv1.Command{Shell: "seq 1 200000", OpenStdin: true})
	whole, _ := s.collect(id, e, 0)
	for _, from := range []int64{0, 1, 65536, int64(len(whole)) - 1, int64(len(whole)), int64(len(whole)) + 10} {
		part, exit := s.collect(id, e, from)
		if want := whole[min(from, int64(len(whole))):]; part != want || exit == nil {
			t.Errorf("from %d: %d bytes, want %d", from, len(part), len(want))
		}
	}
	if !strings.HasSuffix(whole, "\n199999\n200000\n") {
		t.Errorf("got %d bytes", len(whole))
	}
}

func TestInputIsWrittenOnce(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	e := s.begin1(id, &baileyv1.Command{Argv: []string{"cat"}, OpenStdin: true})
	write := func(offset int64, data string, last bool) (int64, error) {
		r, err := s.WriteStdin(ann, &baileyv1.WriteStdinRequest{SandboxId: id, ExecId: e, Offset: offset, Data: []byte(data), Close: last})
		return r.GetOffset(), err
	}
	for _, step := range []struct {
		offset int64
		data   string
		want   int64
	}{{0, "abc", 3}, {0, "abc", 3}, {1, "bcde", 5}, {-1, "f", 6}} {
		if got, err := write(step.offset, step.data, false); got != step.want || err != nil {
			t.Errorf("%v: %d, %v", step, got, err)
		}
	}
	_, err := write(10, "x", false)
	wantReason(t, err, connect.CodeOutOfRange, "gap")
	if _, err := write(6, "", true); err != nil {
		t.Error(err)
	}
	if out, _ := s.collect(id, e, 0); out != "abcdef" {
		t.Errorf("got %q", out)
	}
	_, err = write(6, "x", false)
	wantReason(t, err, connect.CodeFailedPrecondition, "input_closed")
}

func TestCommandsAreEnded(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	r := s.exec1(id, &baileyv1.Command{Shell: "sleep 1000 | cat", Timeout: durationpb.New(20 * time.Millisecond)})
	if !r.GetExit().GetTimedOut() || r.GetExit().GetSignal() != "SIGKILL" {
		t.Errorf("timeout: %v", r.GetExit())
	}
	e := s.begin1(id, &baileyv1.Command{Shell: "trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.01; done"})
	x, err := s.exec(ann, id, e)
	if err != nil {
		t.Fatal(err)
	}
	for { // until it is ready
		if n, more, _ := x.out.after(0, make([]byte, 1)); n == 0 {
			<-more
			continue
		}
		break
	}
	if _, err := s.SignalExec(ann, &baileyv1.SignalExecRequest{SandboxId: id, ExecId: e, Signal: "SIGTERM"}); err != nil {
		t.Fatal(err)
	}
	if out, exit := s.collect(id, e, 0); out != "ready\nbye\n" || exit.GetCode() != 6 {
		t.Errorf("signal: %q, %v", out, exit)
	}
	_, err = s.SignalExec(ann, &baileyv1.SignalExecRequest{SandboxId: id, ExecId: e, Signal: "SIGNONE"})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_signal")

	ctx, cancel := context.WithCancel(ann)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := s.RunExec(ctx, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{"sleep", "1000"}}}); err == nil {
		t.Error("a client that is gone was answered")
	}
}

// A process that is left in the background does not keep its client waiting.
func TestBackgroundProcessKeepsNobodyWaiting(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	if r := s.run(id, "sleep 1000 & echo left"); string(r.GetStdout()) != "left\n" {
		t.Errorf("got %v", r)
	}
	e := s.begin1(id, &baileyv1.Command{Shell: "sleep 1000 & echo left"})
	if out, exit := s.collect(id, e, 0); out != "left\n" || exit.GetCode() != 0 {
		t.Errorf("%q, %v", out, exit)
	}
}

func TestTerminalIsResizedAndWrittenTo(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	e := s.begin1(id, &baileyv1.Command{Shell: "stty -echo; read x; stty size; echo $x", Terminal: &baileyv1.TerminalSize{Rows: 1, Columns: 2}})
	if _, err := s.ResizeTerminal(ann, &baileyv1.ResizeTerminalRequest{SandboxId: id, ExecId: e, Size: &baileyv1.TerminalSize{Rows: 40, Columns: 50}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteStdin(ann, &baileyv1.WriteStdinRequest{SandboxId: id, ExecId: e, Offset: -1, Data: []byte("typed\n")}); err != nil {
		t.Fatal(err)
	}
	if out, exit := s.collect(id, e, 0); !strings.HasSuffix(out, "40 50\r\ntyped\r\n") {
		t.Errorf("got %q, %v", out, exit)
	}
}

func TestCommandsAtOnceAreBounded(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Quota.Execs = 2 })
	id := s.create(&baileyv1.CreateSandboxRequest{})
	first := s.begin1(id, &baileyv1.Command{Argv: []string{"sleep", "1000"}})
	s.begin1(id, &baileyv1.Command{Argv: []string{"sleep", "1000"}})
	_, err := s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "true"}})
	wantReason(t, err, connect.CodeResourceExhausted, "execs_exhausted")
	if _, err := s.SignalExec(ann, &baileyv1.SignalExecRequest{SandboxId: id, ExecId: first}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: first}); err != nil {
		t.Fatal(err)
	}
	s.says(id, "echo room", "room\n")
}

func TestSpoolGoesWithTheSandbox(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for range 3 {
		s.collect(id, s.begin1(id, &baileyv1.Command{Shell: "echo x"}), 0)
	}
	s.collect(id, s.begin1(id, &baileyv1.Command{Shell: "true"}), 0)
	entries, err := os.ReadDir(s.spool())
	if err != nil || len(entries) != 3 { // none for what wrote nothing
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.spool()); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}

func TestLimitsHold(t *testing.T) {
	s := newSite(t, nil)
	sb, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Resources: &baileyv1.Resources{MemoryBytes: 64 << 20, PidsLimit: 16}})
	if problem.Of(err).GetReason() == "cannot_be_held" && os.Geteuid() != 0 {
		if !bytes.Contains([]byte(err.Error()), []byte("resources.memory")) {
			t.Errorf("the refusal does not name the limit: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r := s.run(sb.GetId(), "head -c 600000000 /dev/zero | tail -c 599999999 >/dev/null")
	if r.GetExit().GetCode() == 0 || !r.GetExit().GetOutOfMemory() {
		t.Errorf("600 MB in 64: %v", r.GetExit())
	}
	many := &baileyv1.Command{Argv: []string{"sh", "-c", "for i in $(seq 40); do sleep 1000 & done; true"}} // bash would wait and try again
	if r := s.exec1(sb.GetId(), many); !bytes.Contains(r.GetStderr(), []byte("fork")) {
		t.Errorf("40 processes of 16: %v, %s", r.GetExit(), r.GetStderr())
	}
	for range 2 { // the shell that has just ended has left room for one
		_, err = s.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: sb.GetId()})
	}
	wantReason(t, err, connect.CodeResourceExhausted, "processes_exhausted")
}

// BenchmarkRunExec takes turns with a plain fork and exec, and reports how many
// times as long the command in the sandbox takes, at the median.
func BenchmarkRunExec(b *testing.B) {
	s := newSite(b, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	r := &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{"/bin/true"}}}
	against(b, func() error { _, err := s.RunExec(ann, r); return err }, forkExec)
}

// against measures one thing in turns with another.
func against(b *testing.B, one, other func() error) {
	var times [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{one, other} {
			begin := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(begin))
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	median := func(i int) float64 { return float64(times[i][len(times[i])/2]) }
	b.ReportMetric(median(0)/median(1), "times-fork+exec")
	b.ReportMetric(median(0)/1e6, "ms-p50")
}

func BenchmarkRunSession(b *testing.B) {
	s := newSite(b, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	n, err := s.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: id})
	if err != nil {
		b.Fatal(err)
	}
	r := &baileyv1.RunSessionRequest{SandboxId: id, SessionId: n.GetId(), Command: "/bin/true"}
	against(b, func() error { _, err := s.RunSession(ann, r); return err }, forkExec)
}

func BenchmarkCreateDestroy(b *testing.B) {
	s := newSite(b, nil)
	for b.Loop() {
		id := s.create(&baileyv1.CreateSandboxRequest{})
		if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
			b.Fatal(err)
		}
	}
}

// forkExec is what a command costs without anything around it: its output is
// taken through pipes, too.
func forkExec() error {
	cmd := exec.Command("/bin/true")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd.Run()
}

func TestTimeoutOfThePolicyHoldsForEveryCommand(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Policy: `{"filesystem": {"protectMissing": false}, "resources": {"timeout": "50ms"}}`})
	for name, asked := range map[string]*durationpb.Duration{"none is asked for": nil, "a longer one is": durationpb.New(time.Hour)} {
		r := s.exec1(id, &baileyv1.Command{Argv: []string{"sleep", "1000"}, Timeout: asked})
		if !r.GetExit().GetTimedOut() {
			t.Errorf("%s: got %v", name, r.GetExit())
		}
	}
	n, err := s.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the session itself goes on
		r, err := s.RunSession(ann, &baileyv1.RunSessionRequest{SandboxId: id, SessionId: n.GetId(), Command: "sleep 1000"})
		if err != nil || !r.GetExit().GetTimedOut() {
			t.Errorf("in a session: got %v, %v", r.GetExit(), err)
		}
	}
	s.restart()
	if r := s.exec1(id, &baileyv1.Command{Argv: []string{"sleep", "1000"}}); !r.GetExit().GetTimedOut() {
		t.Errorf("after a restart: got %v", r.GetExit())
	}
}
