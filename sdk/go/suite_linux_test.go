package sdk

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

type scenario struct {
	Name     string            `json:"name"`
	Optional bool              `json:"optional"`
	Files    map[string]string `json:"files"`
	Labels   map[string]string `json:"labels"`
	Steps    []step            `json:"steps"`
}

type step struct {
	Do            string            `json:"do"`
	Command       any               `json:"command"`
	Env           map[string]string `json:"env"`
	Cwd           string            `json:"cwd"`
	Stdin         string            `json:"stdin"`
	Timeout       float64           `json:"timeout"`
	Path          string            `json:"path"`
	Pattern       string            `json:"pattern"`
	NewPath       string            `json:"newPath"`
	ContentBase64 []byte            `json:"contentBase64"`
	Recursive     bool              `json:"recursive"`
	Until         string            `json:"until"`
	Session       string            `json:"session"`
	Process       string            `json:"process"`
	OpenStdin     bool              `json:"openStdin"`
	Terminal      []uint32          `json:"terminal"`
	Data          string            `json:"data"`
	Signal        string            `json:"signal"`
	ID            string            `json:"id"`
	Labels        []string          `json:"labels"`
	Snapshot      string            `json:"snapshot"`
	Count         int               `json:"count"`
	RunningOnly   bool              `json:"runningOnly"`
	RefusedBy     map[string]string `json:"refusedBy"`
	Expect        map[string]any    `json:"expect"`
}

func (s *step) command() *baileyv1.Command {
	c := &baileyv1.Command{Env: s.Env, Cwd: s.Cwd, Stdin: []byte(s.Stdin), OpenStdin: s.OpenStdin}
	switch v := s.Command.(type) {
	case string:
		c.Shell = v
	case []any:
		for _, arg := range v {
			c.Argv = append(c.Argv, fmt.Sprint(arg))
		}
	}
	if s.Timeout > 0 {
		c.Timeout = durationpb.New(time.Duration(s.Timeout * float64(time.Second)))
	}
	if len(s.Terminal) == 2 {
		c.Terminal = &baileyv1.TerminalSize{Rows: s.Terminal[0], Columns: s.Terminal[1]}
	}
	return c
}

// result is what a step did, by the keys of the suite.
type result = map[string]any

// play is one scenario under way.
type play struct {
	*Sandbox
	dir       string
	sessions  map[string]*Session
	processes map[string]*Process
	snapshots map[string]*baileyv1.Snapshot
}

// everyRuntime runs a test for each runtime that the suite must pass with.
func everyRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	for runtime, program := range map[string]string{"native": "", "bwrap": "bwrap", "gvisor": "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			if program != "" {
				testenv.Requires(t, testenv.Program(program))
			}
			test(t, runtime)
		})
	}
}

// brokerless is what runtimes without a broker hold.
const brokerless = `{"filesystem": {"protectMissing": false}}`

func TestGoBehavesAsTheSuiteSays(t *testing.T) {
	client := connectToOwnServer(t)
	everyRuntime(t, func(t *testing.T, runtime string) {
		for _, s := range scenarios(t) {
			t.Run(s.Name, func(t *testing.T) { begin(t, client, s, runtime).play(t, s, runtime) })
		}
	})
}

// play does the steps of a scenario, up to one that is refused as it must be.
func (p *play) play(t *testing.T, s scenario, runtime string) {
	for _, step := range s.Steps {
		got := p.step(t.Context(), &step)
		if reason := step.RefusedBy[runtime]; reason != "" {
			if got["error"] != "unimplemented" || got["reason"] != reason {
				t.Fatalf("%s %v: %v, want it refused for %s", step.Do, step.Command, got, reason)
			}
			return
		}
		if s.Optional && got["error"] == "unimplemented" {
			t.Logf("the server does not do %s", step.Do)
			return
		}
		if _, failed := got["error"]; failed && step.Expect["error"] == nil {
			t.Fatalf("%s %v: %v", step.Do, step.Command, got)
		}
		for key, want := range step.Expect {
			if !reflect.DeepEqual(normal(t, got[key]), want) {
				t.Fatalf("%s %v: %s is %#v, want %#v, in %v", step.Do, step.Command, key, got[key], want, got)
			}
		}
	}
}

func TestPythonBehavesAsTheSuiteSays(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	root := testenv.ModuleRoot(t)
	// Not through a wrapper that only its owner can execute.
	python := []string{"/usr/bin/python3", "-B", "-m", "unittest", "discover", "-s", filepath.Join(root, "sdk/python/tests")}
	everyRuntime(t, func(t *testing.T, runtime string) {
		argv := python
		if runtime != "native" { // the other tests know nothing of runtimes
			testenv.Requires(t, testenv.NoRace) // nothing of it is this program's
			argv = append(slices.Clone(python), "-p", "test_suite.py")
		}
		runSuite(t, []string{"PYTHONPATH=" + filepath.Join(root, "sdk/python/src"), suiteRuntime + runtime}, argv...)
	})
}

