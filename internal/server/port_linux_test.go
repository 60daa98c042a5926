package server

import (
	"io"
	"net"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestExposedPortsAreReached(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Ports: []int32{8123}})
	p, err := s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: 8123})
	if err != nil {
		t.Fatal(err)
	}
	serve := `import socket
l = socket.create_server(("127.0.0.1", 8123))
open("listening", "w").close()
c, _ = l.accept()
c.sendall(b"from inside")
c.close()`
	e, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{"python3", "-c", serve}}})
	if err != nil {
		t.Fatal(err)
	}
	s.says(id, "until [ -e listening ]; do sleep 0.05; done", "")
	c, err := net.Dial("tcp", p.GetAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if data, err := io.ReadAll(c); string(data) != "from inside" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: e.GetId()}); err != nil {
		t.Error(err)
	}
	s.restart()
	sb, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil || len(sb.GetPorts()) != 1 || sb.GetPorts()[0].GetAddress() != p.GetAddress() || sb.GetPorts()[0].GetPort() != 8123 {
		t.Errorf("%v, %v", sb, err)
	}
	_, err = s.ExposePort(ann, &baileyv1.ExposePortRequest{SandboxId: id, Port: 8124})
	wantReason(t, err, connect.CodeUnimplemented, "port_not_named")
	_, err = s.UnexposePort(ann, &baileyv1.UnexposePortRequest{SandboxId: id, Port: 8123})
	wantReason(t, err, connect.CodeUnimplemented, "port_stays")
	_, err = s.ExposePort(as("bob"), &baileyv1.ExposePortRequest{SandboxId: id, Port: 8123})
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
	sb, err = s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)})
	if err != nil || len(sb.GetPorts()) != 0 {
		t.Errorf("stopped: %v, %v", sb, err)
	}
}
