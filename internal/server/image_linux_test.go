package server

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// busyImages is a store with an image in which busybox is everything.
func busyImages(t *testing.T, name string) image.Store {
	t.Helper()
	testenv.Requires(t, testenv.Program("busybox"), testenv.Program("bwrap"), testenv.Program("crun"))
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	s := image.Store{Dir: filepath.Join(t.TempDir(), "images")}
	u, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	const id = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	err = u.Add(&image.Image{ID: id, Config: image.Config{Env: []string{"PATH=/bin", "FROM=image"}}}, func(root string) error {
		err := errors.Join(os.MkdirAll(root+"/bin", 0o755), os.MkdirAll(root+"/etc", 0o755), os.WriteFile(root+"/bin/busybox", program, 0o755),
			os.WriteFile(root+"/etc/os-release", []byte("the image's\n"), 0o644))
		for _, applet := range []string{"sh", "cat", "echo", "ls"} {
			err = errors.Join(err, os.Symlink("busybox", root+"/bin/"+applet))
		}
		return err
	})
	if err = errors.Join(err, u.Name(name, id)); err != nil {
		t.Fatal(err)
	}
	return s
}

func fromImage(ref string) *baileyv1.CreateSandboxRequest {
	return &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_Image{Image: ref}}
}

func fromSnapshot(id string) *baileyv1.CreateSandboxRequest {
	return &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_SnapshotId{SnapshotId: id}}
}

// snapshotKeepsImage takes a snapshot of a sandbox of an image, and finds the image in a
// sandbox that is made of it, in a fork of that, and in both when they start again.
func (s *site) snapshotKeepsImage(id string) (snapshot string) {
	s.t.Helper()
	n, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	made := s.create(fromSnapshot(n.GetId()))
	forks, err := s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: made})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range []string{made, forks.GetSandboxes()[0].GetId()} {
		if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
			s.t.Fatal(err)
		}
		if f, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "file"}); err != nil || string(f.GetContent()) != "kept\n" {
			s.t.Errorf("stopped: %v, %v", f, err)
		}
		if sb, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil || sb.GetImage() != "busy:1" {
			s.t.Errorf("of a snapshot: %v, %v", sb, err)
		}
		if got := s.run(id, `cat /etc/os-release file; echo $FROM`); string(got.GetStdout()) != "the image's\nkept\nimage\n" {
			s.t.Errorf("of a snapshot: %q, %q", got.GetStdout(), got.GetStderr())
		}
		if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
			s.t.Error(err)
		}
	}
	return n.GetId()
}

func TestSandboxIsMadeOfAnImage(t *testing.T) {
	images := busyImages(t, "busy:1")
	s := newSite(t, func(c *Config) { c.Images = images.Dir })
	id := s.create(fromImage("busy:1"))
	const line = `cat /etc/os-release; echo $FROM; echo kept >>file; cat file; ls /usr 2>/dev/null`
	if got := s.run(id, line); string(got.GetStdout()) != "the image's\nimage\nkept\n" {
		t.Errorf("%q, %q", got.GetStdout(), got.GetStderr())
	}
	snapshot := s.snapshotKeepsImage(id)
	remove := func() error {
		u, err := images.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		return u.Remove("busy:1")
	}
	if err := remove(); err == nil {
		t.Error("an image was removed that a sandbox uses")
	}
	s.restart()
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if sb, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil || sb.GetImage() != "busy:1" {
		t.Fatalf("%v, %v", sb, err)
	}
	if got := s.run(id, line); string(got.GetStdout()) != "the image's\nimage\nkept\nkept\n" {
		t.Errorf("started again: %q, %q", got.GetStdout(), got.GetStderr())
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	_, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeNotFound, "image_not_here")
	_, err = s.CreateSandbox(ann, fromSnapshot(snapshot))
	wantReason(t, err, connect.CodeNotFound, "image_not_here")
	if f, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "file"}); err != nil || string(f.GetContent()) != "kept\nkept\n" {
		t.Errorf("its files without the image: %v, %v", f, err)
	}
	for _, runtime := range []string{"bwrap", "crun"} {
		again := busyImages(t, "busy:1")
		s := newSite(t, func(c *Config) { c.Images = again.Dir })
		r := fromImage("busy:1")
		r.Runtime, r.Policy = runtime, brokerless
		if got := s.run(s.create(r), "cat /etc/os-release; echo $FROM"); string(got.GetStdout()) != "the image's\nimage\n" {
			t.Errorf("%s: %q, %q", runtime, got.GetStdout(), got.GetStderr())
		}
	}
	for _, ref := range []string{"busy:2", "/etc", "../../etc"} {
		_, err := s.CreateSandbox(ann, fromImage(ref))
		wantReason(t, err, connect.CodeNotFound, "image_not_here")
	}
}
