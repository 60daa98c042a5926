package workspace

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// repository makes a repository with two commits, the first of which has a tag. It
// asks for files to be left out of archives, and names a program to be run.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir() + "/project"
	write(t, dir+"/a", "first")
	write(t, dir+"/.vscode/tasks.json", "{}")
	write(t, dir+"/tests/t", "left out of archives")
	write(t, dir+"/.gitattributes", "tests export-ignore\n")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "."},
		{"add", "-A"},
		{"commit", "-qm", "one"},
		{"tag", "v1"},
		{"rm", "-q", "a"},
		{"commit", "-qm", "two"},
		{"config", "http.receivepack", "false"},
		{"config", "uploadpack.packObjectsHook", "touch " + dir + "/pwned; exec"},
		{"config", "core.fsmonitor", "touch " + dir + "/pwned"},
	} {
		runGit(t, dir, args...)
	}
	return dir
}

func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2020-01-01T00:00:00Z")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestGitRepositoryIsImported(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("git"))
	s, dir, bailey := newStore(t), repository(t), testenv.Binary(t, "bailey")
	now, err := s.ImportGit(bailey, dir, "", ImportOptions{Name: "now"})
	must(t, err)
	first, err := s.ImportGit(bailey, dir, "v1", ImportOptions{Name: "first"})
	must(t, err)
	again, err := s.ImportGit(bailey, dir, "v1", ImportOptions{Name: "again"})
	must(t, err)
	if names := shown(t, s.LayerTree(now.Layers[0])); strings.Contains(names, "a 100") || !strings.Contains(names, "tests/t") || !strings.Contains(names, ".vscode/tasks.json") {
		t.Errorf("imported\n%s", names)
	}
	if names := shown(t, s.LayerTree(first.Layers[0])); !strings.Contains(names, `a 100644 "first"`) {
		t.Errorf("imported\n%s", names)
	}
	if first.Layers[0] != again.Layers[0] {
		t.Error("a commit imported twice is stored twice")
	}
	if _, err := os.Lstat(dir + "/pwned"); err == nil {
		t.Error("a program that the repository names was run")
	}
	for _, revision := range []string{"missing", "--output=/tmp/x", "-h"} {
		if _, err := s.ImportGit(bailey, dir, revision, ImportOptions{Name: "none"}); err == nil {
			t.Errorf("%s: it was imported", revision)
		}
	}
}

func TestGitRepositoryIsImportedThroughTheGate(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("git"), testenv.File("/usr/lib/git-core/git-http-backend"))
	s, dir, bailey := newStore(t), repository(t), testenv.Binary(t, "bailey")
	must(t, os.Rename(dir+"/.git/config", dir+"/.git/config.old"))
	must(t, os.WriteFile(dir+"/.git/config", []byte("[core]\n\trepositoryformatversion = 0\n\tbare = false\n"), 0o600))
	server := httptest.NewServer(&cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend",
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	})
	defer server.Close()
	c, err := s.ImportGit(bailey, server.URL+"/.git", "v1", ImportOptions{Name: "remote"})
	must(t, err)
	if names := shown(t, s.LayerTree(c.Layers[0])); !strings.Contains(names, `a 100644 "first"`) {
		t.Errorf("imported\n%s", names)
	}
	for address, want := range map[string]string{
		"ssh://example.com/x":               "clone it, and import the directory with --git",
		"git@example.com:x":                 "clone it, and import the directory with --git",
		"file://" + dir:                     "clone it, and import the directory with --git",
		"ext::sh -c id":                     "clone it, and import the directory with --git",
		"https://user:secret@example.com/x": "an address with credentials",
		t.TempDir() + "/a:b":                "no such file",
	} {
		if _, err := s.ImportGit(bailey, address, "", ImportOptions{Name: "none"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// cloneStore has the test binary import a repository into a store.
const cloneStore = "BAILEY_TEST_CLONE_STORE"

func cloneInto(dir, bailey, address string) int {
	s, err := Open(delta.At(dir))
	if err == nil {
		_, err = s.ImportGit(bailey, address, "", ImportOptions{Name: "one"})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// The server never answers: the import is killed while git waits for it. Whatever it
// has started becomes a child of the test's then, until it is dead.
func TestKilledGitImportLeavesNothing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("git"))
	s, temporary, bailey := newStore(t), t.TempDir(), testenv.Binary(t, "bailey")
	must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	asked := make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- true
		<-r.Context().Done()
	}))
	defer server.CloseClientConnections()
	c := exec.Command(os.Args[0], bailey, server.URL+"/x.git")
	c.Env = append(os.Environ(), cloneStore+"="+s.Dir(), "TMPDIR="+temporary)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	must(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("it ended before it asked the server: %v\n%s", err, stderr.String())
	}
	must(t, c.Process.Kill())
	<-ended
	late := time.AfterFunc(20*time.Second, func() {
		t.Error("git still waits for the server")
		server.CloseClientConnections()
	})
	var err error
	for err == nil || err == unix.EINTR {
		_, err = unix.Wait4(-1, nil, unix.WALL, nil)
	}
	late.Stop()
	if err != unix.ECHILD {
		t.Fatal(err)
	}
	must(t, s.Sweep())
	for _, dir := range []string{temporary, s.Dir() + "/tmp"} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", dir, left, err)
		}
	}
}

// What git has written is not trusted: it may have been taken over by what it cloned.
func TestNothingIsWrittenThroughLinksOfAClone(t *testing.T) {
	for _, link := range []string{"repository", "repository/info", "repository/info/attributes"} {
		dir, outside := t.TempDir(), t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o700); err != nil {
			t.Fatal(err)
		}
		to := outside
		if link == "repository/info/attributes" {
			to += "/attributes"
		}
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		if err := (&gitSource{dir: dir}).archiveAll(); err == nil {
			t.Errorf("%s: it was written through", link)
		}
		if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
			t.Errorf("%s: made %v, %v", link, made, err)
		}
	}
}
