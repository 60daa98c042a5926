package server

import (
	"io"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// gitRepository is one with a single file.
func gitRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/a", []byte("of git\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main", "."}, {"add", "-A"}, {"commit", "-qm", "one"}, {"tag", "v1"}} {
		c := exec.Command("git", args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

func fromGit(codebase string, source *baileyv1.GitSource) *baileyv1.ImportCodebaseRequest {
	return &baileyv1.ImportCodebaseRequest{CodebaseId: codebase, Source: &baileyv1.ImportCodebaseRequest_Git{Git: source}}
}

func TestRepositoriesAreImported(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	s := newSite(t, nil)
	repository := gitRepository(t)
	c, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ImportCodebase(admin, fromGit(c.GetId(), &baileyv1.GitSource{Url: repository, Ref: "v1"})); err != nil {
		t.Fatal(err)
	}
	s.wantContent(c.GetId(), "a", "of git\n")
	_, err = s.ImportCodebase(admin, fromGit(c.GetId(), &baileyv1.GitSource{Url: repository}))
	wantReason(t, err, connect.CodeFailedPrecondition, "codebase_not_empty")
	empty, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ImportCodebase(admin, fromGit(empty.GetId(), &baileyv1.GitSource{Url: repository, Ref: "missing"}))
	wantReason(t, err, connect.CodeFailedPrecondition, "cannot_be_imported")
	for ref, want := range map[string]string{"": "main\n", "v1": ""} {
		r := fromGit(empty.GetId(), &baileyv1.GitSource{Url: repository, Ref: ref, IncludeHistory: true})
		r.Replace = true
		if _, err := s.ImportCodebase(admin, r); err != nil {
			t.Fatal(err)
		}
		id := s.create(&baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: empty.GetId()}})
		s.says(id, "git status --porcelain && git log --format=%s && git branch --show-current && git tag && git check-attr -a a", "one\n"+want+"v1\n")
	}
}

// gitServer serves repositories below a directory over smart HTTP.
func gitServer(t *testing.T, dir string) string {
	t.Helper()
	programs, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"),
		Stderr: io.Discard, // it tells of what is missing
		Env:    []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func TestRepositoriesAreImportedOverHTTP(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	s := newSite(t, nil)
	repository := gitRepository(t)
	url := gitServer(t, filepath.Dir(repository)) + "/" + filepath.Base(repository)
	c, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ImportCodebase(admin, fromGit(c.GetId(), &baileyv1.GitSource{Url: url + "/.git", Ref: "v1"})); err != nil {
		t.Fatal(err)
	}
	s.wantContent(c.GetId(), "a", "of git\n")
	_, err = s.ImportCodebase(admin, &baileyv1.ImportCodebaseRequest{
		CodebaseId: c.GetId(), Replace: true, Source: &baileyv1.ImportCodebaseRequest_Git{Git: &baileyv1.GitSource{Url: url + "-missing"}},
	})
	wantReason(t, err, connect.CodeFailedPrecondition, "cannot_be_imported")
	s.wantContent(c.GetId(), "a", "of git\n")
}

// What is on the server's machine, or can be reached only from there, is not for
// everybody.
func TestRepositoriesOfTheMachineAreForAdministrators(t *testing.T) {
	for url, want := range map[string]connect.Code{
		"/srv/repository":             connect.CodePermissionDenied,
		"http://127.0.0.1:1/x":        connect.CodePermissionDenied,
		"http://127.1/x":              connect.CodePermissionDenied,
		"http://[::1]/x":              connect.CodePermissionDenied,
		"http://0x7f.0.0.0x1/x":       connect.CodePermissionDenied,
		"http://2130706433/x":         connect.CodePermissionDenied,
		"http://localhost/x":          connect.CodePermissionDenied,
		"http://host.example./x":      connect.CodePermissionDenied,
		"file:///srv/repository":      connect.CodeInvalidArgument,
		"ssh://git@host.example/x":    connect.CodeInvalidArgument,
		"ext::sh -c touch%20/tmp/own": connect.CodeInvalidArgument,
		"relative":                    connect.CodeInvalidArgument,
		"":                            connect.CodeInvalidArgument,
	} {
		s := &Server{}
		if _, err := s.ImportCodebase(ann, fromGit("cb-1", &baileyv1.GitSource{Url: url})); connect.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %v", url, err, want)
		}
	}
	if err := mayImport(annItself, fromGit("cb-1", &baileyv1.GitSource{Url: "https://host.example/x"})); err != nil {
		t.Errorf("a public name: %v", err)
	}
}