func TestTypeScriptBehavesAsTheSuiteSays(t *testing.T) {
	testenv.Requires(t, testenv.Program("node"))
	everyRuntime(t, func(t *testing.T, runtime string) {
		tests := filepath.Join(testenv.ModuleRoot(t), "sdk/typescript/test")
		if runtime != "native" {
			testenv.Requires(t, testenv.NoRace)
			tests = filepath.Join(tests, "suite.test.mjs")
		}
		runSuite(t, []string{suiteRuntime + runtime}, "node", "--test", tests)
	})
}

const suiteRuntime = "BAILEY_SUITE_RUNTIME="

// runSuite runs another language's tests, which start a server themselves.
func runSuite(t *testing.T, variables []string, argv ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Env = append(os.Environ(), "BAILEYD="+testenv.Binary(t, "baileyd"), "BAILEY_ADDRESS=", "BAILEY_TOKEN=")
	command.Env = append(command.Env, variables...)
	command.Dir = t.TempDir()
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func connectToOwnServer(t *testing.T) *Client {
	t.Helper()
	t.Setenv("BAILEYD", testenv.Binary(t, "baileyd"))
	t.Setenv("BAILEY_ADDRESS", "")
	client, err := Connect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return client
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	content, err := os.ReadFile("../suite/scenarios.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []scenario
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func begin(t *testing.T, client *Client, s scenario, runtime string) *play {
	t.Helper()
	p := &play{dir: t.TempDir(), sessions: map[string]*Session{}, processes: map[string]*Process{}, snapshots: map[string]*baileyv1.Snapshot{}}
	for name, content := range s.Files {
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	request := &baileyv1.CreateSandboxRequest{Labels: s.Labels, Runtime: runtime}
	if runtime == "gvisor" {
		request.Policy = brokerless
	}
	if s.Files != nil {
		p.Sandbox, err = client.FromLocal(t.Context(), p.dir, request)
	} else {
		p.Sandbox, err = client.Create(t.Context(), request)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.Background()); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("destroy: %v", err)
		}
	})
	return p
}

// normal is a value as JSON has it.
func normal(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var n any
	if err := json.Unmarshal(data, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (p *play) step(ctx context.Context, s *step) result {
	do, ok := steps[s.Do]
	if !ok {
		return result{"error": "no such step"}
	}
	got, err := do(p, ctx, s)
	if err == nil {
		return got
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		return result{"error": "command_failed", "exitCode": exit.Result.GetCode()}
	}
	return result{"error": connect.CodeOf(err).String(), "reason": Problem(err).GetReason(), "text": err.Error()}
}

var steps = map[string]func(*play, context.Context, *step) (result, error){
	"run": func(p *play, ctx context.Context, s *step) (result, error) { return ran(p.Run(ctx, s.command())) },
	"check": func(p *play, ctx context.Context, s *step) (result, error) {
		r, err := p.Run(ctx, s.command())
		if err == nil {
			err = r.Check()
		}
		return nil, err
	},
	"stream": func(p *play, ctx context.Context, s *step) (result, error) {
		var stdout, stderr bytes.Buffer
		_, err := p.Stream(ctx, s.command(), &stdout, &stderr)
		return result{"stdout": stdout.String(), "stderr": stderr.String()}, err
	},
	"writeFile": func(p *play, ctx context.Context, s *step) (result, error) {
		return file(p.WriteFile(ctx, s.Path, bytes.NewReader(s.ContentBase64)))
	},
	"readFile": func(p *play, ctx context.Context, s *step) (result, error) { return content(p.ReadFile(ctx, s.Path)) },
	"readCodebaseFile": func(p *play, ctx context.Context, s *step) (result, error) {
		return content(p.Client().ReadCodebaseFile(ctx, p.Info().GetCodebaseId(), s.Path))
	},
	"localFile": func(p *play, _ context.Context, s *step) (result, error) {
		return content(os.ReadFile(filepath.Join(p.dir, s.Path)))
	},
	"statFile": func(p *play, ctx context.Context, s *step) (result, error) { return file(p.StatFile(ctx, s.Path)) },
	"listFiles": func(p *play, ctx context.Context, s *step) (result, error) {
		return paths(p.ListFiles(ctx, s.Path, s.Recursive))
	},
	"globFiles": func(p *play, ctx context.Context, s *step) (result, error) {
		return paths(p.GlobFiles(ctx, s.Path, s.Pattern))
	},
	"listExecs": func(p *play, ctx context.Context, s *step) (result, error) {
		found, err := p.Execs(ctx, s.RunningOnly)
		running, codes := []bool{}, []int32{}
		for _, e := range found {
			if running = append(running, e.GetRunning()); !e.GetRunning() {
				codes = append(codes, e.GetExit().GetCode())
			}
		}
		return result{"running": running, "exitCodes": codes}, err
	},
	"listSessions": func(p *play, ctx context.Context, _ *step) (result, error) {
		found, err := p.Sessions(ctx)
		alive := []bool{}
		for _, n := range found {
			alive = append(alive, n.GetAlive())
		}
		return result{"alive": alive}, err
	},
	"download": func(p *play, ctx context.Context, s *step) (result, error) {
		var archive bytes.Buffer
		err := p.Download(ctx, s.Path, &archive)
		names := []string{}
		for r := tar.NewReader(&archive); ; {
			h, end := r.Next()
			if end != nil {
				return result{"names": names}, err
			}
			if h.Typeflag == tar.TypeReg {
				names = append(names, h.Name)
			}
		}
	},
	"usage": func(p *play, ctx context.Context, _ *step) (result, error) {
		u, err := p.Client().Server.GetUsage(ctx, &baileyv1.GetUsageRequest{})
		return result{"sandboxesLimit": u.GetSandboxesLimit()}, err
	},
	"watchFiles": func(p *play, ctx context.Context, s *step) (result, error) {
		for c, err := range p.WatchFiles(ctx, s.Path, s.Recursive) {
			if err != nil {
				return nil, err
			}
			if c.GetKind() == baileyv1.FileChangeKind_FILE_CHANGE_KIND_LOST {
				if _, err := p.Run(ctx, s.command()); err != nil {
					return nil, err
				}
			}
			if c.GetPath() == s.Until {
				kind := strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "FILE_CHANGE_KIND_"))
				return result{"kind": kind, "directory": c.GetDirectory()}, nil
			}
		}
		return result{}, nil
	},
	"makeDirectory": func(p *play, ctx context.Context, s *step) (result, error) { return file(p.MakeDirectory(ctx, s.Path)) },
	"moveFile": func(p *play, ctx context.Context, s *step) (result, error) {
		return file(p.MoveFile(ctx, s.Path, s.NewPath))
	},
	"removeFile": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.RemoveFile(ctx, s.Path, s.Recursive)
	},
	"openSession": func(p *play, ctx context.Context, s *step) (_ result, err error) {
		p.sessions[s.Session], err = p.Session(ctx, nil)
		return nil, err
	},
	"sessionRun": func(p *play, ctx context.Context, s *step) (result, error) {
		return ran(p.sessions[s.Session].Run(ctx, fmt.Sprint(s.Command)))
	},
	"closeSession": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.sessions[s.Session].Close(ctx)
	},
	"start": func(p *play, ctx context.Context, s *step) (_ result, err error) {
		p.processes[s.Process], err = p.Begin(ctx, s.command())
		return nil, err
	},
	"write": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.processes[s.Process].Write(ctx, []byte(s.Data))
	},
	"closeStdin": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.processes[s.Process].CloseStdin(ctx)
	},
	"output": func(p *play, ctx context.Context, s *step) (result, error) {
		return ran(p.processes[s.Process].Collect(ctx))
	},
	"wait": func(p *play, ctx context.Context, s *step) (result, error) {
		e, err := p.processes[s.Process].Wait(ctx, time.Duration(s.Timeout*float64(time.Second)))
		return result{"running": e.GetRunning(), "exitCode": e.GetExit().GetCode(), "signal": e.GetExit().GetSignal()}, err
	},
	"signal": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.processes[s.Process].Signal(ctx, s.Signal)
	},
	"stop":         func(p *play, ctx context.Context, _ *step) (result, error) { return nil, p.Stop(ctx, 2*time.Second) },
	"startSandbox": func(p *play, ctx context.Context, _ *step) (result, error) { return nil, p.Start(ctx) },
	"destroy":      func(p *play, ctx context.Context, _ *step) (result, error) { return nil, p.Destroy(ctx) },
	"info":         func(p *play, ctx context.Context, _ *step) (result, error) { return state(p.Refresh(ctx)) },
	"getSandbox": func(p *play, ctx context.Context, s *step) (result, error) {
		other, err := p.Client().Open(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		return state(other.Info(), nil)
	},
	"listSandboxes": func(p *play, ctx context.Context, s *step) (result, error) {
		page, err := p.Client().Sandboxes.ListSandboxes(ctx, &baileyv1.ListSandboxesRequest{Labels: s.Labels})
		return result{"count": len(page.GetSandboxes())}, err
	},
	"snapshot": func(p *play, ctx context.Context, s *step) (_ result, err error) {
		p.snapshots[s.Snapshot], err = p.Snapshot(ctx, s.Snapshot)
		return nil, err
	},
	"rollback": func(p *play, ctx context.Context, s *step) (result, error) {
		return nil, p.Rollback(ctx, p.snapshots[s.Snapshot])
	},
	"fork": fork,
	"diff": func(p *play, ctx context.Context, _ *step) (result, error) {
		changes, err := p.Diff(ctx)
		var texts []string
		for _, c := range changes {
			texts = append(texts, c.GetPath()+" "+strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "CHANGE_KIND_")))
		}
		return result{"changes": texts}, err
	},
	"apply": func(p *play, ctx context.Context, _ *step) (result, error) {
		changes, err := p.Apply(ctx)
		return result{"count": len(changes)}, err
	},
}

