package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// The record of a snapshot has the sandbox as its parent, and what package
// workspace calls it as its state.

func loadSnapshot(r *store.Record) (*baileyv1.Snapshot, error) {
	n := &baileyv1.Snapshot{}
	return n, legible("snapshot", r, decode(r.Data, n))
}

// seal keeps the files of a sandbox as they are. Those of one that runs are copied
// while everything in it stands still; its turn is taken.
func (s *Server) seal(k *kept) (workspace.Snapshot, error) {
	id := k.sandbox.GetId()
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b == nil {
		s.endView(id)
		return s.snapshotFiles(id)
	}
	f, err := b.freezer()
	if err != nil {
		return workspace.Snapshot{}, err
	}
	n, err := s.files.SnapshotRunning(id, f)
	if err != nil {
		return n, failed("cannot_be_kept", err, problem.Remedy("stop the sandbox first"))
	}
	return n, nil
}

// freezer stops everything in a sandbox for a moment.
func (b *box) freezer() (workspace.Freezer, error) {
	b.mu.Lock()
	frozen := b.frozen
	b.mu.Unlock()
	if frozen {
		return still{}, nil
	}
	if b.partial {
		return workspace.Process(b.pid), nil // its helpers do not bear to be interrupted
	}
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.pid))
	if err != nil {
		return nil, failed("sandbox_not_running", errors.New("the sandbox has just ended"), problem.Remedy("try again"))
	}
	return workspace.Sandbox(namespace), nil
}

// still is a sandbox that is paused already.
type still struct{}

func (still) Freeze() (thaw func(), err error) { return func() {}, nil }

// CreateSnapshot implements the API.
func (s *Server) CreateSnapshot(ctx context.Context, r *baileyv1.CreateSnapshotRequest) (*baileyv1.Snapshot, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	id := madeID(ctx, "sn")
	if once.Again(ctx) {
		if r, err := s.snapshot(ctx, k.sandbox.GetId(), id); err == nil {
			return loadSnapshot(r)
		}
	}
	if _, err := s.mayStore(ctx, k.sandbox.GetOwner(), 0); err != nil {
		return nil, err
	}
	sealed, err := s.seal(k)
	if err != nil {
		return nil, err
	}
	n := &baileyv1.Snapshot{Id: id, Name: r.GetName(), SandboxId: k.sandbox.GetId(), CreateTime: timestamppb.New(sealed.Created)}
	if n.SizeBytes, err = s.files.Held(k.sandbox.GetId(), sealed); err != nil {
		return nil, errors.Join(err, s.files.RemoveSnapshot(k.sandbox.GetId(), sealed.ID))
	}
	data, err := encode(n)
	if err != nil {
		return nil, err
	}
	record := &store.Record{
		Kind: store.Snapshots, ID: n.GetId(), Owner: k.sandbox.GetOwner(), Parent: k.sandbox.GetId(), State: sealed.ID,
		Created: sealed.Created, Data: data,
	}
	if err := s.store.Commit(ctx, store.Put(record)); err != nil {
		return nil, errors.Join(err, s.files.RemoveSnapshot(k.sandbox.GetId(), sealed.ID))
	}
	return n, s.store.Sync(ctx)
}

// snapshot finds a snapshot of a sandbox of the caller's.
func (s *Server) snapshot(ctx context.Context, sandboxID, id string) (*store.Record, error) {
	r, err := s.find(ctx, store.Snapshots, "snapshot", id)
	if err == nil && r.Parent != sandboxID {
		err = problem.NotFound("snapshot", id)
	}
	return r, err
}

