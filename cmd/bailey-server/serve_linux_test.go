package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// daemon is a server as a person starts it.
type daemon struct {
	*exec.Cmd
	stdin     io.Closer
	lines     *bufio.Scanner
	addresses []string
}

// start starts a server and waits until it says that it is ready.
func start(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{Cmd: exec.Command(testenv.Binary(t, "baileyd"), append([]string{"serve"}, args...)...)}
	d.Stderr = os.Stderr
	var err error
	if d.stdin, err = d.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := d.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.ProcessState == nil {
			_ = d.Process.Signal(syscall.SIGTERM)
			_ = d.Wait()
		}
	})
	d.lines = bufio.NewScanner(stdout)
	d.awaitReady(t)
	return d
}

func (d *daemon) awaitReady(t *testing.T) {
	t.Helper()
	d.addresses = nil
	for d.lines.Scan() {
		if address, ok := strings.CutPrefix(d.lines.Text(), "listening on "); ok {
			d.addresses = append(d.addresses, address)
		}
		if d.lines.Text() == "ready" {
			return
		}
	}
	t.Fatalf("the server ended before it was ready: %v", d.Wait())
}

// end asks the server to end, and returns how it did.
func (d *daemon) end(t *testing.T, signal syscall.Signal) error {
	t.Helper()
	if err := d.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return d.Wait()
}

func over(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}

