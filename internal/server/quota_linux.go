package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/version"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Quota bounds what each owner has. Zero is no limit.
type Quota struct {
	Sandboxes int
	Execs     int   // that run at once
	Storage   int64 // bytes of codebases, snapshots and changes
	// Rate is how many requests may come in a second. The transport holds it.
	Rate float64
}

// admit says whether so many sandboxes may be made for an owner, before anything
// is, and counts them until release is called.
func (s *Server) admit(ctx context.Context, owner string, n int) (release func(), err error) {
	if s.room(n) != nil {
		s.pool.drain()
		if err := s.room(n); err != nil {
			return nil, err
		}
	}
	if _, err := s.mayStore(ctx, owner, 0); err != nil {
		return nil, err
	}
	most := s.config.Quota.Sandboxes
	if most == 0 {
		return func() {}, nil
	}
	end := s.turns.take("owner " + owner)
	defer end()
	have, err := s.store.Count(ctx, store.Query{Kind: store.Sandboxes, Owner: owner})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making == nil {
		s.making = make(map[string]int)
	}
	if have+s.making[owner]+n > most {
		return nil, exhausted("sandboxes", fmt.Errorf("%s has %d sandboxes, and may have %d", owner, have, most), "destroy sandboxes that are not needed")
	}
	s.making[owner] += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.making[owner] -= n; s.making[owner] == 0 {
			delete(s.making, owner)
		}
	}, nil
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.boxes)
}

func exhausted(what string, err error, remedy string) error {
	return problem.New(connect.CodeResourceExhausted, what+"_exhausted", err, problem.Remedy("%s", remedy), problem.Retryable())
}

// plan has a sandbox destroyed when its time is over.
func (s *Server) plan(k *kept) {
	id := k.sandbox.GetId()
	s.unplan(id)
	if k.sandbox.GetExpireTime() == nil {
		return
	}
	timer := time.AfterFunc(time.Until(k.sandbox.GetExpireTime().AsTime()), func() {
		s.behind(func(ctx context.Context) { s.reap(ctx, id, "its time is over") })
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry[id] = timer
}

func (s *Server) unplan(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.expiry[id]; t != nil {
		t.Stop()
		delete(s.expiry, id)
	}
}

// reap destroys a sandbox that nobody asked to be destroyed.
func (s *Server) reap(ctx context.Context, id, why string) {
	end := s.turns.take(id)
	defer end()
	r, err := s.store.Get(ctx, store.Sandboxes, id)
	if errors.Is(err, store.ErrNotFound) {
		return
	}
	var k *kept
	if err == nil {
		k, err = load(r)
	}
	if err == nil && s.stillDue(k) {
		err = s.destroy(ctx, k)
	}
	if err != nil {
		s.log.Error("a sandbox could not be destroyed", "sandbox", id, "why", why, "error", err)
		return
	}
	s.log.Info("a sandbox was destroyed", "sandbox", id, "why", why)
}

// stillDue says whether a sandbox is to be destroyed: its time may have been
// extended, or a command begun, since somebody thought so.
func (s *Server) stillDue(k *kept) bool {
	if t := k.sandbox.GetExpireTime(); t != nil && !t.AsTime().After(time.Now()) {
		return true
	}
	s.mu.Lock()
	b := s.boxes[k.sandbox.GetId()]
	s.mu.Unlock()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idleAfter > 0 && b.busy == 0
}

// stats is what a sandbox uses, as clients see it. The control group of one with limits
// has counted that; of others it is what their processes tell, with those that were waited
// for.
func (s *Server) stats(b *box, u *keeper.Used) *baileyv1.Stats {
	out := &baileyv1.Stats{SandboxId: b.id, Time: timestamppb.Now(), Denials: int64(u.Denials)}
	if found := census(map[string]int{b.id: b.pid})[b.id]; found != nil {
		out.MemoryBytes, out.CpuTime = found.memory, durationpb.New(found.cpu)
		out.ReadBytes, out.WrittenBytes = found.read, found.written
		out.Processes = int32(max(found.threads-1, 0)) // the first is Bailey's own
	}
	out.MemoryPeakBytes = b.highest(out.GetMemoryBytes())
	if u.Known && u.Usage.Memory >= 0 {
		out.MemoryBytes, out.CpuTime = u.Usage.Memory, durationpb.New(u.Usage.User+u.Usage.System)
		out.MemoryPeakBytes = max(u.Usage.PeakMemory, 0)
		out.ReadBytes, out.WrittenBytes = max(u.Usage.Read, 0), max(u.Usage.Written, 0)
	}
	if u.Known && u.Usage.Processes >= 0 {
		out.Processes = int32(u.Usage.Processes)
	}
	if usage, err := workspace.Usage(s.files.Dir() + "/workspaces/" + b.id + "/upper"); err == nil {
		out.DiskBytes = usage.Bytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.execs {
		if e.box == b && !isClosed(e.done) {
			out.Execs++
		}
	}
	return out
}

// GetServer implements the API.
func (s *Server) GetServer(ctx context.Context, _ *baileyv1.GetServerRequest) (*baileyv1.Server, error) {
	who := caller.From(ctx)
	out := &baileyv1.Server{Version: version.Version, StartTime: timestamppb.New(s.began), Owner: who.Owner}
	for _, scope := range who.Scopes {
		out.Scopes = append(out.Scopes, string(scope))
	}
	out.Runtimes = runtimes()
	s.mu.Lock()
	out.Draining = s.closing
	s.mu.Unlock()
	return out, nil
}

// GetUsage implements the API.
func (s *Server) GetUsage(ctx context.Context, r *baileyv1.GetUsageRequest) (*baileyv1.Usage, error) {
	owner, err := caller.From(ctx).ActFor(r.GetOwner())
	if err != nil {
		return nil, err
	}
	n, err := s.store.Count(ctx, store.Query{Kind: store.Sandboxes, Owner: owner})
	if err != nil {
		return nil, err
	}
	bytes, err := s.storage(ctx, owner)
	if err != nil {
		return nil, err
	}
	most := s.config.Quota
	out := &baileyv1.Usage{
		Owner: owner, Sandboxes: int32(n), SandboxesLimit: int32(most.Sandboxes), ExecsLimit: int32(most.Execs),
		StorageBytes: bytes, StorageLimitBytes: most.Storage, RequestsPerSecondLimit: most.Rate,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Execs = int32(s.runningExecs(owner))
	return out, nil
}
