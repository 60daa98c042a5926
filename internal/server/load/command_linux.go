package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

const program = "/bin/true"

// commands measures commands: each client has a sandbox and a session of its own.
func (m *run) commands(ctx context.Context) error {
	ids, err := m.make(ctx, slices.Max(m.clients), "")
	if err != nil {
		return err
	}
	shells := make([]string, len(ids))
	for i, id := range ids {
		s, err := m.shells.CreateSession(ctx, &baileyv1.CreateSessionRequest{SandboxId: id})
		if err != nil {
			return err
		}
		shells[i] = s.GetId()
	}
	ways := []way{
		{forkExec, func(ctx context.Context, _ int) error { return exec.CommandContext(ctx, program).Run() }},
		{execConnect, func(ctx context.Context, i int) error { return m.exec(ctx, ids[i]) }},
		{execKey, func(ctx context.Context, i int) error { return m.exec(keyed(ctx, rand.Text()), ids[i]) }},
		{execREST, func(ctx context.Context, i int) error { return m.execREST(ctx, ids[i]) }},
		{execSession, func(ctx context.Context, i int) error { return m.execSession(ctx, ids[i], shells[i]) }},
	}
	for _, clients := range m.clients {
		if err := m.compare(ctx, clients, ways); err != nil {
			return err
		}
	}
	return m.destroyAll(ctx, ids)
}

func (m *run) exec(ctx context.Context, id string) error {
	res, err := m.execs.RunExec(ctx, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{program}}})
	if err != nil {
		return err
	}
	return succeeded(res)
}

func (m *run) execSession(ctx context.Context, id, shell string) error {
	res, err := m.shells.RunSession(ctx, &baileyv1.RunSessionRequest{SandboxId: id, SessionId: shell, Command: program})
	if err != nil {
		return err
	}
	return succeeded(res)
}

func succeeded(r *baileyv1.RunExecResponse) error {
	if r.GetExit() == nil || r.GetExit().GetCode() != 0 {
		return fmt.Errorf("%s ended with %v", program, r.GetExit())
	}
	return nil
}

func (m *run) execREST(ctx context.Context, id string) error {
	var res struct{ Exit *struct{ Code int } }
	err := m.post(ctx, "/v1/sandboxes/"+id+":exec", "application/json", strings.NewReader(`{"command":{"argv":["`+program+`"]}}`), &res)
	if err == nil && (res.Exit == nil || res.Exit.Code != 0) {
		err = errors.New(program + " did not succeed")
	}
	return err
}
