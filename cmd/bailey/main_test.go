package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Runs before any init function, so that the tests are not the program.
var _ = func() bool { isProgram = false; return true }()

// bench is a project and a home of a test's own.
type bench struct {
	t    testing.TB
	dir  string
	home string
	env  []string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: filepath.Join(base, "project"), home: filepath.Join(base, "home")}
	for _, dir := range []string{b.dir, b.home} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.env = []string{"HOME=" + b.home, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=xterm", "SHELL=/bin/bash"}
	return b
}

func (b *bench) write(name, content string, mode os.FileMode) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(testenv.Binary(b.t, "bailey"), args...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

type result struct {
	stdout, stderr string
	status         int
}

func (b *bench) run(args ...string) result {
	b.t.Helper()
	return b.runWith(nil, args...)
}

func (b *bench) runWith(stdin []byte, args ...string) result {
	b.t.Helper()
	cmd := b.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%q: %v", args, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func (r result) want(t testing.TB, status int, stdout, stderr string) {
	t.Helper()
	if r.status != status || r.stdout != stdout || r.stderr != stderr {
		t.Errorf("got  status %d, stdout %q, stderr %q\nwant status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr, status, stdout, stderr)
	}
}

// wantError checks for an error of Bailey's own that says something.
func (r result) wantError(t testing.TB, texts ...string) {
	t.Helper()
	if r.status != exitOwn || r.stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q; want status 125 and nothing on stdout", r.status, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr %q does not say %q", r.stderr, text)
		}
	}
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "bailey: ") {
			t.Errorf("line %q is not marked as Bailey's", line)
		}
	}
}
