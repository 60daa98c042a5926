package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/server/transport"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// frailVariable makes the test program a server that kills itself when it is about
// to write something of a kind down.
const frailVariable = "BAILEY_TEST_FRAIL_SERVER"

// fatal is what a server does not survive to write down.
type fatal string

const (
	nothing     fatal = ""
	fatalAnswer fatal = "answer" // to a request
	fatalObject fatal = "object" // that a request makes
	fatalOutput fatal = "output" // of a command
)

type frailConfig struct {
	Config
	Fatal fatal
	Armed string // see frail
}

// frail is a store that nothing is ever written to, or nothing any more once there is a
// file.
type frail struct {
	store.Store
	armed string // path of the file, or empty
}

func (f frail) Commit(ctx context.Context, changes ...store.Change) error {
	if f.armed != "" {
		if _, err := os.Stat(f.armed); err != nil {
			return f.Store.Commit(ctx, changes...)
		}
	}
	return die()
}

// frailExecs never tells what a command wrote.
type frailExecs struct{ *Server }

// RunExec implements the API, as far as it comes.
func (f frailExecs) RunExec(ctx context.Context, r *baileyv1.RunExecRequest) (*baileyv1.RunExecResponse, error) {
	if _, err := f.Server.RunExec(ctx, r); err != nil {
		return nil, err
	}
	return nil, die()
}

func die() error {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func serveFrail(text string) error {
	var c frailConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := store.Open(ctx, c.Dir+"/db")
	if err != nil {
		return err
	}
	var answers store.Store = db
	c.Store = db
	switch c.Fatal {
	case fatalAnswer:
		answers = frail{db, c.Armed}
	case fatalObject:
		c.Store = frail{db, c.Armed}
	}
	s, err := Open(ctx, c.Config)
	if err != nil {
		return err
	}
	var execs baileyv1connect.ExecServiceHandler = s
	if c.Fatal == fatalOutput {
		execs = frailExecs{s}
	}
	t, err := transport.New(transport.Config{
		Services: transport.Services{Server: s, Codebases: s, Sandboxes: s, Execs: execs, Sessions: s, Files: s},
		Requests: answers, Journal: c.Dir + "/requests", LocalOwner: "ann",
	})
	if err != nil {
		return err
	}
	path := c.Dir + "/socket"
	_ = os.Remove(path) // of the last one
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() { // it ends with the test, in whatever way that does
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	fmt.Println("ready")
	if c.Pool > 0 {
		go func() {
			for s.spareCount() == 0 {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("spare")
		}()
	}
	return t.Serve(ctx, time.Minute, l)
}

// wired is a client of a server in a process of its own.
type wired struct {
	cmd       *exec.Cmd
	said      *bufio.Reader // what it says of itself
	sandboxes baileyv1connect.SandboxServiceClient
	execs     baileyv1connect.ExecServiceClient
	sessions  baileyv1connect.SessionServiceClient
	codebases baileyv1connect.CodebaseServiceClient
	files     baileyv1connect.FileServiceClient
}

func startFrail(t *testing.T, c Config, f fatal) *wired {
	t.Helper()
	return startFrailArmed(t, c, f, "")
}

// startFrailArmed starts one that is frail once there is a file.
func startFrailArmed(t *testing.T, c Config, f fatal, armed string) *wired {
	t.Helper()
	c.Store, c.Log = nil, nil
	text, err := json.Marshal(frailConfig{c, f, armed})
	if err != nil {
		t.Fatal(err)
	}
	w := &wired{cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), frailVariable+"="+string(text))
	w.cmd.Stderr = os.Stderr
	if _, err := w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.said = bufio.NewReader(out)
	w.hears(t, "ready")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Dir+"/socket")
	}}}
	w.sandboxes = baileyv1connect.NewSandboxServiceClient(client, "http://localhost")
	w.execs = baileyv1connect.NewExecServiceClient(client, "http://localhost")
	w.sessions = baileyv1connect.NewSessionServiceClient(client, "http://localhost")
	w.codebases = baileyv1connect.NewCodebaseServiceClient(client, "http://localhost")
	w.files = baileyv1connect.NewFileServiceClient(client, "http://localhost")
	return w
}

// hears waits until the server says something.
func (w *wired) hears(t *testing.T, want string) {
	t.Helper()
	if line, err := w.said.ReadString('\n'); line != want+"\n" {
		t.Fatalf("%q, %v, want %q", line, err, want)
	}
}

// keyed is a context of requests with an idempotency key.
func keyed(key string) context.Context {
	ctx, info := connect.NewClientContext(context.Background())
	info.RequestHeader().Set("Idempotency-Key", key)
	return ctx
}