// short returns a directory whose name leaves room for that of a socket.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestServerListensWhereItSaysAndEndsWhenAsked(t *testing.T) {
	state := short(t)
	d := start(t, "--state", state, "--orphan-timeout", "1s", "--owner-sandboxes", "3", "--owner-execs", "4", "--owner-storage", "1M", "--owner-rate", "0.5")
	if len(d.addresses) != 1 || d.addresses[0] != "unix:"+socket(state) {
		t.Errorf("it listens on %q", d.addresses)
	}
	info, err := baileyv1connect.NewServerServiceClient(over(socket(state)), "http://x").GetServer(t.Context(), &baileyv1.GetServerRequest{})
	if err != nil || info.GetOwner() != "local" {
		t.Errorf("GetServer: %v, %v", info, err)
	}
	usage, err := baileyv1connect.NewServerServiceClient(over(socket(state)), "http://x").GetUsage(t.Context(), &baileyv1.GetUsageRequest{Owner: "ann"})
	if err != nil || usage.GetSandboxesLimit() != 3 || usage.GetExecsLimit() != 4 || usage.GetStorageLimitBytes() != 1<<20 || usage.GetRequestsPerSecondLimit() != 0.5 {
		t.Errorf("the limits of an owner: %v, %v", usage, err)
	}
	second := exec.Command(testenv.Binary(t, "baileyd"), "serve", "--state", state)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), state) {
		t.Errorf("a second server: %v, %s", err, out)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := os.Stat(socket(state)); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSandboxesOutliveTheServer(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	state := short(t)
	d := start(t, "--state", state)
	made, err := baileyv1connect.NewSandboxServiceClient(over(socket(state)), "http://x").CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(line string) string {
		t.Helper()
		res, err := baileyv1connect.NewExecServiceClient(over(socket(state)), "http://x").RunExec(t.Context(), &baileyv1.RunExecRequest{SandboxId: made.GetId(), Command: &baileyv1.Command{Shell: line}})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.GetStdout())
	}
	run("echo here > /tmp/note")
	if figures := metrics(t, state); !strings.Contains(figures, `bailey_sandboxes{state="running"} 1`) || !strings.Contains(figures, "bailey_request_seconds_bucket{") {
		t.Errorf("the figures: %s", figures)
	}
	// The same process becomes the next server, with the same sockets.
	if err := d.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.awaitReady(t)
	if got := run("cat /tmp/note"); got != "here\n" {
		t.Errorf("after SIGHUP the sandbox has %q", got)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d = start(t, "--state", state, "--orphan-timeout", "1s")
	if got := run("cat /tmp/note"); got != "here\n" {
		t.Errorf("after a restart the sandbox has %q", got)
	}
	if _, err := baileyv1connect.NewSandboxServiceClient(over(socket(state)), "http://x").DestroySandbox(t.Context(), &baileyv1.DestroySandboxRequest{SandboxId: made.GetId()}); err != nil {
		t.Fatal(err)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func metrics(t *testing.T, state string) string {
	t.Helper()
	res, err := over(socket(state)).Get("http://x/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestEphemeralServerLeavesNothing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	d := start(t, "--ephemeral")
	path := strings.TrimPrefix(d.addresses[0], "unix:")
	_, err := baileyv1connect.NewSandboxServiceClient(over(path), "http://x").CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err != nil {
		t.Fatalf("the end: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", filepath.Dir(path), err)
	}
}

func TestTokensAreMadeAndRevokedWhileTheServerRuns(t *testing.T) {
	state := short(t)
	d := start(t, "--state", state, "--listen", "127.0.0.1:0", "--orphan-timeout", "1s")
	client := baileyv1connect.NewServerServiceClient(http.DefaultClient, d.addresses[0])
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ask := func(token string) (*baileyv1.Server, error) {
		ctx, call := connect.NewClientContext(t.Context())
		if token != "" {
			call.RequestHeader().Set("Authorization", "Bearer "+token)
		}
		return client.GetServer(ctx, &baileyv1.GetServerRequest{})
	}
	if _, err := ask(""); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without a token: %v", err)
	}
	token := strings.TrimSpace(tokenCommand(t, state, "create", "--owner", "ann", "--name", "ci", "--scope", "read"))
	if info, err := ask(token); err != nil || info.GetOwner() != "ann" || len(info.GetScopes()) != 1 {
		t.Errorf("with the token: %v, %v", info, err)
	}
	if list := tokenCommand(t, state, "list"); !strings.Contains(list, "ann") || strings.Contains(list, token) {
		t.Errorf("the list: %s", list)
	}
	t.Setenv("BAILEY_ADDRESS", d.addresses[0])
	t.Setenv("BAILEY_TOKEN", token)
	var out, errs strings.Builder
	if status := run([]string{"status"}, strings.NewReader(""), &out, &errs); status != 0 || !strings.Contains(out.String(), "sandboxes  0") {
		t.Errorf("the status of the server at BAILEY_ADDRESS: %d, %s%s", status, out.String(), errs.String())
	}
	tokenCommand(t, state, "revoke", "ci")
	if _, err := ask(token); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("with a revoked token: %v", err)
	}
}

// tokenCommand runs "baileyd token" and returns what it says on standard output.
func tokenCommand(t *testing.T, state, verb string, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	// Flags come before what is no flag.
	full := append([]string{"token", verb, "--state", state}, args...)
	if status := run(full, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("%q: status %d: %s", full, status, errs.String())
	}
	return out.String()
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	state := short(t)
	for _, args := range [][]string{
		{},
		{"nothing"},
		{"serve", "--nothing"},
		{"serve", "extra"},
		{"serve", "--state", state, "--listen", "0.0.0.0:0"},
		{"serve", "--state", state, "--listen", "0.0.0.0:0", "--public"},
		{"serve", "--state", state, "--tls-cert", "/nothing"},
		{"serve", "--state", state, "--tls-cert", "/nothing", "--tls-key", "/nothing"},
		{"serve", "--state", state, "--log-level", "loud"},
		{"serve", "--state", state, "--owner-sandboxes", "-1"},
		{"serve", "--state", state, "--owner-storage", "much"},
		{"serve", "--state", state, "--owner-rate", "NaN"},
		{"serve", "--state", state, "--default-pids", "2", "--max-pids", "1"},
		{"serve", "--state", state, "--log-format", "xml"},
		{"token"},
		{"token", "create", "--state", state},
		{"token", "create", "--state", state, "--owner", "ann", "--scope", "everything"},
		{"token", "create", "--state", state, "--owner", "ann", "--lifetime", "-1s"},
		{"token", "revoke", "--state", state},
		{"token", "revoke", "--state", state, "nothing"},
		{"status", "--state", state},
		{"status", "--address", "localhost:1"},
		{"status", "extra"},
	} {
		var out, errs strings.Builder
		if status := run(args, strings.NewReader(""), &out, &errs); status != exitOwn || !strings.HasPrefix(errs.String(), "baileyd: ") {
			t.Errorf("%q: status %d, %q", args, status, errs.String())
		}
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"serve", "--help"}, {"token", "--help"}, {"status", "-h"}} {
		var out, errs strings.Builder
		if status := run(args, strings.NewReader(""), &out, &errs); status != 0 || out.Len() == 0 || errs.Len() != 0 {
			t.Errorf("%q: status %d, %q, %q", args, status, out.String(), errs.String())
		}
	}
}

func TestServerOfRootsWarns(t *testing.T) {
	for _, test := range []struct {
		user  int
		o     options
		warns bool
	}{{0, options{}, true}, {1000, options{}, false}, {0, options{ephemeral: true}, false}} {
		var said bytes.Buffer
		test.o.warnOf(test.user, slog.New(slog.NewTextHandler(&said, nil)))
		if warned := strings.Contains(said.String(), "the server is root's"); warned != test.warns {
			t.Errorf("user %d, %+v: %q", test.user, test.o, said.String())
		}
	}
}
