package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// portsOf are the ports of a sandbox that lead inside, which the keeper writes as
// ADDR:PORT:INSIDE.
func portsOf(st *keeper.Standing) (list []*baileyv1.ExposedPort) {
	for _, text := range st.Ports {
		i := strings.LastIndexByte(text, ':')
		if inside, err := strconv.Atoi(text[i+1:]); err == nil && i > 0 {
			list = append(list, &baileyv1.ExposedPort{Port: int32(inside), Address: text[:i]})
		}
	}
	return list
}

// ExposePort implements the API. A sandbox is made with the ports that can be
// reached; this says where one of them is.
func (s *Server) ExposePort(ctx context.Context, r *baileyv1.ExposePortRequest) (*baileyv1.ExposedPort, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	if r.GetPort() < 1 || r.GetPort() > 65535 {
		return nil, problem.Invalid("port", "%d is no port", r.GetPort())
	}
	if _, err := s.running(ctx, r.GetSandboxId()); err != nil {
		return nil, err
	}
	k, err := s.sandbox(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	for _, p := range k.sandbox.GetPorts() {
		if p.GetPort() == r.GetPort() && (r.GetAddress() == "" || r.GetAddress() == p.GetAddress()) {
			return p, nil
		}
	}
	return nil, problem.Unimplemented("port_not_named", fmt.Errorf("port %d cannot be exposed in a sandbox that stands", r.GetPort()),
		problem.About("port", strconv.Itoa(int(r.GetPort()))), problem.Remedy("name it in ports when the sandbox is made; it is at a free port of loopback then"))
}

// UnexposePort implements the API.
func (s *Server) UnexposePort(ctx context.Context, r *baileyv1.UnexposePortRequest) (*emptypb.Empty, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	k, err := s.sandbox(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	for _, p := range k.sandbox.GetPorts() {
		if p.GetPort() == r.GetPort() {
			return nil, problem.Unimplemented("port_stays", fmt.Errorf("port %d is exposed for as long as the sandbox runs", r.GetPort()), problem.Remedy("stop the sandbox"))
		}
	}
	return &emptypb.Empty{}, nil // as it was asked for
}
