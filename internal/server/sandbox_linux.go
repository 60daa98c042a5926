package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// CreateSandbox implements the API. A sandbox is there once its record is: what
// was made before that and has none is removed by the next server.
func (s *Server) CreateSandbox(ctx context.Context, r *baileyv1.CreateSandboxRequest) (*baileyv1.Sandbox, error) {
	owner, err := s.mayCreate(ctx, r)
	if err != nil {
		return nil, err
	}
	if once.Again(ctx) {
		if k := s.madeFor(ctx, once.First(ctx, "sb")); k != nil {
			return k.sandbox, nil
		}
	}
	release, err := s.admit(ctx, owner, 1)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.create(ctx, owner, r)
}

// mayCreate says whom a sandbox will belong to.
func (s *Server) mayCreate(ctx context.Context, r *baileyv1.CreateSandboxRequest) (owner string, err error) {
	who := caller.From(ctx)
	if err := who.Demand(caller.Write); err != nil {
		return "", err
	}
	for _, d := range []struct {
		name     string
		negative bool
	}{{"ttl", r.GetTtl().AsDuration() < 0}, {"idle_timeout", r.GetIdleTimeout().AsDuration() < 0}} {
		if d.negative {
			return "", problem.Invalid(d.name, "it is negative")
		}
	}
	if err := checkResources(r.GetResources()); err != nil {
		return "", err
	}
	if err := checkEnv(r.GetEnv()); err != nil {
		return "", err
	}
	if err := checkRules(r.GetRules()); err != nil {
		return "", err
	}
	for _, p := range r.GetPorts() {
		if err := checkPort("ports", p); err != nil {
			return "", err
		}
	}
	return who.ActFor(r.GetOwner())
}

func (s *Server) create(ctx context.Context, owner string, r *baileyv1.CreateSandboxRequest) (*baileyv1.Sandbox, error) {
	bounded := !caller.From(ctx).May(caller.Admin)
	if bounded {
		if err := withinBound(r.GetPolicy()); err != nil {
			return nil, err
		}
	}
	k := s.newKept(ctx, owner, r, bounded)
	if taken, err := s.createFromPool(ctx, k); taken {
		return k.sandbox, err
	}
	if id := r.GetSnapshotId(); id != "" {
		if err := s.takeImage(ctx, k, id); err != nil {
			return nil, err
		}
	}
	err := s.establish(ctx, k, func(o delta.Options) (*delta.Delta, error) { return s.makeFiles(ctx, r, o) })
	if err != nil {
		return nil, err
	}
	return k.sandbox, nil
}

// newKept is a sandbox that is not there yet.
func (s *Server) newKept(ctx context.Context, owner string, r *baileyv1.CreateSandboxRequest, bounded bool) *kept {
	now := time.Now()
	sb := &baileyv1.Sandbox{
		Id: madeID(ctx, "sb"), Name: r.GetName(), Owner: owner, Labels: r.GetLabels(), Runtime: spec.RuntimeNative,
		CodebaseId: r.GetCodebaseId(), Image: r.GetImage(), Resources: r.GetResources(), CreateTime: timestamppb.New(now),
		IdleTimeout: r.GetIdleTimeout(), Workspace: workspaceDir, State: baileyv1.SandboxState_SANDBOX_STATE_CREATED,
	}
	if d := r.GetTtl().AsDuration(); d > 0 {
		sb.ExpireTime = timestamppb.New(now.Add(d))
	}
	k := &kept{record: &store.Record{Kind: store.Sandboxes, ID: sb.Id}, sandbox: sb, request: r, bounded: bounded}
	s.allot(k)
	return k
}

