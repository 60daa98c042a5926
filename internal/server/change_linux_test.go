package server

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
)

// admin is ann with all scopes.
var admin = as("ann", caller.Admin)

// codebaseOf makes a codebase of files.
func (s *site) codebaseOf(files map[string]string) string {
	s.t.Helper()
	c, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.fillCodebase(c.GetId(), files)
	return c.GetId()
}

// fillCodebase gives a codebase other files.
func (s *site) fillCodebase(id string, files map[string]string) {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	r := &baileyv1.ImportCodebaseRequest{CodebaseId: id, Source: &baileyv1.ImportCodebaseRequest_Directory{Directory: dir}, Replace: true}
	if _, err := s.ImportCodebase(admin, r); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) createFrom(codebase string) string {
	s.t.Helper()
	return s.create(&baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: codebase}})
}

// TestPatchesOfManyLargeFilesAreRefused also where their sizes add up to less than
// nothing.
func TestPatchesOfManyLargeFilesAreRefused(t *testing.T) {
	for _, test := range []struct {
		sizes []int64
		want  bool
	}{{[]int64{mostPatched}, false}, {[]int64{mostPatched, 1}, true}, {[]int64{math.MaxInt64, math.MaxInt64}, true}} {
		var list []change.Change
		for _, n := range test.sizes {
			list = append(list, change.Change{Kind: change.Added, New: &change.Entry{Type: change.File, Size: n}})
		}
		if err := patchable(list); (err != nil) != test.want {
			t.Errorf("%v: got %v", test.sizes, err)
		}
	}
}

// changes are those of a sandbox, a line each.
func (s *site) changes(id string, paths ...string) string {
	s.t.Helper()
	d, err := s.DiffSandbox(ann, &baileyv1.DiffSandboxRequest{SandboxId: id, Paths: paths})
	if err != nil {
		s.t.Fatal(err)
	}
	return listChanges(d.GetChanges())
}

func listChanges(list []*baileyv1.Change) string {
	var lines []string
	for _, c := range list {
		lines = append(lines, strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "CHANGE_KIND_"))+" "+c.GetPath())
	}
	return strings.Join(lines, ", ")
}

func (s *site) content(codebase, name string) (string, error) {
	r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{CodebaseId: codebase, Path: name})
	return string(r.GetContent()), err
}

func (s *site) wantContent(codebase, name, want string) {
	s.t.Helper()
	if got, err := s.content(codebase, name); got != want || err != nil {
		s.t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
	}
}

func TestDiffListsWhatASandboxChanged(t *testing.T) {
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{"a": "one\n", "d/b": "b\n", "d/c": "c\n", "gone/x": "x\n", "was-file": "f\n", "same": "same\n"})
	id := s.createFrom(c)
	if got := s.changes(id); got != "" {
		t.Errorf("a new sandbox has changed %s", got)
	}
	s.says(id, "echo two > a; chmod 755 d/b; rm -r gone; rm was-file; mkdir was-file; touch same; printf 'x\\0y' > bin; ln -s a link", "")
	want := "modified a, added bin, modified d/b, deleted gone, deleted gone/x, added link, type was-file"
	if got := s.changes(id); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.changes(id, "d", "/workspace/gone/x"); got != "modified d/b, deleted gone/x" {
		t.Errorf("of some paths: %s", got)
	}
	d, err := s.DiffSandbox(ann, &baileyv1.DiffSandboxRequest{SandboxId: id, Format: baileyv1.DiffFormat_DIFF_FORMAT_PATCH})
	if err != nil || !strings.Contains(string(d.GetPatch()), "-one\n+two\n") {
		t.Errorf("patch %q, %v", d.GetPatch(), err)
	}
	i := slices.IndexFunc(d.GetChanges(), func(c *baileyv1.Change) bool { return c.GetPath() == "bin" })
	if i < 0 || !d.GetChanges()[i].GetBinary() || d.GetChanges()[i].GetSizeBytes() != 3 || d.GetChanges()[0].GetBinary() {
		t.Errorf("got %v", d.GetChanges())
	}
	if _, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateSnapshot(ann, &baileyv1.CreateSnapshotRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if got := s.changes(id); got != want {
		t.Errorf("stopped, after snapshots: got %s, want %s", got, want)
	}
	_, err = s.DiffSandbox(ann, &baileyv1.DiffSandboxRequest{SandboxId: id, Paths: []string{"../x"}})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_paths")
	_, err = s.DiffSandbox(as("bob"), &baileyv1.DiffSandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
}

// Whether it runs or not, what was applied is in the codebase and is no change any
// more.
func TestApplyMakesTheNextVersionOfTheCodebase(t *testing.T) {
	for name, halt := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			c := s.codebaseOf(map[string]string{"a": "one\n", "gone/x": "x\n", "d/keep": "k\n", "f": "f\n"})
			other := s.createFrom(c)
			id := s.createFrom(c)
			s.says(id, "echo two > a; rm -r gone; mkdir -p new/deep; echo n > new/deep/n; echo l > d/later; rm f; mkdir f; echo i > f/in; chmod 700 d", "")
			if halt {
				if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
					t.Fatal(err)
				}
			}
			r, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id, Paths: []string{"a", "gone", "new", "f"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := listChanges(r.GetChanges()); got != "modified a, type f, added f/in, deleted gone, deleted gone/x, added new, added new/deep, added new/deep/n" || r.GetCodebaseVersion() != 2 {
				t.Errorf("applied %s, version %d", got, r.GetCodebaseVersion())
			}
			if got := s.changes(id); got != "modified d, added d/later" {
				t.Errorf("left: %s", got)
			}
			s.wantContent(c, "a", "two\n")
			s.wantContent(c, "new/deep/n", "n\n")
			s.wantContent(c, "f/in", "i\n")
			s.wantContent(c, "d/keep", "k\n")
			_, err = s.content(c, "gone/x")
			wantReason(t, err, connect.CodeNotFound, "file_not_found")
			_, err = s.content(c, "d/later")
			wantReason(t, err, connect.CodeNotFound, "file_not_found")
			s.says(other, "cat a gone/x f", "one\nx\nf\n") // what began before goes on with what it had
			if _, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id}); err != nil {
				t.Fatal(err)
			}
			s.wantContent(c, "d/later", "l\n")
			r, err = s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id})
			if err != nil || len(r.GetChanges()) != 0 || r.GetCodebaseVersion() != 3 {
				t.Errorf("nothing to apply: %v, %v", r, err)
			}
			s.says(s.createFrom(c), "stat -c %a d; cat a", "700\ntwo\n")
			if halt {
				if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
					t.Fatal(err)
				}
			}
			s.says(id, "rm new/deep/n", "") // which the codebase has by now
			if got := s.changes(id); got != "deleted new/deep/n" {
				t.Errorf("after a removal: %s", got)
			}
		})
	}
}

