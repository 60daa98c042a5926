package server

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

func (s *site) usage() *baileyv1.Usage {
	s.t.Helper()
	u, err := s.GetUsage(ann, &baileyv1.GetUsageRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

func TestStorageOfAnOwnerIsMeasuredAndBounded(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Quota = Quota{Sandboxes: 3, Execs: 5, Storage: 1 << 20, Rate: 7} })
	id := s.create(&baileyv1.CreateSandboxRequest{})
	third := strings.Repeat("x", 300<<10)
	if err := s.write(id, "a", third); err != nil {
		t.Fatal(err)
	}
	u := s.usage()
	if u.GetStorageBytes() < 300<<10 || u.GetStorageBytes() > 400<<10 || u.GetSandboxes() != 1 {
		t.Errorf("with a file: %v", u)
	}
	if u.GetStorageLimitBytes() != 1<<20 || u.GetSandboxesLimit() != 3 || u.GetExecsLimit() != 5 || u.GetRequestsPerSecondLimit() != 7 {
		t.Errorf("the limits: %v", u)
	}
	if _, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if n := s.usage().GetStorageBytes(); n < 600<<10 {
		t.Errorf("with a snapshot: %d", n)
	}
	for n, err := range []error{s.write(id, "b", third), s.write(id, "c", third)} {
		if n == 0 && err != nil {
			t.Error(err)
		} else if n == 1 {
			wantReason(t, err, connect.CodeResourceExhausted, "storage_exhausted")
		}
	}
	s.says(id, "cat b b > c; wc -c < c", "614400\n") // commands are not held back, but seen
	s.usage()
	_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{CreateOnly: true})
	wantReason(t, err, connect.CodeResourceExhausted, "storage_exhausted")
	_, err = s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id})
	wantReason(t, err, connect.CodeResourceExhausted, "storage_exhausted")
	if _, err := s.CreateSandbox(as("bob"), &baileyv1.CreateSandboxRequest{CreateOnly: true}); err != nil {
		t.Errorf("another owner: %v", err)
	}
	// Room that is made is there at once.
	for _, name := range []string{"b", "c"} {
		if _, err := s.RemoveFile(ann, &baileyv1.RemoveFileRequest{SandboxId: id, Path: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.write(id, "b", "again"); err != nil {
		t.Error(err)
	}
	s.wantNoRoomForMore(id)
}

// wantNoRoomForMore sends what an owner has no room for in every other way.
func (s *site) wantNoRoomForMore(id string) {
	s.t.Helper()
	c := s.filesAs(annItself)
	var large bytes.Buffer
	w := tar.NewWriter(&large)
	_ = w.WriteHeader(&tar.Header{Name: "large", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1 << 20})
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	_, err := sendArchive(c, id, "", large.Bytes())
	wantReason(s.t, err, connect.CodeResourceExhausted, "no_space")
	stream, err := c.UploadFile(ann)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = stream.Send(&baileyv1.UploadFileRequest{SandboxId: id, Path: "large", Content: &httpbody.HttpBody{Data: make([]byte, 1<<20)}})
	_, err = stream.CloseAndReceive()
	wantReason(s.t, err, connect.CodeResourceExhausted, "storage_exhausted")
	made, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o644); err != nil {
		s.t.Fatal(err)
	}
	_, err = s.ImportCodebase(admin, &baileyv1.ImportCodebaseRequest{CodebaseId: made.GetId(), Source: &baileyv1.ImportCodebaseRequest_Directory{Directory: dir}})
	wantReason(s.t, err, connect.CodeResourceExhausted, "storage_exhausted")
}
