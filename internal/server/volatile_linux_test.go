package server

import (
	"os"
	"strings"
	"testing"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/processes"
)

func TestEndOfASandboxDoesNotWaitForTheDisk(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.run(id, "echo kept > file")
	b, err := s.running(ann, id)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile(processes.File(b.pid, "mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mounts), "volatile") {
		t.Errorf("the overlay is not volatile:\n%s", mounts)
	}
	for range 2 { // the mark of the last time is no obstacle
		if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
			t.Fatal(err)
		}
		s.says(id, "cat file", "kept\n")
	}
}