// establish makes a sandbox, with the layer that it writes to, unless an earlier
// server has made it for the same request.
func (s *Server) establish(ctx context.Context, k *kept, files func(delta.Options) (*delta.Delta, error)) error {
	begin, id := time.Now(), k.sandbox.GetId()
	end := s.turns.take(id)
	defer end()
	if once.Again(ctx) {
		if made := s.madeFor(ctx, id); made != nil {
			*k = *made
			return nil
		}
	}
	s.announce(k)
	err := traced(ctx, "files", id, trace.SpanKindInternal, func() error {
		d, err := files(delta.Options{Name: id, Target: workspaceDir})
		if err != nil {
			return err
		}
		k.over = overlaid(d)
		d.Close() // the server alone uses it, and knows who does
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.bringUp(ctx, k, !k.request.GetCreateOnly()); err != nil {
		return errors.Join(err, s.removeFiles(id))
	}
	s.plan(k)
	s.figures.made.Observe(time.Since(begin).Seconds())
	return nil
}

// announce has the keeper begin with a sandbox while it is found out what it is to be.
func (s *Server) announce(k *kept) {
	if name := k.request.GetRuntime(); k.request.GetCreateOnly() || k.sandbox.GetImage() != "" || name != "" && name != spec.RuntimeNative {
		return
	}
	if remote, err := s.reach(); err == nil { // otherwise raise will say so
		remote.Expect(k.sandbox.GetId())
	}
}

// madeFor finds the sandbox that an earlier server has made for a request, under the name
// that the request gave it or as one that was made before; nil if there is none.
func (s *Server) madeFor(ctx context.Context, id string) *kept {
	if k, err := s.sandbox(ctx, id); err == nil {
		return k
	}
	page, err := s.list(ctx, store.Query{Kind: store.Sandboxes})
	if err != nil {
		return nil
	}
	for _, r := range page.Records {
		if k, err := load(r); err == nil && k.asked == id {
			return k
		}
	}
	return nil
}

// makeFiles makes a layer on what a request names.
func (s *Server) makeFiles(ctx context.Context, r *baileyv1.CreateSandboxRequest, o delta.Options) (*delta.Delta, error) {
	switch {
	case r.GetSnapshotId() != "":
		return s.startFromSnapshot(ctx, r.GetSnapshotId(), o)
	case r.GetCodebaseId() != "":
		return s.startFromCodebase(ctx, r.GetCodebaseId(), o)
	}
	return s.files.Start(emptyCodebase, o)
}

// bringUp starts a sandbox, if it is to be started, and writes it down.
func (s *Server) bringUp(ctx context.Context, k *kept, start bool) error {
	sb := k.sandbox
	s.allot(k) // it may be older than the server's limits
	if !start {
		sp, err := s.compiled(k)
		if err == nil {
			err = s.config.Most.within(sp)
		}
		if err != nil {
			return err
		}
		sb.Runtime = runtimeOf(sp)
		return s.enroll(ctx, k, nil)
	}
	s.renew(sb.GetId())
	standing, err := s.raise(ctx, k)
	if err != nil {
		return err
	}
	sb.Ports = portsOf(standing.Ports)
	sb.State, sb.StateReason, sb.StartTime = baileyv1.SandboxState_SANDBOX_STATE_RUNNING, "", timestamppb.Now()
	return s.enroll(ctx, k, &standing)
}

// enroll writes a sandbox down. One that stands, and cannot be, ends.
func (s *Server) enroll(ctx context.Context, k *kept, standing *keeper.Standing) error {
	err := k.save()
	if err == nil {
		if standing != nil {
			s.add(s.newBox(k, standing))
		}
		err = s.store.Commit(ctx, store.Put(k.record))
	}
	if err != nil && standing != nil {
		s.drop(k.sandbox.GetId())
		err = errors.Join(err, s.end(k.sandbox.GetId(), 0))
	}
	if err == nil {
		s.emitState(k.sandbox)
	}
	return err
}

// compiled decides what a stored sandbox is.
func (s *Server) compiled(k *kept) (*spec.Spec, error) {
	over := k.over
	if over == nil {
		var err error
		if over, err = s.overlay(k.sandbox.GetId()); err != nil {
			return nil, err
		}
	}
	return s.compile(k.request, k.sandbox.GetImage(), k.bounded, over)
}

// overlay is where the files of a sandbox are.
func (s *Server) overlay(id string) (*spec.Overlay, error) {
	d, err := s.files.Store.Open(id, delta.Read)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := unmark(d.Work()); err != nil {
		return nil, err
	}
	return overlaid(d), nil
}

// overlaid is what a sandbox sees of a layer and those below it.
func overlaid(d *delta.Delta) *spec.Overlay {
	return &spec.Overlay{Name: d.Record.Name, Source: workspaceDir, Lowers: d.Lowers(), Upper: d.Upper(), Work: d.Work(), Volatile: true}
}

// raise has the keeper make the sandbox.
func (s *Server) raise(ctx context.Context, k *kept) (st keeper.Standing, err error) {
	id := k.sandbox.GetId()
	var sp *spec.Spec
	err = traced(ctx, "compile", id, trace.SpanKindInternal, func() (err error) {
		if sp, err = s.compiled(k); err != nil {
			return err
		}
		return s.config.Most.within(sp)
	})
	if err != nil {
		return st, err
	}
	remote, err := s.reach()
	if err != nil {
		return st, err
	}
	err = traced(ctx, "keeper open", id, trace.SpanKindClient, func() (err error) {
		st, err = remote.Open(id, sp, 0)
		return err
	})
	if err != nil {
		return st, explain(err)
	}
	k.sandbox.Runtime = runtimeOf(sp)
	return st, nil
}

// explain is an error of the keeper's as clients see it.
func explain(err error) error {
	var r *spec.Refused
	var dir *native.DirError
	switch {
	case errors.As(err, &r):
		return refused(err)
	case errors.As(err, &dir):
		return problem.Invalid("cwd", "no command can begin there: %w", dir.Errno)
	case errors.Is(err, keeper.ErrGone):
		return problem.Unavailable("keeper_ended", errors.New("the process that holds sandboxes has ended, and with it every sandbox"))
	case errors.Is(err, keeper.ErrMissing):
		return failed("sandbox_not_running", errors.New("the sandbox has ended"), problem.Remedy("start it"))
	}
	return failed("cannot_be_made", err, problem.Remedy("baileyd doctor says what this machine lacks"))
}

// end ends the processes of a sandbox, if there are any.
func (s *Server) end(id string, grace time.Duration) error {
	remote, err := s.reach()
	if err != nil {
		return err
	}
	if err := remote.Stop(id, grace); err != nil && !errors.Is(err, keeper.ErrMissing) {
		return explain(err)
	}
	return nil
}

// BatchCreateSandboxes implements the API.
func (s *Server) BatchCreateSandboxes(ctx context.Context, r *baileyv1.BatchCreateSandboxesRequest) (*baileyv1.BatchCreateSandboxesResponse, error) {
	n := int(r.GetCount())
	if n < 1 || n > 1000 {
		return nil, problem.Invalid("count", "%d is not from 1 to 1000", n)
	}
	template := r.GetTemplate()
	if template == nil {
		template = &baileyv1.CreateSandboxRequest{}
	}
	owner, err := s.mayCreate(ctx, template)
	if err != nil {
		return nil, err
	}
	release, err := s.admit(ctx, owner, n)
	if err != nil {
		return nil, err
	}
	defer release()
	made, errs := make([]*baileyv1.Sandbox, n), make([]error, n)
	var group sync.WaitGroup
	places := make(chan struct{}, 8)
	for i := range n {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			made[i], errs[i] = s.create(ctx, owner, proto.CloneOf(template))
		})
	}
	group.Wait()
	out := &baileyv1.BatchCreateSandboxesResponse{}
	for i, err := range errs {
		if err == nil {
			out.Sandboxes = append(out.Sandboxes, made[i])
			continue
		}
		f := &baileyv1.BatchFailure{Message: err.Error()}
		if p := problem.Of(err); p != nil {
			f.Reason, f.Remedy = p.GetReason(), p.GetRemedy()
		}
		out.Failures = append(out.Failures, f)
	}
	return out, nil
}

