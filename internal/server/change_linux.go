package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
)

const (
	// mostChanges and mostPatched bound one answer: the changes that are listed, and
	// the bytes of the files that a patch is made of.
	mostChanges = 100_000
	mostPatched = 64 << 20
)

// DiffSandbox implements the API. Everything in a sandbox that runs stands still
// meanwhile.
func (s *Server) DiffSandbox(ctx context.Context, r *baileyv1.DiffSandboxRequest) (*baileyv1.DiffSandboxResponse, error) {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return nil, err
	}
	paths, err := cleanPaths(r.GetPaths())
	if err != nil {
		return nil, err
	}
	id := r.GetSandboxId()
	end := s.turns.take(id)
	defer end()
	if _, err := s.sandbox(ctx, id); err != nil {
		return nil, err
	}
	thaw, err := s.standStill(id)
	if err != nil {
		return nil, err
	}
	defer thaw()
	c, err := s.files.Compare(id)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return describeChanges(c, change.Select(c.Changes, paths), r.GetFormat() == baileyv1.DiffFormat_DIFF_FORMAT_PATCH)
}

// standStill stops a sandbox, if it runs, until it is thawed.
func (s *Server) standStill(id string) (thaw func(), err error) {
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b == nil {
		return func() {}, nil
	}
	f, err := b.freezer()
	if err != nil {
		return nil, err
	}
	if thaw, err = f.Freeze(); err != nil {
		return nil, failed("cannot_be_compared", err, problem.Remedy("stop the sandbox first"))
	}
	return thaw, nil
}

func cleanPaths(list []string) (clean []string, err error) {
	for _, name := range list {
		if name, err = cleanPath("paths", name); err != nil {
			return nil, err
		}
		clean = append(clean, name)
	}
	return clean, nil
}

// describeChanges is what changes are as clients see them.
func describeChanges(c *change.Comparison, list []change.Change, patch bool) (*baileyv1.DiffSandboxResponse, error) {
	if len(list) > mostChanges {
		return nil, failed("too_many_changes", fmt.Errorf("%d paths are more than one answer holds", len(list)),
			problem.Remedy("ask for some of the paths, or take a snapshot and export it"))
	}
	out := &baileyv1.DiffSandboxResponse{}
	for i := range list {
		ch := describeChange(&list[i])
		var err error
		if ch.Binary, err = c.IsBinary(&list[i]); err != nil {
			return nil, err
		}
		out.Changes = append(out.Changes, ch)
	}
	if !patch {
		return out, nil
	}
	var b bytes.Buffer
	if err := patchable(list); err != nil {
		return nil, err
	}
	if err := c.WritePatch(&b, list); err != nil {
		return nil, err
	}
	out.Patch = b.Bytes()
	return out, nil
}

// patchable refuses a patch that the server would have to hold as a whole, and
// should not.
func patchable(list []change.Change) error {
	left := int64(mostPatched) // sizes can be such that their sum is no number
	for i := range list {
		for _, e := range []*change.Entry{list[i].Old, list[i].New} {
			if e == nil {
				continue
			}
			if e.Size > left {
				return failed("too_large", fmt.Errorf("a patch of files of more than %d bytes is more than one answer holds", mostPatched),
					problem.Remedy("ask for some of the paths, or take a snapshot and export it"))
			}
			left -= e.Size
		}
	}
	return nil
}

var changeKinds = map[change.Kind]baileyv1.ChangeKind{
	change.Added:   baileyv1.ChangeKind_CHANGE_KIND_ADDED,
	change.Changed: baileyv1.ChangeKind_CHANGE_KIND_MODIFIED,
	change.Mode:    baileyv1.ChangeKind_CHANGE_KIND_MODIFIED,
	change.Symlink: baileyv1.ChangeKind_CHANGE_KIND_MODIFIED,
	change.Deleted: baileyv1.ChangeKind_CHANGE_KIND_DELETED,
	change.Type:    baileyv1.ChangeKind_CHANGE_KIND_TYPE,
}

func describeChange(c *change.Change) *baileyv1.Change {
	e := c.New
	if e == nil {
		e = c.Old
	}
	out := &baileyv1.Change{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Kind: changeKinds[c.Kind], Type: string(e.Type)}
	if c.New != nil {
		out.SizeBytes, out.Mode = c.New.Size, c.New.Mode
	}
	return out
}

