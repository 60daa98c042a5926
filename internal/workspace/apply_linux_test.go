package workspace

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// However often a codebase is changed, few layers lie on each other, and show the
// same.
func TestCodebaseOfManyLayersIsPutTogether(t *testing.T) {
	s := newStore(t)
	var ids []string
	for i := range MaxStack + 1 {
		id := fmt.Sprintf("layer-%d", i)
		must(t, s.makeRoom(id))
		write(t, s.LayerTree(id)+"/same", id)
		write(t, fmt.Sprintf("%s/own-%d", s.LayerTree(id), i), "")
		ids = append(ids, id)
	}
	c, err := s.saveCodebase(Codebase{Name: "c", Layers: ids[:MaxStack]})
	must(t, err)
	if len(c.Layers) != MaxStack {
		t.Errorf("%d layers were put together", MaxStack)
	}
	c, err = s.saveCodebase(Codebase{Name: "d", Layers: ids})
	must(t, err)
	if len(c.Layers) != 2 || c.Layers[1] != ids[MaxStack] {
		t.Fatalf("got %v", c.Layers)
	}
	if data, err := os.ReadFile(s.LayerTree(c.Layers[0]) + "/same"); string(data) != ids[0] || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if names, _ := os.ReadDir(s.LayerTree(c.Layers[0])); len(names) != MaxStack+1 {
		t.Errorf("got %v", names)
	}
}

// The base of a workspace is kept for as long as the workspace is, even if the
// codebase has gone on and the workspace lies on other layers.
func TestBaseOfAWorkspaceIsKept(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir+"/a", "one")
	_, err := s.ImportDirectory(dir, ImportOptions{Name: "c"})
	must(t, err)
	d, err := s.Start("c", delta.Options{Name: "w", Target: "/w"})
	must(t, err)
	write(t, d.Upper()+"/b", "two")
	d.Close()
	n, err := s.Snapshot("w")
	must(t, err)
	o := ApplyOptions{Workspace: "w", Snapshot: n.ID, Codebase: "c", Name: "c2"}
	made, result, err := s.Apply(o)
	must(t, err)
	if len(made.Layers) != 2 || len(result.Applied) != 1 {
		t.Fatalf("got %v, %v", made, result)
	}
	must(t, s.Rebase(o))
	must(t, s.RemoveCodebase("c"))
	must(t, s.RemoveCodebase("c2"))
	c, err := s.Compare("w")
	must(t, err)
	defer c.Close()
	if len(c.Changes) != 0 {
		t.Errorf("got %v", c.Changes)
	}
	if _, _, err := s.Apply(ApplyOptions{Workspace: "w", Snapshot: n.ID, Codebase: "c", Name: "x"}); err == nil || !strings.Contains(err.Error(), "no such codebase") {
		t.Errorf("got %v", err)
	}
}
