package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// greeter is a server that answers what it is told with its name in front, until
// it is told to end.
const greeter = `
import socket, sys
host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
s.bind((host, port)); s.listen()
print("ready", flush=True)
data = b""
while data != b"end":
    c, _ = s.accept()
    data = c.makefile("rb").read()
    c.sendall(name.encode() + b" " + data); c.close()
`

// exposing is a sandbox that runs, and the addresses of the host that lead inside.
type exposing struct {
	t       testing.TB
	at      []string
	stdout  *bufio.Reader
	process *os.Process
	ended   chan int // its status
}

// expose starts a command, and waits until it says that it is ready.
func (b *bench) expose(args ...string) *exposing {
	b.t.Helper()
	cmd := b.command(args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(b.t.TempDir(), "stderr"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer stderr.Close()
	said := func() string {
		text, err := os.ReadFile(stderr.Name())
		if err != nil {
			b.t.Fatal(err)
		}
		return string(text)
	}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	e := &exposing{t: b.t, stdout: bufio.NewReader(stdout), process: cmd.Process, ended: make(chan int, 1)}
	b.t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, _ := e.stdout.ReadString('\n')
	if line != "ready\n" {
		_ = cmd.Wait()
		b.t.Fatalf("%q: stdout %q, stderr %q", args, line, said())
	}
	// What Bailey says, it says before the command runs.
	for text := range strings.Lines(said()) {
		if at, _, ok := strings.Cut(strings.TrimPrefix(text, "bailey: "), " leads to port "); ok {
			e.at = append(e.at, at)
		}
	}
	go func() {
		_ = cmd.Wait()
		e.ended <- cmd.ProcessState.ExitCode()
	}()
	return e
}

// tellServer tells the server something and returns its answer.
func tellServer(address, text string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 20*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	data, err := io.ReadAll(c)
	return string(data), err
}

// end tells the server to end, and waits until nothing of the sandbox is left.
func (e *exposing) end() {
	e.t.Helper()
	if got, err := tellServer(e.at[0], "end"); err != nil || !strings.HasSuffix(got, " end") {
		e.t.Errorf("the last answer was %q, %v", got, err)
	}
	if status := <-e.ended; status != 0 {
		e.t.Errorf("status %d", status)
	}
	for _, at := range e.at {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			e.t.Errorf("%s still leads somewhere", at)
		}
	}
}

func exposeBench(t *testing.T) *bench {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("python3"))
	return newBench(t)
}

func TestExposedPortLeadsToTheServerInside(t *testing.T) {
	b := exposeBench(t)
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for name, test := range map[string]struct{ policy, listen, port string }{
		"closed network":       {`{}`, "127.0.0.1", "3000"},
		"every address":        {`{}`, "0.0.0.0", "3000"},
		"IPv6 only":            {`{}`, "::1", "3000"},
		"every IPv6 address":   {`{}`, "::", "3000"},
		"a low port":           {`{}`, "127.0.0.1", "80"},
		"granted hosts":        {`{"network": {"allowedDomains": ["good.example"]}}`, "127.0.0.1", "3000"},
		"without capture":      {`{"network": {"allowedDomains": ["good.example"], "transparent": false}}`, "127.0.0.1", "3000"},
		"the host's loopback":  {`{"network": {"allowLocalOutbound": true}}`, "127.0.0.1", "3000"},
		"the gate at a socket": {`{"network": {"allowedDomains": ["good.example"], "egress": "socket"}}`, "127.0.0.1", "3000"},
		"open network":         {`{"network": {"allowedDomains": ["*"]}}`, "127.0.0.1", "3000"},
		"said in the policy":   {`{"network": {"exposePorts": ["0:3000", "0:3001"]}}`, "127.0.0.1", "3000"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(test.listen, ":") {
				testenv.Requires(t, testenv.File("/proc/net/if_inet6"))
			}
			b := &bench{t: t, dir: b.dir, home: b.home, env: b.env}
			args := []string{"--policy", test.policy}
			if !strings.Contains(test.policy, "exposePorts") {
				args = append(args, "-p", "0:"+test.port)
			}
			e := b.expose(append(args, "--", "python3", "-c", greeter, test.listen, test.port, "inside")...)
			for _, text := range []string{"", "hello", large} {
				if got, err := tellServer(e.at[0], text); err != nil || got != "inside "+text {
					t.Errorf("%d bytes: got %d bytes, %v", len(text), len(got), err)
				}
			}
			e.end()
		})
	}
}

func TestExposedPortIsAtTheAddressThatIsNamed(t *testing.T) {
	b := exposeBench(t)
	testenv.Requires(t, testenv.File("/proc/net/if_inet6"))
	e := b.expose("-p", "[::1]:0:3000", "-p", "127.0.0.2:0:3000", "--", "python3", "-c", greeter, "127.0.0.1", "3000", "inside")
	for i, host := range []string{"[::1]", "127.0.0.2"} {
		if !strings.HasPrefix(e.at[i], host+":") {
			t.Errorf("%q is not at %s", e.at[i], host)
		}
		if got, err := tellServer(e.at[i], "x"); err != nil || got != "inside x" {
			t.Errorf("%s: got %q, %v", e.at[i], got, err)
		}
		_, port, _ := net.SplitHostPort(e.at[i])
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			t.Errorf("it is at 127.0.0.1:%s too", port)
		}
	}
	e.end()
}