func TestApplyIsRefusedWhereTheCodebaseHasChanged(t *testing.T) {
	s := newSite(t, nil)
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	c := s.codebaseOf(map[string]string{"a": lines, "b": "b\n", "gone": "g\n", "d/x": "x\n"})
	id := s.createFrom(c)
	s.says(id, "sed -i s/9/nine/ a; echo mine > b; rm gone; rm -r d; echo n > n", "")
	s.fillCodebase(c, map[string]string{"a": strings.Replace(lines, "1", "one", 1), "b": "theirs\n", "d/x": "x\n", "d/added": "", "e": "e\n"})

	_, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeAborted, "codebase_changed")
	about := problem.Of(err).GetMetadata()
	if about["a"] != "was changed" || about["b"] != "was changed" || about["d/added"] == "" || len(about) != 3 {
		t.Errorf("got %v", about)
	}
	s.wantContent(c, "b", "theirs\n")

	_, err = s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id, Merge: true, Paths: []string{"a", "b"}})
	wantReason(t, err, connect.CodeAborted, "codebase_changed")
	if _, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id, Merge: true, Paths: []string{"a", "gone", "n"}}); err != nil {
		t.Fatal(err)
	}
	s.wantContent(c, "a", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n")
	s.wantContent(c, "n", "n\n")
	s.wantContent(c, "e", "e\n") // made by others meanwhile
	s.wantContent(c, "b", "theirs\n")
	if got := s.changes(id); got != "modified b, deleted d, deleted d/x" {
		t.Errorf("left: %s", got)
	}
}

func TestForkKnowsWhatItHasChanged(t *testing.T) {
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{"a": "one\n"})
	id := s.createFrom(c)
	s.says(id, "echo two > a", "")
	forks, err := s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	fork := forks.GetSandboxes()[0].GetId()
	s.says(fork, "echo b > b", "")
	if got := s.changes(fork); got != "modified a, added b" {
		t.Errorf("got %s", got)
	}
	for _, one := range []string{fork, id} { // the second finds its change there
		if _, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: one}); err != nil {
			t.Fatal(err)
		}
	}
	s.wantContent(c, "a", "two\n")
	s.wantContent(c, "b", "b\n")
}

func TestSandboxWithoutACodebaseIsNotApplied(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "echo x > x", "")
	if got := s.changes(id); got != "added x" {
		t.Errorf("got %s", got)
	}
	_, err := s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeFailedPrecondition, "no_codebase")
	_, err = s.ApplySandbox(as("ann", caller.Read), &baileyv1.ApplySandboxRequest{SandboxId: id})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("without a scope: %v", err)
	}
	_, err = s.DiffSandbox(caller.With(context.Background(), caller.Caller{Owner: "ann"}), &baileyv1.DiffSandboxRequest{SandboxId: id})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("without a scope: %v", err)
	}
}

// To ask again for what is too large does not help, so that no client should.
func TestPatchThatIsTooLargeIsNoLimitThatPasses(t *testing.T) {
	list := []change.Change{{Path: "a", New: &change.Entry{Size: mostPatched}}, {Path: "b", Old: &change.Entry{Size: 1}}}
	wantReason(t, patchable(list), connect.CodeFailedPrecondition, "too_large")
	if err := patchable(list[:1]); err != nil {
		t.Error(err)
	}
}
