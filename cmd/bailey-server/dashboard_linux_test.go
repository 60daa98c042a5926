package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestDashboardShowsOnlyWhatTheServerHas(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	state := short(t)
	d := start(t, "--state", state, "--orphan-timeout", "1s")
	use(t, state)
	figures := metrics(t, state)
	if log, err := os.ReadFile(filepath.Join(state, "audit.jsonl")); err != nil || strings.Count(string(log), "\n") != 3 || !strings.Contains(string(log), "ExecService/RunExec") {
		t.Errorf("the audit log of making, using and destroying a sandbox: %v\n%s", err, log)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "packaging", "grafana", "bailey.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) == 0 {
		t.Fatal("there is no panel")
	}
	name := regexp.MustCompile(`\b(bailey|go|process)_[a-z_]+`)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			found := name.FindAllString(target.Expr, -1)
			if len(found) == 0 {
				t.Errorf("%s: %s names nothing", p.Title, target.Expr)
			}
			for _, n := range found {
				if !strings.Contains(figures, "\n"+n+"{") && !strings.Contains(figures, "\n"+n+" ") {
					t.Errorf("%s: the server has no %s", p.Title, n)
				}
			}
		}
	}
}

// use makes a server do a little of everything that figures are about.
func use(t *testing.T, state string) {
	t.Helper()
	client := over(socket(state))
	boxes := baileyv1connect.NewSandboxServiceClient(client, "http://x")
	made, err := boxes.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = baileyv1connect.NewExecServiceClient(client, "http://x").RunExec(t.Context(), &baileyv1.RunExecRequest{SandboxId: made.GetId(), Command: &baileyv1.Command{Argv: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boxes.GetSandbox(t.Context(), &baileyv1.GetSandboxRequest{SandboxId: "none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	if _, err := boxes.DestroySandbox(t.Context(), &baileyv1.DestroySandboxRequest{SandboxId: made.GetId()}); err != nil {
		t.Fatal(err)
	}
}
