package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// brokerless is a policy that runtimes without a broker hold.
const brokerless = `{"filesystem": {"protectMissing": false}}`

// CreateSandbox is the server's, with the runtime that the whole test is to be run with,
// if one is named.
func (s *site) CreateSandbox(ctx context.Context, r *baileyv1.CreateSandboxRequest) (*baileyv1.Sandbox, error) {
	if name := os.Getenv("BAILEY_TEST_RUNTIME"); name != "" && r.GetRuntime() == "" {
		r.Runtime = name
		if name != "bwrap" && r.GetPolicy() == "" {
			r.Policy = brokerless
		}
	}
	return s.Server.CreateSandbox(ctx, r)
}

// programs are what runtimes are called on this machine.
var programs = map[string]string{"bwrap": "bwrap", "runc": "runc", "crun": "crun", "gvisor": "runsc"}

// everyRuntime runs a test for each runtime but native, with a request for a sandbox of it.
func everyRuntime(t *testing.T, test func(t *testing.T, s *site, request func() *baileyv1.CreateSandboxRequest)) {
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			testenv.Requires(t, testenv.Program(program))
			test(t, newSite(t, nil), func() *baileyv1.CreateSandboxRequest {
				r := &baileyv1.CreateSandboxRequest{Runtime: name}
				if name != "bwrap" {
					r.Policy = brokerless
				}
				return r
			})
		})
	}
}

func TestSandboxesOfEveryRuntimeAreUsedAlike(t *testing.T) {
	everyRuntime(t, func(t *testing.T, s *site, request func() *baileyv1.CreateSandboxRequest) {
		c := s.codebaseOf(map[string]string{"a": "one\n", "d/x": "x\n"})
		r := request()
		r.Source = &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c}
		sb, err := s.CreateSandbox(ann, r)
		if err != nil {
			t.Fatal(err)
		}
		id := sb.GetId()
		if sb.GetRuntime() != r.GetRuntime() {
			t.Errorf("the runtime is %q", sb.GetRuntime())
		}
		s.says(id, "pwd; cat a d/x; echo two > a; mkdir e; echo t > /tmp/t", "/workspace\none\nx\n")
		s.says(id, "cat a /tmp/t", "two\nt\n") // files of the sandbox stay, in the workspace and beside it
		s.filesAreShared(id)
		s.snapshotsAreTaken(id)
		s.restart()
		s.says(id, "cat a", "two\n")
		s.stopsAndStarts(id)
		if got := s.changes(id); !strings.Contains(got, "modified a") {
			t.Errorf("changed: %s", got)
		}
		s.wantContent(c, "a", "one\n")
	})
}

// filesAreShared writes from outside what is read inside, and the other way round.
func (s *site) filesAreShared(id string) {
	s.t.Helper()
	if _, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: id, Path: "new/w", Content: []byte("w\n"), MakeParents: true}); err != nil {
		s.t.Error(err)
	}
	s.says(id, "cat new/w; echo more >> new/w; stat -c %U new new/w | sort -u | wc -l", "w\n1\n")
	s.says(id, `test "$(id -u)" = "$(stat -c %u new/w)"; echo $?`, "0\n") // it belongs to who runs there
	r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "new/w"})
	if err != nil || string(r.GetContent()) != "w\nmore\n" {
		s.t.Errorf("read %q, %v", r.GetContent(), err)
	}
}

func (s *site) snapshotsAreTaken(id string) {
	s.t.Helper()
	for range 2 {
		n, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id})
		if err != nil || n.GetSizeBytes() == 0 {
			s.t.Errorf("snapshot: %v, %v", n, err)
		}
		s.says(id, "cat a", "two\n")
	}
}

func (s *site) stopsAndStarts(id string) {
	s.t.Helper()
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		s.t.Fatal(err)
	}
	if r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "a"}); err != nil || string(r.GetContent()) != "two\n" {
		s.t.Errorf("stopped: read %q, %v", r.GetContent(), err)
	}
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		s.t.Fatal(err)
	}
	s.says(id, "cat a; ls /tmp", "two\n")
}

func TestWallsOfEveryRuntimeStand(t *testing.T) {
	everyRuntime(t, func(t *testing.T, s *site, request func() *baileyv1.CreateSandboxRequest) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil {
			t.Fatal(err)
		}
		id := s.create(request())
		s.says(id, "cat "+secret+" 2>/dev/null; echo x 2>/dev/null >/usr/x; cat /sys/class/net/eth0/address 2>/dev/null; ls "+s.config.Dir+" 2>/dev/null; echo end", "end\n")
		s.says(id, "grep -c /dev/shm/ /proc/self/mountinfo; true", "0\n")
		s.says(id, "grep -c NoNewPrivs:.1 /proc/self/status; grep CapEff /proc/self/status | tr -d '0\\t'", "1\nCapEff:\n")
	})
}

func TestGateOfEveryRuntimeDecides(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	everyRuntime(t, func(t *testing.T, s *site, request func() *baileyv1.CreateSandboxRequest) {
		r := request()
		r.Policy = `{"filesystem": {"protectMissing": false}, "network": {"allowedDomains": ["example.com"]}}`
		if r.GetRuntime() == "gvisor" {
			_, err := s.CreateSandbox(ann, r)
			wantReason(t, err, connect.CodeFailedPrecondition, "cannot_be_held")
			return
		}
		s.says(s.create(r), `curl -s -o /dev/null -w '%{http_code}' http://denied.test/`, "403")
	})
}

func TestWhatARuntimeCannotHoldIsRefusedByName(t *testing.T) {
	s := newSite(t, nil)
	for _, test := range []struct {
		runtime, policy, program string
		code                     connect.Code
		reason, key              string
	}{
		{"landlock", "", "", connect.CodeUnimplemented, "runtime_unsupported", "runtime"},
		{"docker", "", "", connect.CodeUnimplemented, "runtime_unsupported", "runtime"},
		{"", `{"runtime": "docker"}`, "", connect.CodeUnimplemented, "runtime_unsupported", "runtime"},
		{"none", "", "", connect.CodeInvalidArgument, "invalid_runtime", ""},
		{"bwrap", `{"resources": {"disk": "1M"}}`, "bwrap", connect.CodeFailedPrecondition, "cannot_be_held", "resources.disk"},
		{"runc", "", "runc", connect.CodeFailedPrecondition, "cannot_be_held", "filesystem.protectMissing"},
		{"gvisor", `{"filesystem": {"protectMissing": false}, "command": {"deny": ["rm"]}}`, "runsc", connect.CodeFailedPrecondition, "cannot_be_held", "command"},
	} {
		t.Run(test.runtime+test.policy, func(t *testing.T) {
			if test.program != "" {
				testenv.Requires(t, testenv.Program(test.program))
			}
			for _, only := range []bool{true, false} {
				_, err := s.Server.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Runtime: test.runtime, Policy: test.policy, CreateOnly: only})
				wantReason(t, err, test.code, test.reason)
				if p := problem.Of(err); test.key != "" && (p.GetMetadata()[test.key] == "" || p.GetRemedy() == "") {
					t.Errorf("%v does not name %s", p, test.key)
				}
			}
		})
	}
}

func TestTerminalThatARuntimeLacksIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.Program("runsc"))
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Runtime: "gvisor", Policy: brokerless})
	_, err := s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "true", Terminal: &baileyv1.TerminalSize{Rows: 2, Columns: 2}}})
	wantReason(t, err, connect.CodeUnimplemented, "terminal_unsupported")
}
