package server

import (
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

func TestSnapshotsKeepFiles(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Env: map[string]string{"WHO": "me"}})
	s.says(id, "echo one > note; mkdir d; echo x > d/x", "")
	n, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id, Name: "first"}) // while it runs
	if err != nil {
		t.Fatal(err)
	}
	s.says(id, "cat note; echo two > note; rm -r d", "one\n")
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	second, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	// "one\n" and "x\n" while it ran, and "two\n" of those that are left.
	if n.GetSizeBytes() != 6 || second.GetSizeBytes() != 4 {
		t.Errorf("they hold %d and %d bytes, want 6 and 4", n.GetSizeBytes(), second.GetSizeBytes())
	}
	l, err := s.ListSnapshots(ann, &baileyv1.ListSnapshotsRequest{SandboxId: id})
	if err != nil || len(l.GetSnapshots()) != 2 || l.GetSnapshots()[1].GetName() != "first" {
		t.Errorf("%v, %v", l, err)
	}
	forks, err := s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: id, SnapshotId: n.GetId(), Count: 2})
	if err != nil || len(forks.GetSandboxes()) != 2 {
		t.Fatalf("%v, %v", forks, err)
	}
	one, two := forks.GetSandboxes()[0].GetId(), forks.GetSandboxes()[1].GetId()
	s.says(one, "cat note d/x; echo $WHO; echo mine > note", "one\nx\nme\n")
	s.says(two, "cat note", "one\n")
	now, err := s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: one}) // as it is, while it runs
	if err != nil {
		t.Fatal(err)
	}
	s.says(now.GetSandboxes()[0].GetId(), "cat note", "mine\n")
	from := s.create(&baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_SnapshotId{SnapshotId: second.GetId()}})
	s.says(from, "cat note; ls", "two\nnote\n")
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	sb, err := s.RollbackSandbox(ann, &baileyv1.RollbackSandboxRequest{SandboxId: id, SnapshotId: n.GetId()})
	if err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Fatalf("%v, %v", sb, err)
	}
	s.says(id, "cat note d/x", "one\nx\n")
	if _, err := s.DeleteSnapshot(ann, &baileyv1.DeleteSnapshotRequest{SandboxId: id, SnapshotId: second.GetId()}); err != nil {
		t.Error(err)
	}
	_, err = s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: id, SnapshotId: second.GetId()})
	wantReason(t, err, connect.CodeNotFound, "snapshot_not_found")
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_SnapshotId{SnapshotId: n.GetId()}})
	wantReason(t, err, connect.CodeNotFound, "snapshot_not_found")
	s.says(one, "cat note d/x", "mine\nx\n") // forks go on
}
