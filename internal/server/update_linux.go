package server

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// UpdateSandbox implements the API.
func (s *Server) UpdateSandbox(ctx context.Context, r *baileyv1.UpdateSandboxRequest) (*baileyv1.Sandbox, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	for _, d := range []struct {
		name     string
		negative bool
	}{{"ttl", r.GetTtl().AsDuration() < 0}, {"idle_timeout", r.GetIdleTimeout().AsDuration() < 0}} {
		if d.negative {
			return nil, problem.Invalid(d.name, "it is negative")
		}
	}
	if r.Network != nil || r.GetRules() != nil {
		if err := s.changeRules(k, r); err != nil {
			return nil, err
		}
	}
	amend(k.sandbox, r)
	if err := k.save(); err != nil {
		return nil, err
	}
	if err := s.store.Commit(ctx, store.Put(k.record)); err != nil {
		return nil, err
	}
	s.plan(k)
	s.mu.Lock()
	b := s.boxes[k.sandbox.GetId()]
	s.mu.Unlock()
	if b != nil && r.GetIdleTimeout() != nil {
		b.mu.Lock()
		b.idleAfter = r.GetIdleTimeout().AsDuration()
		s.watchIdle(b)
		b.mu.Unlock()
	}
	return k.sandbox, nil
}

func amend(sb *baileyv1.Sandbox, r *baileyv1.UpdateSandboxRequest) {
	if r.GetLabels() != nil {
		sb.Labels = r.GetLabels().GetLabels()
	}
	if d := r.GetTtl(); d != nil {
		sb.ExpireTime = timestamppb.New(time.Now().Add(d.AsDuration()))
	}
	if r.GetIdleTimeout() != nil {
		sb.IdleTimeout = r.GetIdleTimeout()
	}
}

// changeRules gives a sandbox other rules: at once if it runs, else for when it
// does. They are bounded as those were that it was made with.
func (s *Server) changeRules(k *kept, r *baileyv1.UpdateSandboxRequest) error {
	next := proto.CloneOf(k.request)
	if r.Network != nil {
		text, err := withNetwork(next.GetPolicy(), r.GetNetwork())
		if err != nil {
			return err
		}
		if k.bounded {
			if err := withinBound(`{"network": ` + cmp.Or(r.GetNetwork(), "{}") + "\n}"); err != nil {
				return err
			}
		}
		next.Policy = text
	}
	if r.GetRules() != nil {
		if err := checkRules(r.GetRules().GetRules()); err != nil {
			return err
		}
		next.Rules = r.GetRules().GetRules()
	}
	id := k.sandbox.GetId()
	over, err := s.overlay(id)
	if err != nil {
		return err
	}
	sp, err := s.compile(next, k.sandbox.GetImage(), k.bounded, over)
	if err != nil {
		return err
	}
	old, err := s.compile(k.request, k.sandbox.GetImage(), k.bounded, over)
	if err != nil {
		return err
	}
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b != nil {
		remote, err := s.reach()
		if err != nil {
			return err
		}
		viewed, err := s.compileBy(next, k.sandbox.GetImage(), k.bounded, over, (*sandbox.Manager).CompileViewed)
		if err != nil {
			viewed = nil // where there can be none, it has none
		}
		if err := remote.Reload(id, sp, viewed); err != nil {
			return failed("cannot_change_while_running", err, problem.Remedy("stop the sandbox, change it, and start it again"))
		}
		if err := s.changePorts(k, old.Expose, sp.Expose); err != nil {
			return err
		}
	}
	s.endView(id)
	k.request = next
	return nil
}

// withNetwork is a policy with another section "network".
func withNetwork(text, network string) (string, error) {
	if text == "" {
		text = "{}"
	}
	p, err := policy.Parse("policy", []byte(text))
	if err != nil {
		return "", err
	}
	if network == "" {
		network = "{}"
	}
	section, err := policy.Parse("network", []byte(`{"network": `+network+"\n}"))
	if err != nil {
		return "", problem.New(connect.CodeInvalidArgument, "invalid_policy", err, problem.Remedy("correct the network section"))
	}
	only := policy.Policy{Network: section.Network}
	if string(policy.Marshal(only, "")) != string(policy.Marshal(*section, "")) {
		return "", problem.Invalid("network", "it is more than the section network of a policy")
	}
	p.Network = section.Network
	return string(policy.Marshal(*p, "")), nil
}
