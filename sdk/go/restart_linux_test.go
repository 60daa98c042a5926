package sdk

import (
	"bufio"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestOutputGoesOnAfterARestart reads a command's output while the server makes
// place for the next one.
func TestOutputGoesOnAfterARestart(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	ctx := t.Context()
	client, restart := restartable(t)
	sandbox, err := client.Create(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	command := Shell("cat; exit 5")
	command.OpenStdin = true
	process, err := sandbox.Begin(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(process.Output(ctx))
	defer stop()
	expect := func(want string) {
		t.Helper()
		if err := process.Write(ctx, []byte(want)); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != want; {
			m, err, ok := next()
			if err != nil || !ok {
				t.Fatalf("after %q: %v", got, err)
			}
			got += string(m.GetOutput().GetData())
		}
	}
	expect("before")
	restart()
	expect("after")
	if err := process.CloseStdin(ctx); err != nil {
		t.Fatal(err)
	}
	var last *baileyv1.ExecOutput
	for {
		m, err, ok := next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		last = m
	}
	if last.GetExit().GetCode() != 5 {
		t.Errorf("the end is %v", last)
	}
	if err := sandbox.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
}

// restartable returns a client of a server, and what has the server replaced by
// another and waits until that is ready.
func restartable(t *testing.T) (*Client, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") // short, for the socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := exec.Command(testenv.Binary(t, "baileyd"), "serve", "--state", dir, "--orphan-timeout", "1s", "--log-level", "error")
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	lines := bufio.NewScanner(stdout)
	ready := func() {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "ready" {
				return
			}
		}
		t.Fatal("the server ended")
	}
	ready()
	client, err := Connect(Options{Address: "unix:" + filepath.Join(dir, "server.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, func() {
		t.Helper()
		if err := server.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		ready()
	}
}
