package server

import (
	"fmt"
	"io"
	"net"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// serve has a program inside say something to whom connects to a port, once.
func (s *site) serve(id string, port int) (exec string) {
	s.t.Helper()
	program := fmt.Sprintf(`import socket
l = socket.create_server(("127.0.0.1", %d))
print("listening", flush=True)
c, _ = l.accept()
c.sendall(b"from inside")
c.close()`, port)
	exec = s.begin1(id, &baileyv1.Command{Argv: []string{"python3", "-c", program}})
	s.await1(id, exec, "listening\n")
	return exec
}

// await1 waits until a command has written something.
func (s *site) await1(id, exec, want string) {
	s.t.Helper()
	s.mu.Lock()
	e := s.execs[exec]
	s.mu.Unlock()
	buf := make([]byte, len(want))
	for at := 0; at < len(want); {
		n, more, err := e.out.after(int64(at), buf[at:])
		if err != nil || n == 0 && more == nil {
			s.t.Fatalf("command %s in %s wrote only %q: %v", exec, id, buf[:at], err)
		}
		if at += n; n == 0 {
			<-more
		}
	}
	if string(buf) != want {
		s.t.Fatalf("got %q, want %q", buf, want)
	}
}

func TestExposedPortsAreReached(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Ports: []int32{8123}})
	p, err := s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: 8123})
	if err != nil {
		t.Fatal(err)
	}
	e := s.serve(id, 8123)
	c, err := net.Dial("tcp", p.GetAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if data, err := io.ReadAll(c); string(data) != "from inside" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: e}); err != nil {
		t.Error(err)
	}
	s.restart()
	sb, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil || len(sb.GetPorts()) != 1 || sb.GetPorts()[0].GetAddress() != p.GetAddress() || sb.GetPorts()[0].GetPort() != 8123 {
		t.Errorf("%v, %v", sb, err)
	}
	_, err = s.ExposePort(as("bob"), &baileyv1.ExposePortRequest{SandboxId: id, Port: 8123})
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
	sb, err = s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)})
	if err != nil || len(sb.GetPorts()) != 0 {
		t.Errorf("stopped: %v, %v", sb, err)
	}
}

// Whatever its network is, a sandbox has ports that are exposed while it runs.
func TestPortsAreExposedAndWithdrawnWhileASandboxRuns(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	for name, policy := range map[string]string{"closed": "", "gate": `{"network": {"allowedDomains": ["a.invalid"]}}`} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			id := s.create(&baileyv1.CreateSandboxRequest{Policy: policy, Ports: []int32{8001}})
			expose := func(port int32) *baileyv1.ExposedPort {
				t.Helper()
				p, err := s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: port})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			p := expose(8002)
			for _, at := range []*baileyv1.ExposedPort{p, expose(8001)} {
				s.serve(id, int(at.GetPort()))
				if got := fetch(at.GetAddress()); got != "from inside" {
					t.Errorf("port %d: %q", at.GetPort(), got)
				}
			}
			if again := expose(8002); again.GetAddress() != p.GetAddress() {
				t.Errorf("it moved from %v to %v", p, again)
			}
			s.restart()
			if again := expose(8002); again.GetAddress() != p.GetAddress() {
				t.Errorf("another server has it at %v, and not at %v", again, p)
			}
			if _, err := s.UnexposePort(ann, &baileyv1.UnexposePortRequest{SandboxId: id, Port: 8002}); err != nil {
				t.Fatal(err)
			}
			if c, err := net.Dial("tcp", p.GetAddress()); err == nil {
				c.Close()
				t.Error("a port that is withdrawn can be reached")
			}
			sb, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)})
			if err == nil {
				sb, err = s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id})
			}
			if err != nil || len(sb.GetPorts()) != 1 || sb.GetPorts()[0].GetPort() != 8001 {
				t.Errorf("started again: %v, %v", sb, err)
			}
		})
	}
}

// fetch is what is said at an address.
func fetch(address string) string {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	data, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestPortsThatCannotBeExposedAreRefused(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, test := range []struct {
		port    int32
		address string
		code    connect.Code
		reason  string
	}{
		{0, "", connect.CodeInvalidArgument, "invalid_port"},
		{65536, "", connect.CodeInvalidArgument, "invalid_port"},
		{942, "", connect.CodeInvalidArgument, "invalid_port"},
		{80, "", connect.CodeFailedPrecondition, "port_too_low"},
		{8080, "nowhere", connect.CodeInvalidArgument, "invalid_address"},
		{8080, "0.0.0.0:0", connect.CodePermissionDenied, "scope_missing"},
		{8080, "127.0.0.1:53", connect.CodePermissionDenied, "scope_missing"},
		{8080, "[::1]:1023", connect.CodePermissionDenied, "scope_missing"},
		{8080, l.Addr().String(), connect.CodeFailedPrecondition, "port_unavailable"},
	} {
		_, err := s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: test.port, Address: test.address})
		wantReason(t, err, test.code, test.reason)
	}
	if _, err := s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: 8080, Address: "127.0.0.1:0"}); err != nil {
		t.Error(err)
	}
	shared, err := s.CreateSandbox(admin, &baileyv1.CreateSandboxRequest{Policy: `{"network": {"allowedDomains": ["*"]}}`})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: shared.GetId(), Port: 8080})
	wantReason(t, err, connect.CodeFailedPrecondition, "port_unavailable")
}
