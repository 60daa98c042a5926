package server

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// portsOf are the ports of a sandbox that lead inside, which the keeper writes as
// ADDR:PORT:INSIDE.
func portsOf(ports []string) (list []*baileyv1.ExposedPort) {
	for _, text := range ports {
		i := strings.LastIndexByte(text, ':')
		if inside, err := strconv.Atoi(text[i+1:]); err == nil && i > 0 {
			list = append(list, &baileyv1.ExposedPort{Port: int32(inside), Address: text[:i]})
		}
	}
	return list
}

func samePorts(a, b []*baileyv1.ExposedPort) bool {
	return slices.EqualFunc(a, b, func(a, b *baileyv1.ExposedPort) bool { return proto.Equal(a, b) })
}

// firstPort is the lowest at which programs of a sandbox can listen, unless lower
// ones were named when it was made.
const firstPort = 1024

// exposure checks a request for a port. Nobody but an administrator opens a port
// that other machines reach.
func exposure(ctx context.Context, r *baileyv1.ExposePortRequest) (e spec.Exposure, err error) {
	if err := checkPort("port", r.GetPort()); err != nil {
		return e, err
	}
	e = spec.Exposure{Address: "127.0.0.1", Inside: uint16(r.GetPort())}
	if r.GetAddress() == "" {
		return e, nil
	}
	at, err := netip.ParseAddrPort(r.GetAddress())
	if err != nil {
		return e, problem.Invalid("address", "%q is not an address with a port, such as 127.0.0.1:8080", r.GetAddress())
	}
	if !at.Addr().IsLoopback() || isReserved(at.Port()) {
		if err := caller.From(ctx).Demand(caller.Admin); err != nil {
			return e, err
		}
	}
	e.Address, e.Port = at.Addr().String(), at.Port()
	return e, nil
}

// checkPort refuses what no program of a sandbox can listen at.
func checkPort(field string, p int32) error {
	switch {
	case p < 1 || p > 65535:
		return problem.Invalid(field, "%d is no port", p)
	case p >= spec.GateProxyPort && p <= spec.GateInsidePort:
		return problem.Invalid(field, "%d is the network gate's own", p)
	}
	return nil
}

// isReserved says whether programs of the machine may take what listens at a port for
// a service of the machine's.
func isReserved(port uint16) bool { return port > 0 && port < 1024 }

// ExposePort implements the API. A port that is exposed as it should be stays as it
// is.
func (s *Server) ExposePort(ctx context.Context, r *baileyv1.ExposePortRequest) (*baileyv1.ExposedPort, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	want, err := exposure(ctx, r)
	if err != nil {
		return nil, err
	}
	if _, err := s.running(ctx, r.GetSandboxId()); err != nil {
		return nil, err
	}
	for _, p := range k.sandbox.GetPorts() {
		if p.GetPort() == r.GetPort() && (r.GetAddress() == "" || r.GetAddress() == p.GetAddress()) {
			return p, nil
		}
	}
	if r.GetPort() < firstPort {
		return nil, failed("port_too_low", fmt.Errorf("nothing in the sandbox can listen at port %d", r.GetPort()),
			problem.About("port", strconv.Itoa(int(r.GetPort()))), problem.Remedy("use a port from %d on, or name it in ports when the sandbox is made", firstPort))
	}
	if err := s.changePorts(k, nil, []spec.Exposure{want}); err != nil {
		return nil, err
	}
	if r.GetAddress() == "" { // then it can be had again when the sandbox is started the next time
		k.request.Ports = append(k.request.GetPorts(), r.GetPort())
	}
	ports := k.sandbox.GetPorts()
	return ports[len(ports)-1], s.keepPorts(ctx, k)
}

// keepPorts writes down what is exposed.
func (s *Server) keepPorts(ctx context.Context, k *kept) error {
	if err := k.save(); err != nil {
		return err
	}
	return s.store.Commit(ctx, store.Put(k.record))
}

// changePorts makes the difference between two lists of exposed ports in a sandbox
// that runs.
func (s *Server) changePorts(k *kept, from, to []spec.Exposure) error {
	remote, err := s.reach()
	if err != nil {
		return err
	}
	id := k.sandbox.GetId()
	change := func(ports []string, err error) error {
		if err != nil {
			return problem.New(connect.CodeFailedPrecondition, "port_unavailable", err, problem.Remedy("leave the address empty for a free port of loopback"))
		}
		k.sandbox.Ports = portsOf(ports)
		return nil
	}
	for _, e := range from {
		if !slices.Contains(to, e) {
			if err := change(remote.Withdraw(id, e.Inside)); err != nil {
				return err
			}
		}
	}
	for _, e := range to {
		if !slices.Contains(from, e) {
			if err := change(remote.Expose(id, e)); err != nil {
				return err
			}
		}
	}
	return nil
}

// UnexposePort implements the API.
func (s *Server) UnexposePort(ctx context.Context, r *baileyv1.UnexposePortRequest) (*emptypb.Empty, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	isPort := func(p *baileyv1.ExposedPort) bool { return p.GetPort() == r.GetPort() }
	exposed := slices.ContainsFunc(k.sandbox.GetPorts(), isPort)
	if !exposed && !slices.Contains(k.request.GetPorts(), r.GetPort()) {
		return nil, problem.NotFound("port", strconv.Itoa(int(r.GetPort())))
	}
	k.request.Ports = slices.DeleteFunc(k.request.GetPorts(), func(p int32) bool { return p == r.GetPort() })
	if exposed {
		if err := s.changePorts(k, []spec.Exposure{{Inside: uint16(r.GetPort())}}, nil); err != nil {
			return nil, err
		}
	}
	return &emptypb.Empty{}, s.keepPorts(ctx, k)
}
