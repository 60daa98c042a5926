package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// Sandbox is a place to run commands in.
type Sandbox struct {
	client       *Client
	info         *baileyv1.Sandbox
	ownsClient   bool
	ownsCodebase bool
}

// Create makes a sandbox as the request says; nil is one without a codebase.
func (c *Client) Create(ctx context.Context, r *baileyv1.CreateSandboxRequest) (*Sandbox, error) {
	if r == nil {
		r = &baileyv1.CreateSandboxRequest{}
	}
	info, err := c.Sandboxes.CreateSandbox(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Sandbox{client: c, info: info}, nil
}

// CreateMany makes many equal sandboxes in one request, all or an error.
func (c *Client) CreateMany(ctx context.Context, count int, template *baileyv1.CreateSandboxRequest) ([]*Sandbox, error) {
	res, err := c.Sandboxes.BatchCreateSandboxes(ctx, &baileyv1.BatchCreateSandboxesRequest{Template: template, Count: int32(count)}) //nolint:gosec // the server takes 1000
	if err != nil {
		return nil, err
	}
	var made []*Sandbox
	for _, info := range res.GetSandboxes() {
		made = append(made, &Sandbox{client: c, info: info})
	}
	if failures := res.GetFailures(); len(failures) > 0 {
		err = fmt.Errorf("sdk: %d of %d sandboxes were not made: %s: %s", len(failures), count, failures[0].GetReason(), failures[0].GetMessage())
		for _, s := range made {
			err = errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	return made, nil
}

// Open returns a sandbox that is there.
func (c *Client) Open(ctx context.Context, id string) (*Sandbox, error) {
	info, err := c.Sandboxes.GetSandbox(ctx, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		return nil, err
	}
	return &Sandbox{client: c, info: info}, nil
}

// FromLocal makes a sandbox with a copy of a local directory at /workspace. The
// directory itself never changes. The request says the rest, and may be nil.
func (c *Client) FromLocal(ctx context.Context, dir string, r *baileyv1.CreateSandboxRequest) (*Sandbox, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	codebase, err := c.Codebases.CreateCodebase(ctx, &baileyv1.CreateCodebaseRequest{Name: filepath.Base(dir), Owner: r.GetOwner()})
	if err != nil {
		return nil, err
	}
	request := &baileyv1.CreateSandboxRequest{}
	if r != nil {
		request = r
	}
	request.Source = &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: codebase.GetId()}
	_, err = c.Upload(ctx, codebase.GetId(), dir)
	var s *Sandbox
	if err == nil {
		s, err = c.Create(ctx, request)
	}
	if err != nil {
		_, derr := c.Codebases.DeleteCodebase(context.WithoutCancel(ctx), &baileyv1.DeleteCodebaseRequest{CodebaseId: codebase.GetId()})
		return nil, errors.Join(err, derr)
	}
	s.ownsCodebase = true
	return s, nil
}

// FromLocal is the method of the same name of a Client that it connects, and that
// the sandbox closes when it is destroyed.
func FromLocal(ctx context.Context, dir string, r *baileyv1.CreateSandboxRequest) (*Sandbox, error) {
	c, err := Connect(Options{})
	if err != nil {
		return nil, err
	}
	s, err := c.FromLocal(ctx, dir, r)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.ownsClient = true
	return s, nil
}

// ID is the sandbox's.
func (s *Sandbox) ID() string { return s.info.GetId() }

// Info is the sandbox as it was last seen.
func (s *Sandbox) Info() *baileyv1.Sandbox { return s.info }

// Client is the connection that the sandbox uses.
func (s *Sandbox) Client() *Client { return s.client }

// Refresh asks the server how the sandbox is.
func (s *Sandbox) Refresh(ctx context.Context) (*baileyv1.Sandbox, error) {
	return s.seen(s.client.Sandboxes.GetSandbox(ctx, &baileyv1.GetSandboxRequest{SandboxId: s.ID()}))
}

func (s *Sandbox) seen(info *baileyv1.Sandbox, err error) (*baileyv1.Sandbox, error) {
	if err == nil {
		s.info = info
	}
	return info, err
}

// Start starts a sandbox that is stopped. Its files are as they were.
func (s *Sandbox) Start(ctx context.Context) error {
	_, err := s.seen(s.client.Sandboxes.StartSandbox(ctx, &baileyv1.StartSandboxRequest{SandboxId: s.ID()}))
	return err
}

// Stop ends every process, after the time of grace, and keeps the files.
func (s *Sandbox) Stop(ctx context.Context, grace time.Duration) error {
	_, err := s.seen(s.client.Sandboxes.StopSandbox(ctx, &baileyv1.StopSandboxRequest{SandboxId: s.ID(), Grace: durationpb.New(grace)}))
	return err
}

// Pause freezes every process where it is.
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.seen(s.client.Sandboxes.PauseSandbox(ctx, &baileyv1.PauseSandboxRequest{SandboxId: s.ID()}))
	return err
}

// Resume lets processes go on.
func (s *Sandbox) Resume(ctx context.Context) error {
	_, err := s.seen(s.client.Sandboxes.ResumeSandbox(ctx, &baileyv1.ResumeSandboxRequest{SandboxId: s.ID()}))
	return err
}

// Destroy ends the sandbox and removes what it wrote, with the codebase if
// FromLocal made it.
func (s *Sandbox) Destroy(ctx context.Context) error {
	_, err := s.client.Sandboxes.DestroySandbox(ctx, &baileyv1.DestroySandboxRequest{SandboxId: s.ID(), DeleteCodebase: s.ownsCodebase})
	if s.ownsClient {
		err = errors.Join(err, s.client.Close())
	}
	return err
}

// Update changes labels, times, network and rules of a sandbox that stands. The request
// says what.
func (s *Sandbox) Update(ctx context.Context, r *baileyv1.UpdateSandboxRequest) error {
	r.SandboxId = s.ID()
	_, err := s.seen(s.client.Sandboxes.UpdateSandbox(ctx, r))
	return err
}

// Snapshot keeps the files as they are now.
func (s *Sandbox) Snapshot(ctx context.Context, name string) (*baileyv1.Snapshot, error) {
	return s.client.Sandboxes.CreateSnapshot(ctx, &baileyv1.CreateSnapshotRequest{SandboxId: s.ID(), Name: name})
}

// Snapshots lists them, the latest first.
func (s *Sandbox) Snapshots(ctx context.Context) ([]*baileyv1.Snapshot, error) {
	r := &baileyv1.ListSnapshotsRequest{SandboxId: s.ID()}
	return pages(ctx, s.client.Sandboxes.ListSnapshots, r, &r.PageToken, (*baileyv1.ListSnapshotsResponse).GetSnapshots)
}

// DeleteSnapshot removes a snapshot.
func (s *Sandbox) DeleteSnapshot(ctx context.Context, snapshot *baileyv1.Snapshot) error {
	_, err := s.client.Sandboxes.DeleteSnapshot(ctx, &baileyv1.DeleteSnapshotRequest{SandboxId: s.ID(), SnapshotId: snapshot.GetId()})
	return err
}

// ExportSnapshot writes the whole tree of a snapshot as a tar archive.
func (s *Sandbox) ExportSnapshot(ctx context.Context, snapshot *baileyv1.Snapshot, to io.Writer) error {
	return receive(to)(s.client.Sandboxes.ExportSnapshot(ctx, &baileyv1.ExportSnapshotRequest{SandboxId: s.ID(), SnapshotId: snapshot.GetId()}))
}

// Rollback goes back to the files of a snapshot.
func (s *Sandbox) Rollback(ctx context.Context, snapshot *baileyv1.Snapshot) error {
	_, err := s.seen(s.client.Sandboxes.RollbackSandbox(ctx, &baileyv1.RollbackSandboxRequest{SandboxId: s.ID(), SnapshotId: snapshot.GetId()}))
	return err
}

// Fork makes sandboxes that begin with the files of this one, at a snapshot or,
// if that is nil, now.
func (s *Sandbox) Fork(ctx context.Context, count int, snapshot *baileyv1.Snapshot) ([]*Sandbox, error) {
	res, err := s.client.Sandboxes.ForkSandbox(ctx, &baileyv1.ForkSandboxRequest{SandboxId: s.ID(), SnapshotId: snapshot.GetId(), Count: int32(count)}) //nolint:gosec // the server refuses what is too many
	if err != nil {
		return nil, err
	}
	var all []*Sandbox
	for _, info := range res.GetSandboxes() {
		all = append(all, &Sandbox{client: s.client, info: info})
	}
	return all, nil
}

// Diff is what the sandbox changed in its codebase, at these paths or all.
func (s *Sandbox) Diff(ctx context.Context, paths ...string) ([]*baileyv1.Change, error) {
	res, err := s.client.Sandboxes.DiffSandbox(ctx, &baileyv1.DiffSandboxRequest{SandboxId: s.ID(), Paths: paths})
	return res.GetChanges(), err
}

// Patch is the same as a patch that "git apply" takes.
func (s *Sandbox) Patch(ctx context.Context, paths ...string) ([]byte, error) {
	res, err := s.client.Sandboxes.DiffSandbox(ctx, &baileyv1.DiffSandboxRequest{SandboxId: s.ID(), Paths: paths, Format: baileyv1.DiffFormat_DIFF_FORMAT_PATCH})
	return res.GetPatch(), err
}

// Apply writes what the sandbox changed into its codebase, all of it or nothing.
func (s *Sandbox) Apply(ctx context.Context, paths ...string) ([]*baileyv1.Change, error) {
	res, err := s.client.Sandboxes.ApplySandbox(ctx, &baileyv1.ApplySandboxRequest{SandboxId: s.ID(), Paths: paths})
	return res.GetChanges(), err
}

// ExposePort makes a TCP port of the sandbox reachable from the server's machine,
// and returns the address.
func (s *Sandbox) ExposePort(ctx context.Context, port int) (string, error) {
	res, err := s.client.Sandboxes.ExposePort(ctx, &baileyv1.ExposePortRequest{SandboxId: s.ID(), Port: int32(port)}) //nolint:gosec // the server refuses what is no port
	return res.GetAddress(), err
}

// UnexposePort ends that, and the connections there.
func (s *Sandbox) UnexposePort(ctx context.Context, port int) error {
	_, err := s.client.Sandboxes.UnexposePort(ctx, &baileyv1.UnexposePortRequest{SandboxId: s.ID(), Port: int32(port)}) //nolint:gosec // the server knows no other
	return err
}

// Events tells what happens in the sandbox from now on, or after the event of a cursor;
// without kinds it is everything. A lost connection is taken up again where it was.
func (s *Sandbox) Events(ctx context.Context, after string, kinds ...string) iter.Seq2[*baileyv1.Event, error] {
	r := &baileyv1.WatchEventsRequest{SandboxId: s.ID(), After: after, Kinds: kinds}
	return persistent(ctx, func(ctx context.Context) (*connect.ServerStreamForClient[baileyv1.Event], error) {
		return s.client.Sandboxes.WatchEvents(ctx, r)
	}, func(e *baileyv1.Event) { r.After = e.GetCursor() })
}

// Stats is what the sandbox uses.
func (s *Sandbox) Stats(ctx context.Context) (*baileyv1.Stats, error) {
	return s.client.Sandboxes.GetStats(ctx, &baileyv1.GetStatsRequest{SandboxId: s.ID()})
}