func TestOtherPortsOfTheSandboxStayInside(t *testing.T) {
	b := exposeBench(t)
	const other = `
import socket
s = socket.socket(); s.bind(("0.0.0.0", 0)); s.listen()
print("ready", flush=True); print(s.getsockname()[1], flush=True)
socket.create_server(("127.0.0.1", 3000)).accept()
`
	e := b.expose("-p", "0:3000", "--", "python3", "-c", other)
	port, _ := e.stdout.ReadString('\n')
	if c, err := net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(port)); err == nil {
		c.Close()
		t.Errorf("port %s can be reached", port)
	}
	_ = e.process.Kill()
	<-e.ended
}

func TestAPortInUseIsAnErrorBeforeAnythingRuns(t *testing.T) {
	b := exposeBench(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	b.run("-p", port+":3000", "--", "touch", "ran").wantError(t, "127.0.0.1:"+port, "is in use", "-p 0:3000")
	b.run("-p", "0:3001", "-p", "192.0.2.1:0:3000", "--", "touch", "ran").wantError(t, "192.0.2.1:0", "no address of this machine")
	if os.Getuid() != 0 {
		b.run("-p", "80:3000", "--", "touch", "ran").wantError(t, "for root", "-p 8080:3000")
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// The command ends, and a client that is still connected does not keep it.
func TestClientsDoNotKeepTheCommand(t *testing.T) {
	b := exposeBench(t)
	const brief = `
import os, socket
s = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
c, _ = s.accept(); c.recv(1); os._exit(7)
`
	e := b.expose("-p", "0:3000", "--", "python3", "-c", brief)
	c, err := net.Dial("tcp", e.at[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if status := <-e.ended; status != 7 {
		t.Errorf("status %d", status)
	}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if data, err := io.ReadAll(c); len(data) > 0 || os.IsTimeout(err) {
		t.Errorf("the client read %q, %v", data, err)
	}
}

// A server that ends with its answer ends the sandbox, and the answer arrives.
func TestLastBytesOfAServerArrive(t *testing.T) {
	b := exposeBench(t)
	const size = 1 << 20
	const last = `
import os, socket
s = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
c, _ = s.accept(); c.recv(1); c.sendall(bytes(1 << 20)); os._exit(0)
`
	for range 5 {
		e := b.expose("-p", "0:3000", "--", "python3", "-c", last)
		c, err := net.Dial("tcp", e.at[0])
		if err != nil {
			t.Fatal(err)
		}
		// It keeps its side open, as clients do that wait for an answer.
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.Copy(io.Discard, c); err != nil || got != size {
			t.Errorf("%d bytes of %d came, %v", got, size, err)
		}
		c.Close()
		if status := <-e.ended; status != 0 {
			t.Errorf("status %d", status)
		}
	}
}

func TestNobodyInsideIsAClearEndForTheClient(t *testing.T) {
	b := exposeBench(t)
	e := b.expose("-p", "0:3000", "--", "sh", "-c", "echo ready; read x")
	if got, err := tellServer(e.at[0], "x"); err == nil {
		t.Errorf("got %q", got)
	}
	_ = e.process.Kill()
	<-e.ended
}

func TestSandboxesWithTheSamePortDoNotMeet(t *testing.T) {
	b := exposeBench(t)
	var running []*exposing
	for i := range 4 {
		name := fmt.Sprint("sandbox ", i)
		running = append(running, b.expose("--policy", `{"network": {"allowedDomains": ["good.example"]}}`,
			"-p", "0:3000", "--", "python3", "-c", greeter, "127.0.0.1", "3000", name))
	}
	for i, e := range running {
		if got, err := tellServer(e.at[0], "x"); err != nil || got != fmt.Sprintf("sandbox %d x", i) {
			t.Errorf("%s: got %q, %v", e.at[0], got, err)
		}
	}
	// One that has no such server sees none of the others', whatever the host's
	// loopback has.
	const reach = `
import socket
for port in [3000, 940, 941, 942, 943]:
    for host in ["127.0.0.1", "0.0.0.0"]:
        try: socket.create_connection((host, port), 20); print("reached", host, port)
        except OSError as e: print(type(e).__name__)
`
	b.run("--", "python3", "-c", reach).want(t, 0, strings.Repeat("ConnectionRefusedError\n", 10), "")
	for _, e := range running {
		e.end()
	}
}

func TestKeptSandboxKeepsItsPort(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	b := keepBench(t)
	const policy = `{"network": {"exposePorts": ["0:3000"]}}`
	got := b.run("-k", "web", "--policy", policy, "--detach", "--", "python3", "-c", greeter, "127.0.0.1", "3000", "kept")
	at, _, _ := strings.Cut(strings.TrimPrefix(got.stderr, "bailey: "), " leads to port 3000")
	if got.status != 0 || !strings.HasPrefix(at, "127.0.0.1:") {
		t.Fatalf("%+v", got)
	}
	if ports := b.boxes()["web"].Ports; len(ports) != 1 || ports[0] != at+":3000" {
		t.Errorf("listed as %q", ports)
	}
	b.until("the server listens", func() bool { return strings.Contains(b.run("box", "logs", "web").stdout, "ready") })
	for range 2 {
		if got, err := tellServer(at, "x"); err != nil || got != "kept x" {
			t.Errorf("got %q, %v", got, err)
		}
		b.run("-k", "web", "--policy", policy, "--", "echo", "another").want(t, 0, "another\n", "")
	}
	_, port, _ := net.SplitHostPort(at)
	b.run("-k", "two", "-p", port+":3000", "--", "echo", "ran").wantError(t, "is in use")
	b.run("box", "stop", "web").want(t, 0, "", "")
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Errorf("%s still leads somewhere", at)
	}
}