func fork(p *play, ctx context.Context, s *step) (result, error) {
	forks, err := p.Fork(ctx, s.Count, p.snapshots[s.Snapshot])
	if err != nil {
		return nil, err
	}
	var stdouts []string
	for _, f := range forks {
		r, err := f.Run(ctx, s.command())
		if err := errors.Join(err, f.Destroy(ctx)); err != nil {
			return nil, err
		}
		stdouts = append(stdouts, string(r.Stdout))
	}
	return result{"stdouts": stdouts}, nil
}

func ran(r *Result, err error) (result, error) {
	if err != nil {
		return nil, err
	}
	return result{
		"stdout": string(r.Stdout), "stderr": string(r.Stderr), "stdoutBase64": base64.StdEncoding.EncodeToString(r.Stdout),
		"exitCode": r.GetCode(), "signal": r.GetSignal(), "timedOut": r.GetTimedOut(),
	}, nil
}

func paths(all []*baileyv1.FileInfo, err error) (result, error) {
	list := []string{}
	for _, f := range all {
		list = append(list, f.GetPath())
	}
	return result{"paths": list}, err
}

func file(f *baileyv1.FileInfo, err error) (result, error) {
	return result{"path": f.GetPath(), "size": f.GetSizeBytes(), "type": strings.ToLower(strings.TrimPrefix(f.GetType().String(), "FILE_TYPE_"))}, err
}