// GetSandbox implements the API.
func (s *Server) GetSandbox(ctx context.Context, r *baileyv1.GetSandboxRequest) (*baileyv1.Sandbox, error) {
	k, err := s.sandbox(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return k.sandbox, nil
}

// ListSandboxes implements the API.
func (s *Server) ListSandboxes(ctx context.Context, r *baileyv1.ListSandboxesRequest) (*baileyv1.ListSandboxesResponse, error) {
	q := store.Query{Kind: store.Sandboxes, Parent: r.GetCodebaseId()}
	if err := page(&q, r.GetPageSize(), r.GetPageToken()); err != nil {
		return nil, err
	}
	if err := chooseLabels(&q, r.GetLabels()); err != nil {
		return nil, err
	}
	for _, state := range r.GetStates() {
		q.States = append(q.States, stateName(state))
	}
	p, err := s.list(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &baileyv1.ListSandboxesResponse{NextPageToken: p.Next}
	for _, record := range p.Records {
		k, err := load(record)
		if err != nil {
			s.setAside(err)
			continue
		}
		out.Sandboxes = append(out.Sandboxes, k.sandbox)
	}
	return out, nil
}

// hold takes a sandbox of the caller's for who changes its state.
func (s *Server) hold(ctx context.Context, id string) (k *kept, end func(), err error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, nil, err
	}
	end = s.turns.take(id)
	if k, err = s.sandbox(ctx, id); err != nil {
		end()
		return nil, nil, err
	}
	return k, end, nil
}

// StartSandbox implements the API.
func (s *Server) StartSandbox(ctx context.Context, r *baileyv1.StartSandboxRequest) (*baileyv1.Sandbox, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	if st := k.sandbox.GetState(); st == baileyv1.SandboxState_SANDBOX_STATE_RUNNING || st == baileyv1.SandboxState_SANDBOX_STATE_PAUSED {
		return k.sandbox, nil
	}
	s.endView(k.sandbox.GetId())
	if err := s.bringUp(ctx, k, true); err != nil {
		return nil, err
	}
	return k.sandbox, nil
}

// StopSandbox implements the API.
func (s *Server) StopSandbox(ctx context.Context, r *baileyv1.StopSandboxRequest) (*baileyv1.Sandbox, error) {
	grace := 2 * time.Second
	if r.GetGrace() != nil {
		grace = max(r.GetGrace().AsDuration(), 0)
	}
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	if st := k.sandbox.GetState(); st != baileyv1.SandboxState_SANDBOX_STATE_RUNNING && st != baileyv1.SandboxState_SANDBOX_STATE_PAUSED {
		return k.sandbox, nil
	}
	if err := s.halt(k.sandbox.GetId(), grace); err != nil {
		return nil, err
	}
	return s.mark(ctx, k.sandbox.GetId(), baileyv1.SandboxState_SANDBOX_STATE_STOPPED)
}

// halt ends a sandbox that is meant to end: nobody writes down that it failed.
func (s *Server) halt(id string, grace time.Duration) error {
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b != nil {
		b.mu.Lock()
		b.halted = true
		b.mu.Unlock()
		b.tree.close()
	}
	err := s.end(id, grace)
	s.drop(id)
	return err
}

func (s *Server) mark(ctx context.Context, id string, state baileyv1.SandboxState) (*baileyv1.Sandbox, error) {
	k, err := s.change(ctx, id, func(sb *baileyv1.Sandbox) error {
		sb.State, sb.StateReason = state, ""
		if state == baileyv1.SandboxState_SANDBOX_STATE_STOPPED {
			sb.Ports = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.emitState(k.sandbox)
	return k.sandbox, nil
}

// PauseSandbox implements the API.
func (s *Server) PauseSandbox(ctx context.Context, r *baileyv1.PauseSandboxRequest) (*baileyv1.Sandbox, error) {
	return s.setFrozen(ctx, r.GetSandboxId(), true)
}

// ResumeSandbox implements the API.
func (s *Server) ResumeSandbox(ctx context.Context, r *baileyv1.ResumeSandboxRequest) (*baileyv1.Sandbox, error) {
	return s.setFrozen(ctx, r.GetSandboxId(), false)
}

func (s *Server) setFrozen(ctx context.Context, id string, frozen bool) (*baileyv1.Sandbox, error) {
	_, end, err := s.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	defer end()
	b, err := s.running(ctx, id)
	if err != nil {
		return nil, err
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	state := baileyv1.SandboxState_SANDBOX_STATE_RUNNING
	if frozen {
		state = baileyv1.SandboxState_SANDBOX_STATE_PAUSED
		err = remote.Freeze(id)
	} else {
		err = remote.Thaw(id)
	}
	if err != nil {
		return nil, failed("cannot_be_paused", err, problem.Remedy("%v", limits.ErrNoFreezer))
	}
	b.mu.Lock()
	b.frozen = frozen
	b.mu.Unlock()
	return s.mark(ctx, id, state)
}

// DestroySandbox implements the API. The record goes first: what is left behind
// then belongs to nothing, and the next server removes it if this one cannot. One
// whose record cannot be read can be destroyed, too.
func (s *Server) DestroySandbox(ctx context.Context, r *baileyv1.DestroySandboxRequest) (*emptypb.Empty, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	end := s.turns.take(r.GetSandboxId())
	defer end()
	record, err := s.find(ctx, store.Sandboxes, "sandbox", r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	k, err := load(record)
	if err != nil {
		k.sandbox = &baileyv1.Sandbox{Id: record.ID, Owner: record.Owner, CodebaseId: record.Parent}
	}
	if err := s.destroy(ctx, k); err != nil {
		return nil, err
	}
	if id := k.sandbox.GetCodebaseId(); r.GetDeleteCodebase() && id != "" {
		if _, err := s.DeleteCodebase(ctx, &baileyv1.DeleteCodebaseRequest{CodebaseId: id}); err != nil && connect.CodeOf(err) == connect.CodeInternal {
			return nil, err
		}
	}
	return &emptypb.Empty{}, nil
}

func (s *Server) destroy(ctx context.Context, k *kept) error {
	id := k.sandbox.GetId()
	snapshots, err := s.store.List(ctx, store.Query{Kind: store.Snapshots, Parent: id})
	if err != nil {
		return err
	}
	changes := []store.Change{store.Delete(&store.Record{Kind: store.Sandboxes, ID: id})}
	for _, n := range snapshots.Records { // they are kept with its files
		changes = append(changes, store.Delete(n))
	}
	if err := s.store.Commit(ctx, changes...); err != nil {
		return err
	}
	s.unplan(id)
	s.endView(id)
	s.endFeed(id)
	err = s.halt(id, 0)
	s.forgetAll(id)
	return errors.Join(err, s.removeFiles(id))
}

// GetStats implements the API.
func (s *Server) GetStats(ctx context.Context, r *baileyv1.GetStatsRequest) (*baileyv1.Stats, error) {
	b, err := s.running(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	u, err := remote.Usage(b.id)
	if err != nil {
		return nil, explain(err)
	}
	return s.stats(b, &u), nil
}

// takeImage gives a sandbox that is made of a snapshot the system that the files were
// written in: that of the sandbox which the snapshot was taken of, and goes with.
func (s *Server) takeImage(ctx context.Context, k *kept, snapshot string) error {
	r, err := s.find(ctx, store.Snapshots, "snapshot", snapshot)
	if err != nil {
		return err
	}
	from, err := s.sandbox(ctx, r.Parent)
	if err != nil {
		return err
	}
	k.sandbox.Image = from.sandbox.GetImage()
	return nil
}

var errSnapshot = errors.New("there is no such snapshot")

func (s *Server) startFromSnapshot(ctx context.Context, id string, o delta.Options) (*delta.Delta, error) {
	r, err := s.find(ctx, store.Snapshots, "snapshot", id)
	if err != nil {
		return nil, err
	}
	d, err := s.files.Fork(r.Parent, r.State, o)
	if errors.Is(err, delta.ErrNotFound) {
		return nil, failed("snapshot_gone", errSnapshot)
	}
	return d, err
}

func (s *Server) startFromCodebase(ctx context.Context, id string, o delta.Options) (*delta.Delta, error) {
	r, err := s.find(ctx, store.Codebases, "codebase", id)
	if err != nil {
		return nil, err
	}
	c, err := loadCodebase(r)
	if err != nil {
		return nil, err
	}
	d, err := s.files.Start(c.place(), o)
	if errors.Is(err, workspace.ErrNoCodebase) {
		return nil, problem.NotFound("codebase", id)
	}
	return d, err
}