// made lists all that there is, without its names.
func (s *site) made(id string) []string {
	s.t.Helper()
	var list []string
	for _, kind := range []store.Kind{store.Sandboxes, store.Codebases, store.Snapshots} {
		n, err := s.store.Count(ann, store.Query{Kind: kind})
		if err != nil {
			s.t.Fatal(err)
		}
		list = append(list, fmt.Sprint(n, " ", kind))
	}
	sessions, err := s.ListSessions(ann, &baileyv1.ListSessionsRequest{SandboxId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	execs, err := s.ListExecs(ann, &baileyv1.ListExecsRequest{SandboxId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	log, _ := s.read(id, "log")
	_, moved := s.read(id, "moved")
	return append(list, fmt.Sprint(len(sessions.GetSessions()), " sessions"), fmt.Sprint(len(execs.GetExecs()), " execs"),
		fmt.Sprint("log ", strings.Fields(log)), fmt.Sprint("moved ", moved == nil))
}

// A request that is sent again after the end of the server that did it is not done
// twice, whether the server was killed before what it made was written down, or
// before the answer was.
func TestRequestIsDoneOnce(t *testing.T) {
	type request func(w *wired, id string) (answer any, err error)
	late, both := []fatal{fatalAnswer}, []fatal{fatalAnswer, fatalObject}
	var doomed string
	base := []string{"1 sandbox", "0 codebase", "0 snapshot", "0 sessions", "0 execs", "log []", "moved false"}
	for name, test := range map[string]struct {
		send  request
		fatal []fatal
		want  map[int]string // what differs from the base
		err   string         // reason of what the second attempt gets
	}{
		"create": {func(w *wired, _ string) (any, error) {
			return w.sandboxes.CreateSandbox(keyed("k"), &baileyv1.CreateSandboxRequest{})
		}, both, map[int]string{0: "2 sandbox"}, ""},
		"batch": {func(w *wired, _ string) (any, error) {
			return w.sandboxes.BatchCreateSandboxes(keyed("k"), &baileyv1.BatchCreateSandboxesRequest{Count: 3, Template: &baileyv1.CreateSandboxRequest{}})
		}, late, map[int]string{0: "4 sandbox"}, ""},
		"fork": {func(w *wired, id string) (any, error) {
			return w.sandboxes.ForkSandbox(keyed("k"), &baileyv1.ForkSandboxRequest{SandboxId: id, Count: 2})
		}, late, map[int]string{0: "3 sandbox"}, ""},
		"snapshot": {func(w *wired, id string) (any, error) {
			return w.sandboxes.CreateSnapshot(keyed("k"), &baileyv1.CreateSnapshotRequest{SandboxId: id})
		}, both, map[int]string{2: "1 snapshot"}, ""},
		"codebase": {func(w *wired, _ string) (any, error) {
			return w.codebases.CreateCodebase(keyed("k"), &baileyv1.CreateCodebaseRequest{})
		}, both, map[int]string{1: "1 codebase"}, ""},
		"session": {func(w *wired, id string) (any, error) {
			return w.sessions.CreateSession(keyed("k"), &baileyv1.CreateSessionRequest{SandboxId: id})
		}, late, map[int]string{3: "1 sessions"}, ""},
		"start": {func(w *wired, id string) (any, error) {
			return w.execs.StartExec(keyed("k"), &baileyv1.StartExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "echo once >> log"}})
		}, late, map[int]string{4: "1 execs", 5: "log [once]"}, ""},
		"run": {func(w *wired, id string) (any, error) {
			return w.execs.RunExec(keyed("k"), &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "echo once >> log"}})
		}, []fatal{fatalOutput}, map[int]string{5: "log [once]"}, "outcome_unknown"},
		"destroy": {func(w *wired, id string) (any, error) {
			list, err := w.sandboxes.ListSandboxes(context.Background(), &baileyv1.ListSandboxesRequest{})
			if err != nil {
				return nil, err
			}
			other := slices.IndexFunc(list.GetSandboxes(), func(sb *baileyv1.Sandbox) bool { return sb.GetId() != id })
			if other >= 0 {
				doomed = list.GetSandboxes()[other].GetId()
			}
			return w.sandboxes.DestroySandbox(keyed("k"), &baileyv1.DestroySandboxRequest{SandboxId: doomed})
		}, late, nil, ""},
		"move": {func(w *wired, id string) (any, error) {
			return w.files.MoveFile(keyed("k"), &baileyv1.MoveFileRequest{SandboxId: id, Path: "file", NewPath: "moved"})
		}, late, map[int]string{6: "moved true"}, ""},
	} {
		for _, f := range test.fatal {
			t.Run(name+" "+string(f), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, nil)
				id := s.create(&baileyv1.CreateSandboxRequest{})
				s.says(id, "touch file", "")
				if name == "destroy" {
					s.create(&baileyv1.CreateSandboxRequest{})
				}
				s.stop()
				w := startFrail(t, s.config, f)
				if _, err := test.send(w, id); connect.CodeOf(err) != connect.CodeUnavailable {
					t.Errorf("from a server that died: %v", err)
					_ = w.cmd.Process.Kill()
				}
				_ = w.cmd.Wait() // it was killed
				w = startFrail(t, s.config, nothing)
				first, err := test.send(w, id)
				again, err2 := test.send(w, id)
				for _, err := range []error{err, err2} {
					if got := reasonOf(err); got != test.err {
						t.Errorf("the second attempt: %v", err)
					}
				}
				if fmt.Sprint(first) != fmt.Sprint(again) {
					t.Errorf("answers differ: %v, %v", first, again)
				}
				_ = w.cmd.Process.Kill()
				_ = w.cmd.Wait()
				s.start()
				want := slices.Clone(base)
				for i, line := range test.want {
					want[i] = line
				}
				s.awaitAll(id)
				if got := s.made(id); !slices.Equal(got, want) {
					t.Errorf("there are %q, want %q", got, want)
				}
			})
		}
	}
}

// awaitAll waits for the ends of commands, so that what they write is there.
func (s *site) awaitAll(id string) {
	s.t.Helper()
	execs, err := s.ListExecs(ann, &baileyv1.ListExecsRequest{SandboxId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range execs.GetExecs() {
		if _, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: e.GetId()}); err != nil {
			s.t.Error(err)
		}
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return problem.Of(err).GetReason()
}