// ApplySandbox implements the API. The next version of the codebase is made of the
// one that it has now, so that others may have changed other files of it
// meanwhile.
func (s *Server) ApplySandbox(ctx context.Context, r *baileyv1.ApplySandboxRequest) (*baileyv1.ApplySandboxResponse, error) {
	paths, err := cleanPaths(r.GetPaths())
	if err != nil {
		return nil, err
	}
	k, end, err := s.hold(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	id, codebaseID := k.sandbox.GetId(), k.sandbox.GetCodebaseId()
	if codebaseID == "" {
		return nil, failed("no_codebase", errors.New("the sandbox was not made from a codebase"), problem.About("sandbox_id", id),
			problem.Remedy("export a snapshot, or ask for a patch"))
	}
	sealed, err := s.seal(k)
	if err != nil {
		return nil, err
	}
	defer s.dropSealed(id, sealed.ID)
	o := workspace.ApplyOptions{Workspace: id, Snapshot: sealed.ID, Paths: paths}
	if r.GetMerge() {
		o.Merge = change.Clean
	}
	return s.apply(ctx, codebaseID, o)
}

func (s *Server) dropSealed(id, snapshot string) {
	if err := s.files.RemoveSnapshot(id, snapshot); err != nil {
		s.log.Warn("a snapshot stays that was made to apply it", "sandbox", id, "error", err)
	}
}

// apply makes the next version of a codebase. With it is written down that the
// sandbox has to follow, which the next server does should this one be killed.
func (s *Server) apply(ctx context.Context, codebaseID string, o workspace.ApplyOptions) (*baileyv1.ApplySandboxResponse, error) {
	var result *change.Result
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	applied := &store.Record{Kind: store.Applied, ID: o.Workspace + "/" + o.Snapshot, Parent: o.Workspace, Created: time.Now(), Data: data}
	next, err := s.advance(ctx, codebaseID, func(c *codebase, place string) (made workspace.Codebase, err error) {
		o.Codebase, o.Name = c.place(), place
		made, result, err = s.files.Apply(o)
		return made, err
	}, store.Put(applied))
	if errors.Is(err, workspace.ErrNoChange) {
		return s.applyNothing(ctx, codebaseID)
	}
	if err != nil {
		return nil, conflict(err)
	}
	if err := s.follow(ctx, o, applied); err != nil {
		return nil, err
	}
	out := &baileyv1.ApplySandboxResponse{CodebaseVersion: next.GetVersion()}
	for i := range result.Applied {
		out.Changes = append(out.Changes, describeChange(&result.Applied[i]))
	}
	return out, nil
}

// follow lets a sandbox begin with what was applied of it, and so not have it as
// changes any more.
func (s *Server) follow(ctx context.Context, o workspace.ApplyOptions, applied *store.Record) error {
	if err := s.files.Rebase(o); err != nil && !errors.Is(err, workspace.ErrNoChange) {
		// They are applied, and only look as if they were not.
		s.log.Warn("changes that were applied are still listed", "sandbox", o.Workspace, "error", err)
	}
	return s.store.Commit(ctx, store.Delete(applied))
}

// followAll does that for what an earlier server has applied. Of sandboxes that are
// not known nothing is left to be done.
func (s *Server) followAll(ctx context.Context, known map[string]bool) error {
	page, err := s.store.List(ctx, store.Query{Kind: store.Applied})
	if err != nil {
		return err
	}
	for _, r := range page.Records {
		var o workspace.ApplyOptions
		if !known[r.Parent] || json.Unmarshal(r.Data, &o) != nil {
			err = errors.Join(err, s.store.Commit(ctx, store.Delete(r)))
			continue
		}
		err = errors.Join(err, s.follow(ctx, o, r))
		s.dropSealed(o.Workspace, o.Snapshot)
	}
	return err
}

func (s *Server) applyNothing(ctx context.Context, codebaseID string) (*baileyv1.ApplySandboxResponse, error) {
	r, err := s.find(ctx, store.Codebases, "codebase", codebaseID)
	if err != nil {
		return nil, err
	}
	c, err := loadCodebase(r)
	if err != nil {
		return nil, err
	}
	return &baileyv1.ApplySandboxResponse{CodebaseVersion: c.GetVersion()}, nil
}

// conflict names the paths that others have changed as well, each with what they
// did to it.
func conflict(err error) error {
	var c *change.Conflict
	if !errors.As(err, &c) {
		return err
	}
	const most = 100
	options := []problem.Option{problem.Remedy("make a sandbox from the codebase as it is now, ask for the changes as a patch, and apply that there; or set merge")}
	for _, clash := range c.Clashes[:min(len(c.Clashes), most)] {
		options = append(options, problem.About(strings.ToValidUTF8(clash.Path, "\uFFFD"), clash.Why))
	}
	return problem.New(connect.CodeAborted, "codebase_changed", fmt.Errorf("%d of the files were changed in the codebase as well", len(c.Clashes)), options...)
}
