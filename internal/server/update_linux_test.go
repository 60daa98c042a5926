package server

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// asked is what the network gate answers to a command that wants to connect to a
// host: a refusal has the status 403.
func (s *site) asked(id, host string) string {
	s.t.Helper()
	line := `p=${HTTP_PROXY##*@}; p=${p#http://}; p=${p%/}; exec 3<>/dev/tcp/${p%:*}/${p##*:}; printf 'CONNECT ` + host + `:443 HTTP/1.1\r\nHost: ` + host + `:443\r\n\r\n' >&3; head -n 1 <&3`
	r := s.run(id, line)
	return strings.TrimSpace(string(r.GetStdout()) + string(r.GetStderr()))
}

func TestNetworkRulesChangeWhileASandboxRuns(t *testing.T) {
	t.Setenv("SSL_CERT_DIR", t.TempDir()) // of the gate, which keeps it while it stands
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Policy: `{"network": {"allowedDomains": ["a.invalid"]}}`})
	if got := s.asked(id, "b.invalid"); !strings.Contains(got, "403") {
		t.Fatalf("before: %s", got)
	}
	update := func(network string) error {
		_, err := s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: id, Network: &network})
		return err
	}
	if err := update(`{"allowedDomains": ["b.invalid"]} // instead`); err != nil {
		t.Fatal(err)
	}
	if got := s.asked(id, "b.invalid"); strings.Contains(got, "403") || !strings.HasPrefix(got, "HTTP/1.1 5") {
		t.Errorf("b after: %s", got)
	}
	if got := s.asked(id, "a.invalid"); !strings.Contains(got, "403") {
		t.Errorf("a after: %s", got)
	}
	for _, bad := range []string{`{"nonsense": 1}`, `{}, "filesystem": {"allowRead": ["/"]}`, `[`, `{"socksProxyPort": 9}`} {
		if code := connect.CodeOf(update(bad)); code != connect.CodeInvalidArgument && code != connect.CodePermissionDenied {
			t.Errorf("%s: %v", bad, update(bad))
		}
	}
	if got := s.asked(id, "b.invalid"); strings.Contains(got, "403") {
		t.Errorf("after refused changes: %s", got)
	}
	if err := update(`{}`); err != nil {
		t.Fatal(err)
	}
	if got := s.asked(id, "b.invalid"); !strings.Contains(got, "403") {
		t.Errorf("b after everything was taken away: %s", got)
	}
	if err := update(`{"allowedDomains": ["a.invalid"]}`); err != nil {
		t.Fatal(err)
	}
	if got := s.asked(id, "a.invalid"); strings.Contains(got, "403") {
		t.Errorf("a after it was granted again: %s", got)
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	if err := update(`{"allowedDomains": ["c.invalid"]}`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if got := s.asked(id, "c.invalid"); strings.Contains(got, "403") {
		t.Errorf("started again: %s", got)
	}
}

func TestLabelsAndLifetimesChange(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Labels: map[string]string{"a": "b"}})
	sb, err := s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{
		SandboxId: id, Labels: &baileyv1.Labels{Labels: map[string]string{"c": "d"}},
		Ttl: durationpb.New(time.Hour), IdleTimeout: durationpb.New(time.Hour),
	})
	if err != nil || sb.GetLabels()["c"] != "d" || len(sb.GetLabels()) != 1 || sb.GetExpireTime() == nil || sb.GetIdleTimeout().AsDuration() != time.Hour {
		t.Errorf("%v, %v", sb, err)
	}
	_, err = s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: id, Ttl: durationpb.New(-1)})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_ttl")
	_, err = s.UpdateSandbox(as("bob"), &baileyv1.UpdateSandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
}

// Path rules are part of what a sandbox is made of, so that it is started again for
// others.
func TestPathRulesChangeWhileASandboxIsStopped(t *testing.T) {
	s := newSite(t, nil)
	rules := func(path string) *baileyv1.PathRules {
		return &baileyv1.PathRules{Rules: []*baileyv1.PathRule{{Pattern: path, Permission: "none"}}}
	}
	c := s.codebaseOf(map[string]string{"key": "key\n", "pem": "pem\n"})
	id := s.create(&baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c}, Rules: rules("key").GetRules()})
	s.says(id, "cat key 2>/dev/null; cat pem", "pem\n")
	update := &baileyv1.UpdateSandboxRequest{SandboxId: id, Rules: rules("pem")}
	_, err := s.UpdateSandbox(ann, update)
	wantReason(t, err, connect.CodeFailedPrecondition, "cannot_change_while_running")
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateSandbox(ann, update); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	s.says(id, "cat pem 2>/dev/null; cat key", "key\n")
}

// Rules with patterns are held by who shows the files, and so can change while
// somebody looks.
func TestPathRulesWithPatternsChangeWhileASandboxRuns(t *testing.T) {
	testenv.Requires(t, testenv.FUSE)
	s := newSite(t, nil)
	rules := func(pattern string) *baileyv1.PathRules {
		return &baileyv1.PathRules{Rules: []*baileyv1.PathRule{{Pattern: pattern, Permission: "none"}}}
	}
	c := s.codebaseOf(map[string]string{"a.key": "key\n", "a.pem": "pem\n"})
	id := s.create(&baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c}, Rules: rules("**/*.key").GetRules()})
	s.says(id, "cat a.key 2>/dev/null; cat a.pem", "pem\n")
	if _, err := s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: id, Rules: rules("**/*.pem")}); err != nil {
		t.Fatal(err)
	}
	s.says(id, "cat a.pem 2>/dev/null; cat a.key", "key\n")
	for _, test := range []struct {
		rules *baileyv1.PathRules
		want  string
	}{{&baileyv1.PathRules{}, "key\npem\n"}, {rules("a.key"), "pem\n"}, {rules("**/*.pem"), "key\n"}} {
		if _, err := s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: id, Rules: test.rules}); err != nil {
			t.Fatal(err)
		}
		s.says(id, "cat a.key a.pem 2>/dev/null; true", test.want)
	}
}
