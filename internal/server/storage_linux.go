package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// measured is what an owner took on the disk when somebody looked, with what was
// written by requests since.
type measured struct {
	bytes int64
	at    time.Time
}

// measureAgain is how long a measurement serves: to take one is to look at every file
// that sandboxes of the owner have changed. What commands write meanwhile is seen by
// the next one.
const measureAgain = 5 * time.Second

// storage measures what the codebases of an owner, and the snapshots and changes of its
// sandboxes, take. What several of them share is counted once.
func (s *Server) storage(ctx context.Context, owner string) (bytes int64, err error) {
	layers := make(map[string]bool)
	page, err := s.store.List(ctx, store.Query{Kind: store.Codebases, Owner: owner})
	if err != nil {
		return 0, err
	}
	for _, r := range page.Records {
		c, err := loadCodebase(r)
		if err != nil {
			return 0, err
		}
		if made, err := s.files.Codebase(c.place()); err == nil { // it may just have been deleted
			note(layers, made.Layers)
		}
	}
	if page, err = s.store.List(ctx, store.Query{Kind: store.Sandboxes, Owner: owner}); err != nil {
		return 0, err
	}
	for _, r := range page.Records {
		n, err := s.changes(r.ID, layers)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	for id := range layers {
		bytes += s.layerBytes(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[owner] = measured{bytes, time.Now()}
	return bytes, nil
}

func note(layers map[string]bool, ids []string) {
	for _, id := range ids {
		layers[id] = true
	}
}

// changes measures what a sandbox has written since its last snapshot, and notes the
// layers that it and its snapshots lie on. One that has just been destroyed takes nothing,
// and what its commands have closed to the server's user is not seen.
func (s *Server) changes(id string, layers map[string]bool) (int64, error) {
	d, err := s.files.Peek(id)
	if errors.Is(err, delta.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, l := range d.Record.Stack {
		if l.Layer != "" {
			layers[l.Layer] = true
		}
	}
	snapshots, err := s.files.Snapshots(id)
	if err != nil {
		return 0, err
	}
	for _, n := range snapshots {
		note(layers, n.Layers)
	}
	usage, _ := workspace.Usage(d.Upper()) // as far as it could be seen
	return usage.Bytes, nil
}

// layerBytes is what a layer takes. One that was never counted is measured, once: its
// files do not change.
func (s *Server) layerBytes(id string) int64 {
	s.mu.Lock()
	bytes, known := s.layers[id]
	s.mu.Unlock()
	if known {
		return bytes
	}
	l, err := s.files.Layer(id)
	if err != nil {
		return 0 // it went meanwhile
	}
	if bytes = l.Bytes; bytes == 0 {
		usage, _ := workspace.Usage(s.files.LayerTree(id)) // as far as it could be seen
		bytes = usage.Bytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[id] = bytes
	return bytes
}

// mayStore refuses an owner who has stored as much as it may, or would with so many
// bytes more, and returns what is left beyond them.
func (s *Server) mayStore(ctx context.Context, owner string, more int64) (left int64, err error) {
	most := s.config.Quota.Storage
	if most == 0 {
		return math.MaxInt64, nil
	}
	s.mu.Lock()
	m := s.stored[owner]
	s.mu.Unlock()
	// Who is about to be refused may have removed something since.
	if time.Since(m.at) > measureAgain || m.bytes+more >= most {
		if m.bytes, err = s.storage(ctx, owner); err != nil {
			return 0, err
		}
	}
	if left = most - m.bytes - more; left < 0 || left == 0 && more == 0 {
		return 0, s.storageFull(owner, m.bytes+more)
	}
	s.tookUp(owner, more)
	return left, nil
}

// tookUp counts what a request has stored before somebody measures again.
func (s *Server) tookUp(owner string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, known := s.stored[owner]; known {
		m.bytes += bytes
		s.stored[owner] = m
	}
}

// unmeasured has an owner measured before it stores more.
func (s *Server) unmeasured(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, owner)
}

func (s *Server) storageFull(owner string, bytes int64) error {
	return exhausted("storage", fmt.Errorf("%s would store %d bytes, and may store %v", owner, bytes, policy.Size(s.config.Quota.Storage)),
		"remove codebases, snapshots, sandboxes or files that are not needed")
}

// mayWrite is mayStore for who writes a file of a request's tree.
func (s *Server) mayWrite(ctx context.Context, r named, more int64) (owner string, left int64, err error) {
	if s.config.Quota.Storage == 0 {
		return "", math.MaxInt64, nil
	}
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return "", 0, err
	}
	kind, noun, id := store.Sandboxes, "sandbox", r.GetSandboxId()
	if r.GetCodebaseId() != "" {
		kind, noun, id = store.Codebases, "codebase", r.GetCodebaseId()
	}
	record, err := s.find(ctx, kind, noun, id)
	if err != nil {
		return "", 0, err
	}
	left, err = s.mayStore(ctx, record.Owner, more)
	return record.Owner, left, err
}

// rationed writes no more to a file than an owner may store.
type rationed struct {
	*os.File
	server *Server
	owner  string
	left   int64
}

func (f *rationed) Write(b []byte) (int, error) {
	if f.left -= int64(len(b)); f.left < 0 {
		return 0, f.server.storageFull(f.owner, f.server.config.Quota.Storage-f.left)
	}
	n, err := f.File.Write(b)
	f.server.tookUp(f.owner, int64(n))
	return n, err
}