// ListSnapshots implements the API.
func (s *Server) ListSnapshots(ctx context.Context, r *baileyv1.ListSnapshotsRequest) (*baileyv1.ListSnapshotsResponse, error) {
	if _, err := s.sandbox(ctx, r.GetSandboxId()); err != nil {
		return nil, err
	}
	q := store.Query{Kind: store.Snapshots, Parent: r.GetSandboxId()}
	if err := page(&q, r.GetPageSize(), r.GetPageToken()); err != nil {
		return nil, err
	}
	p, err := s.list(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &baileyv1.ListSnapshotsResponse{NextPageToken: p.Next}
	for _, record := range p.Records {
		n, err := loadSnapshot(record)
		if err != nil {
			s.setAside(err)
			continue
		}
		out.Snapshots = append(out.Snapshots, n)
	}
	return out, nil
}

// DeleteSnapshot implements the API.
func (s *Server) DeleteSnapshot(ctx context.Context, r *baileyv1.DeleteSnapshotRequest) (*emptypb.Empty, error) {
	_, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	record, err := s.snapshot(ctx, r.GetSandboxId(), r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	if err := s.store.Commit(ctx, store.Delete(record)); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.files.RemoveSnapshot(r.GetSandboxId(), record.State)
}

// ExportSnapshot implements the API.
func (s *Server) ExportSnapshot(ctx context.Context, r *baileyv1.ExportSnapshotRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return err
	}
	record, err := s.snapshot(ctx, r.GetSandboxId(), r.GetSnapshotId())
	if err != nil {
		return err
	}
	return s.files.Export(&sent{to}, r.GetSandboxId(), record.State, archive.Plain)
}

// ForkSandbox implements the API.
func (s *Server) ForkSandbox(ctx context.Context, r *baileyv1.ForkSandboxRequest) (*baileyv1.ForkSandboxResponse, error) {
	if n := r.GetCount(); n < 0 || n > 1000 {
		return nil, problem.Invalid("count", "%d is not from 1 to 1000", n)
	}
	count := max(int(r.GetCount()), 1)
	k, from, err := s.forkFrom(ctx, r)
	if err != nil {
		return nil, err
	}
	release, err := s.admit(ctx, k.sandbox.GetOwner(), count)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &baileyv1.ForkSandboxResponse{}
	for range count {
		fork := s.newKept(ctx, k.sandbox.GetOwner(), proto.CloneOf(k.request), k.bounded)
		fork.sandbox.Name, fork.sandbox.Labels, fork.sandbox.ParentId = r.GetName(), r.GetLabels(), k.sandbox.GetId()
		fork.sandbox.Image = k.sandbox.GetImage()
		err := s.establish(ctx, fork, func(o delta.Options) (*delta.Delta, error) { return s.files.Fork(k.sandbox.GetId(), from, o) })
		if err != nil {
			return nil, fmt.Errorf("%d of %d were made: %w", len(out.GetSandboxes()), count, err)
		}
		out.Sandboxes = append(out.Sandboxes, fork.sandbox)
	}
	return out, nil
}

// forkFrom is what a sandbox is forked from, and which of its states.
func (s *Server) forkFrom(ctx context.Context, r *baileyv1.ForkSandboxRequest) (*kept, string, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, "", err
	}
	defer end()
	if r.GetSnapshotId() == "" {
		n, err := s.seal(k)
		return k, n.ID, err
	}
	record, err := s.snapshot(ctx, r.GetSandboxId(), r.GetSnapshotId())
	if err != nil {
		return nil, "", err
	}
	return k, record.State, nil
}

// RollbackSandbox implements the API.
func (s *Server) RollbackSandbox(ctx context.Context, r *baileyv1.RollbackSandboxRequest) (*baileyv1.Sandbox, error) {
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	record, err := s.snapshot(ctx, r.GetSandboxId(), r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	id := k.sandbox.GetId()
	s.mu.Lock()
	ran := s.boxes[id] != nil
	s.mu.Unlock()
	s.endView(id)
	if ran {
		if err := s.halt(id, 2*time.Second); err != nil {
			return nil, err
		}
	}
	if err := s.files.Rollback(id, record.State); err != nil {
		return nil, err
	}
	if !ran {
		return k.sandbox, nil
	}
	if err := s.bringUp(ctx, k, true); err != nil {
		return nil, err
	}
	return k.sandbox, nil
}
