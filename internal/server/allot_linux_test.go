package server

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestSandboxesHaveTheLimitsOfTheServer(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Usual.Pids, c.Most.Pids = 16, 32 }) // which every machine can hold
	sb, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{})
	if err != nil || sb.GetResources().GetPidsLimit() != 16 {
		t.Fatalf("one that asks for nothing: %v, %v", sb, err)
	}
	many := &baileyv1.Command{Argv: []string{"sh", "-c", "for i in $(seq 40); do sleep 1000 & done; true"}}
	if r := s.exec1(sb.GetId(), many); !bytes.Contains(r.GetStderr(), []byte("fork")) {
		t.Errorf("40 processes of 16: %v, %s", r.GetExit(), r.GetStderr())
	}
	for _, test := range []struct {
		pids   int32
		policy string
		fits   bool
	}{
		{32, "", true},
		{33, "", false},
		{0, `{"resources": {"pids": 32}}`, true},
		{0, `{"resources": {"pids": 33}}`, false},
	} {
		r := &baileyv1.CreateSandboxRequest{Policy: test.policy, Resources: &baileyv1.Resources{PidsLimit: test.pids}, CreateOnly: true}
		if _, err := s.CreateSandbox(ann, r); !test.fits {
			wantReason(t, err, connect.CodeInvalidArgument, "invalid_resources")
		} else if err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestAllotmentsAreGivenWhereNothingIsAskedFor(t *testing.T) {
	s := &Server{config: Config{Usual: Allotment{Memory: 1 << 30, CPU: 0.5}, Most: Allotment{Memory: 4 << 30, Pids: 100}}}
	for _, test := range []struct {
		policy    string
		asks, has *baileyv1.Resources
	}{
		{"", nil, &baileyv1.Resources{MemoryBytes: 1 << 30, CpuQuota: 50_000, PidsLimit: 100}},
		{"", &baileyv1.Resources{MemoryBytes: 5, OpenFiles: 7}, &baileyv1.Resources{MemoryBytes: 5, CpuQuota: 50_000, PidsLimit: 100, OpenFiles: 7}},
		{`{"resources": {"memory": "2G", "cpu": 2, "pids": 3}}`, nil, &baileyv1.Resources{}},
	} {
		k := &kept{sandbox: &baileyv1.Sandbox{}, request: &baileyv1.CreateSandboxRequest{Policy: test.policy, Resources: test.asks}}
		s.allot(k)
		if got := k.sandbox.GetResources(); got.String() != test.has.String() || k.request.GetResources() != got {
			t.Errorf("%q, %v: got %v, want %v", test.policy, test.asks, got, test.has)
		}
	}
	for _, test := range []struct {
		have *spec.Limits
		fits bool
	}{
		{&spec.Limits{Memory: 4 << 30, Pids: 100, CPU: 64_000}, true},
		{&spec.Limits{Memory: 4<<30 + 1, Pids: 100}, false},
		{&spec.Limits{Memory: 1, Pids: 101}, false},
		{nil, false},
	} {
		if err := s.config.Most.within(&spec.Spec{Limits: test.have}); (err == nil) != test.fits {
			t.Errorf("%+v: %v", test.have, err)
		}
	}
}

func TestLimitsThatNobodyCouldHaveAreRefusedAtTheStart(t *testing.T) {
	_, err := Open(context.Background(), Config{Usual: Allotment{Pids: 2}, Most: Allotment{Pids: 1}})
	if err == nil || !strings.Contains(err.Error(), "--max-pids") {
		t.Errorf("got %v", err)
	}
}

func TestFullMachineTakesNoSandbox(t *testing.T) {
	free, left := int64(1<<40), 1<<20
	s := &Server{config: Config{
		Memory:    func() (int64, bool) { return 1 << 40, true },
		Disk:      func() (int64, bool) { return free, true },
		Processes: func() (int, bool) { return left, true },
	}}
	if err := s.room(1); err != nil {
		t.Fatal(err)
	}
	free = reserveDisk - 1
	wantReason(t, s.room(1), connect.CodeResourceExhausted, "disk_exhausted")
	free, left = 1<<40, reserveProcesses
	wantReason(t, s.room(1), connect.CodeResourceExhausted, "processes_exhausted")
}

func TestProcessesAreReadFromTheKernelsTables(t *testing.T) {
	if n, ok := tasks("0.42 0.35 0.30 2/244 27722\n"); !ok || n != 244 {
		t.Errorf("got %d, %v", n, ok)
	}
	if _, ok := tasks("0.42\n"); ok {
		t.Error("nothing was taken for something")
	}
	if got := unifiedGroup("1:pids:/a\n0::/system.slice/b\n"); got != "/system.slice/b" {
		t.Errorf("got %q", got)
	}
	if left, known := (&Server{}).processes(); !known || left < 1 {
		t.Errorf("this machine: %d, %v", left, known)
	}
}
