package bailey_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// newOverlay is an overlay over a project with a file in it.
func newOverlay(t *testing.T, c bailey.Config) (o *bailey.Overlay, m *bailey.Manager, dir string) {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	t.Setenv("BAILEY_DATA", filepath.Join(t.TempDir(), "data"))
	dir = t.TempDir()
	writeFile(t, dir+"/a.txt", "one\n")
	c.Dir = dir
	m = newManager(t, c)
	o, err := m.Overlay("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Discard() })
	return o, m, dir
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sh(t *testing.T, c interface {
	Command(name string, args ...string) *bailey.Cmd
}, script string,
) string {
	t.Helper()
	out, err := c.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func wantDiff(t *testing.T, o *bailey.Overlay, want ...string) {
	t.Helper()
	list, err := o.Diff()
	var got []string
	for _, c := range list {
		got = append(got, c.Kind+" "+c.Path)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("diff: got %q, %v; want %q", got, err, want)
	}
}

func wantFile(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if string(got) != want || err != nil && want != "" {
		t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
	}
}

func TestOverlayKeepsChangesApartUntilTheyAreApplied(t *testing.T) {
	o, _, dir := newOverlay(t, bailey.Config{})
	sh(t, o, "echo two >>a.txt; echo b >b.txt; mkdir d; echo c >d/c")
	if got := sh(t, o, "cat a.txt b.txt"); got != "one\ntwo\nb\n" {
		t.Errorf("the next command sees %q", got)
	}
	wantFile(t, dir+"/a.txt", "one\n")
	wantDiff(t, o, "changed a.txt", "added b.txt", "added d", "added d/c")
	var patch bytes.Buffer
	if err := o.WritePatch(&patch, "a.txt"); err != nil || !strings.Contains(patch.String(), "+two\n") || strings.Contains(patch.String(), "b.txt") {
		t.Errorf("patch: %v\n%s", err, patch.String())
	}
	if list, err := o.Apply("a.txt"); err != nil || len(list) != 1 || list[0] != (bailey.Change{Path: "a.txt", Kind: "changed"}) {
		t.Errorf("apply: got %v, %v", list, err)
	}
	wantFile(t, dir+"/a.txt", "one\ntwo\n")
	wantFile(t, dir+"/b.txt", "")
	wantDiff(t, o, "added b.txt", "added d", "added d/c")
	if err := o.Undo(); err != nil {
		t.Error(err)
	}
	wantFile(t, dir+"/a.txt", "one\n")
	if err := o.Discard(); err != nil {
		t.Error(err)
	}
	if _, err := o.Diff(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Discard: got %v", err)
	}
}

func TestOverlayDoesNotApplyOverWhatOthersChanged(t *testing.T) {
	o, _, dir := newOverlay(t, bailey.Config{})
	sh(t, o, "echo two >>a.txt")
	writeFile(t, dir+"/a.txt", "of somebody else\n")
	_, err := o.Apply()
	var conflict *bailey.ConflictError
	if !errors.As(err, &conflict) || !slices.Equal(conflict.Paths, []string{"a.txt"}) {
		t.Errorf("got %v", err)
	}
	wantFile(t, dir+"/a.txt", "of somebody else\n")
}

func TestOverlayIsOfOneUseAtATime(t *testing.T) {
	o, _, _ := newOverlay(t, bailey.Config{})
	c := o.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func() error{
		"command": func() error { return o.Command("true").Run() },
		"diff":    func() error { _, err := o.Diff(); return err },
		"apply":   func() error { _, err := o.Apply(); return err },
		"box":     func() error { _, err := o.Open(); return err },
		"discard": o.Discard,
		"close":   o.Close,
	} {
		if err := use(); err == nil || err.Error() != "bailey: a command runs in the overlay, or a Box stands on it; wait for its end, or close it" {
			t.Errorf("%s while a command runs: got %v", name, err)
		}
	}
	_ = in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	wantDiff(t, o)
}

func TestOverlayIsAWorkspaceToGoOnWith(t *testing.T) {
	o, m, dir := newOverlay(t, bailey.Config{})
	sh(t, o, "echo two >>a.txt")
	if _, err := m.Overlay(o.Name()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("while it is open: got %v", err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := m.Overlay(o.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat a.txt; rm a.txt"); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	wantDiff(t, again, "deleted a.txt")
	wantFile(t, dir+"/a.txt", "one\n")
	if err := again.Discard(); err != nil {
		t.Error(err)
	}
}

func TestBoxOnAnOverlay(t *testing.T) {
	o, _, dir := newOverlay(t, bailey.Config{})
	box, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	sh(t, box, "echo two >>a.txt; echo x >/tmp/x")
	if got := sh(t, box, "cat a.txt /tmp/x"); got != "one\ntwo\nx\n" {
		t.Errorf("got %q", got)
	}
	if _, err := o.Diff(); err == nil {
		t.Error("a box stands on it, and it could be compared")
	}
	for range 2 {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
	wantFile(t, dir+"/a.txt", "one\n")
	wantDiff(t, o, "changed a.txt")
	if _, err := o.Apply(); err != nil {
		t.Error(err)
	}
	wantFile(t, dir+"/a.txt", "one\ntwo\n")
}

func TestLimitOnFilesHoldsForAnOverlay(t *testing.T) {
	o, _, _ := newOverlay(t, bailey.Config{Policy: `{"extends": "default", "resources": {"disk": "8M"}}`})
	sh(t, o, "echo kept >kept; head -c 3M /dev/zero >three")
	c := o.Command("sh", "-c", "head -c 20M /dev/zero >big")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "No space left on device") || !slices.Equal(c.State().LimitsMet(), []string{"disk"}) {
		t.Errorf("got %s, %v, %v", out, err, c.State().LimitsMet())
	}
	wantDiff(t, o, "added big", "added kept", "added three")
	if err := o.Command("true").Run(); err == nil || !strings.Contains(err.Error(), "resources.disk 8M: the workspace "+o.Name()+" takes 8M already") {
		t.Errorf("got %v", err)
	}
}

func ExampleOverlay() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	// So that this leaves nothing behind.
	os.Setenv("BAILEY_DATA", filepath.Join(dir, "data"))
	defer os.Unsetenv("BAILEY_DATA")

	m := bailey.New(bailey.Config{Dir: project})
	if err := m.Initialize(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Cleanup()
	o, err := m.Overlay("")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Discard()

	if err := o.Command("sh", "-c", "echo hello > greeting").Run(); err != nil {
		fmt.Println(err)
	}
	changes, err := o.Diff()
	fmt.Println(changes, err)
	applied, err := o.Apply()
	fmt.Println(applied, err)
	// Output:
	// [{greeting added}] <nil>
	// [{greeting added}] <nil>
}