func content(data []byte, err error) (result, error) {
	return result{"content": string(data), "contentBase64": base64.StdEncoding.EncodeToString(data)}, err
}

func state(s *baileyv1.Sandbox, err error) (result, error) {
	return result{"state": strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_STATE_"))}, err
}

func TestGoHasTheRest(t *testing.T) {
	client, ctx := connectToOwnServer(t), t.Context()
	all, err := client.CreateMany(ctx, 2, &baileyv1.CreateSandboxRequest{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, s := range all {
		t.Cleanup(func() { _ = s.Destroy(context.Background()) })
	}
	s := all[0]
	if err := s.Update(ctx, &baileyv1.UpdateSandboxRequest{Labels: &baileyv1.Labels{Labels: map[string]string{"a": "b"}}}); err != nil || s.Info().GetLabels()["a"] != "b" {
		t.Errorf("labels: %v, %v", s.Info(), err)
	}
	// The stream tells what happens once it is there, so something has to until then.
	seen, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for seen.Err() == nil {
			_, _ = s.Run(seen, Shell("true"))
		}
	}()
	for e, err := range s.Events(ctx, "", "exec") {
		if stop(); err != nil || e.GetKind() != "exec" || e.GetCursor() == "" {
			t.Errorf("an event: %v, %v", e, err)
		}
		break
	}
	session, err := s.Session(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if exit, err := session.Stream(ctx, "echo out; echo err >&2; touch kept; (exit 3)", &stdout, &stderr); err != nil || exit.GetCode() != 3 || stdout.String() != "out\n" || stderr.String() != "err\n" {
		t.Errorf("a session: %v, %v, %q, %q", exit, err, &stdout, &stderr)
	}
	snapshot, err := s.Snapshot(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := s.ExportSnapshot(ctx, snapshot, &archive); err != nil || !bytes.Contains(archive.Bytes(), []byte("kept")) {
		t.Errorf("the archive of a snapshot: %d bytes, %v", archive.Len(), err)
	}
	if list, err := s.Snapshots(ctx); err != nil || len(list) != 1 || list[0].GetName() != "one" {
		t.Errorf("snapshots: %v, %v", list, err)
	}
	if err := s.DeleteSnapshot(ctx, snapshot); err != nil {
		t.Error(err)
	}
	if list, err := s.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("snapshots after the last was deleted: %v, %v", list, err)
	}
}
