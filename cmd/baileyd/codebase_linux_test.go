package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// codebase runs "baileyd codebase" and returns what it printed.
func codebase(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, err bytes.Buffer
	status = runCodebases(args, strings.NewReader(stdin), &out, &err)
	return out.String(), err.String(), status
}

func wantCodebase(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err, status := codebase(t, stdin, args...)
	if status != 0 {
		t.Fatalf("codebase %q: status %d: %s", args, status, err)
	}
	return out
}

func TestCodebaseGoesInAndComesOut(t *testing.T) {
	t.Setenv(delta.Variable, t.TempDir()+"/data")
	project := t.TempDir()
	if err := os.WriteFile(project+"/f", []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCodebase(t, "", "import", "one", project)
	archive := wantCodebase(t, "", "export", "one")
	wantCodebase(t, archive, "import", "two", "-")
	if err := os.WriteFile(project+".tar", []byte(archive), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCodebase(t, "", "import", "three", project+".tar")
	layer := wantCodebase(t, "", "--oci", "export", "one")
	wantCodebase(t, layer, "--base=one", "import", "four", "-")
	shared := "file://" + t.TempDir()
	wantCodebase(t, "", "push", "one", shared)
	if _, _, status := codebase(t, "", "remove", "one", "two", "zero"); status != exitOwn {
		t.Errorf("one that does not exist was removed: %d", status)
	}
	wantCodebase(t, "", "remove", "one", "two")
	wantCodebase(t, "", "pull", "one", shared)
	var list []workspace.Codebase
	if err := json.Unmarshal([]byte(wantCodebase(t, "", "--json", "list")), &list); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, c := range list {
		got += c.Name + string(c.Dir) + " " + strings.Join(c.Layers, " ") + "\n" // of none the directory is known
	}
	id := list[1].Layers[0]
	if want := "four " + id + "\none " + id + "\nthree " + id + "\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if table := wantCodebase(t, "", "list"); !strings.Contains(table, "NAME") || !strings.Contains(table, "three  1 ") {
		t.Errorf("the list is\n%s", table)
	}
}

func TestWorkspaceStartsFromACodebase(t *testing.T) {
	data, target := t.TempDir()+"/data", t.TempDir()
	t.Setenv(delta.Variable, data)
	source := t.TempDir()
	if err := os.Symlink(source, target+"/link"); err != nil {
		t.Fatal(err)
	}
	wantCodebase(t, "", "import", "one", target+"/link")
	wantCodebase(t, "", "start", "one", "work", target)
	d, err := delta.At(data).Open("work", delta.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Record.Target != target || d.Record.State != delta.Kept || d.Live() != "" || d.Source() != source {
		t.Errorf("the workspace is %+v", d.Record)
	}
}

// TestWorkspaceIsAppliedWhereItsCodebaseCameFrom: but for what a sandbox could not
// have written there.
func TestWorkspaceIsAppliedWhereItsCodebaseCameFrom(t *testing.T) {
	data, source := t.TempDir()+"/data", t.TempDir()+"/source"
	t.Setenv(delta.Variable, data)
	t.Setenv("HOME", t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(source+"/main", "1")
	wantCodebase(t, "", "import", "one", source)
	wantCodebase(t, "", "start", "one", "work", t.TempDir())
	upper := data + "/workspaces/work/upper"
	write(upper+"/main", "2")
	write(upper+"/tools/hooks/pre-commit", "evil")
	write(source+"/.git/HEAD", "ref: refs/heads/main\n")
	write(source+"/.git/config", "[core]\n\thooksPath = tools/hooks\n")
	ws := func(want string, args ...string) {
		t.Helper()
		var out, err bytes.Buffer
		runWorkspaces(args, &out, &err)
		if !strings.Contains(err.String(), want) {
			t.Errorf("ws %q: got %q, want %q", args, err.String(), want)
		}
	}
	ws("tools/hooks/pre-commit: protected ", "apply", "work")
	if _, err := os.Lstat(source + "/tools"); err == nil {
		t.Error("something was applied")
	}
	ws("bailey: applied to "+source+": 0 added, 1 changed", "apply", "work", "main")
	ws("bailey: undone in "+source, "undo", "work")
	write(source+"/main", "3")
	ws("bailey:   main was changed\nbailey: to merge texts: bailey ws apply --merge work; to apply", "apply", "work", "main")
}

func TestWrongWordsAboutCodebasesAreRefused(t *testing.T) {
	t.Setenv(delta.Variable, t.TempDir()+"/data")
	dir := t.TempDir()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "usage: "},
		{[]string{"eat"}, "usage: "},
		{[]string{"import", "one"}, "usage: "},
		{[]string{"remove"}, "usage: "},
		{[]string{"list", "x"}, "usage: "},
		{[]string{"import", "../x", "/"}, ": a name "},
		{[]string{"import", "one", "/does/not/exist"}, "/does/not/exist: no such file"},
		{[]string{"export", "missing"}, "missing: there is no such codebase"},
		{[]string{"remove", "missing"}, "missing: there is no such codebase"},
		{[]string{"start", "missing", "work"}, "missing: there is no such codebase"},
		{[]string{"push", "missing", "file:///x"}, "missing: there is no such codebase"},
		{[]string{"pull", "one", "nowhere"}, "nowhere"},
		{[]string{"--json", "import", "one", dir}, "bailey codebase import takes no --json; it goes with bailey codebase list"},
		{[]string{"--oci", "remove", "one"}, "bailey codebase remove takes no --oci; it goes with bailey codebase export and bailey codebase import"},
		{[]string{"--revision=v1", "import", "one", dir}, "--revision is for the import of a git repository, and " + dir + " is taken for a directory; with --git a commit of it is imported"},
		{[]string{"--base=missing", "import", "one", dir}, "--base is for the import of an archive, and " + dir + " is taken for a directory"},
		{[]string{"--oci", "import", "one", dir}, "--oci is for the import of an archive, and "},
		{[]string{"--revision=v1", "import", "one", "-"}, "--revision is for the import of a git repository, and 'standard input' is taken for an archive"},
		{[]string{"--gitignore", "import", "one", "-"}, "--gitignore is for the import of a directory, and "},
		{[]string{"--git", "--gitignore", "import", "one", dir}, "--gitignore is for the import of a directory, and " + dir + " is taken for a git repository"},
		{[]string{"--base=x", "import", "one", "https://example.com/x"}, "--base is for the import of an archive, and https://example.com/x is taken for a git repository"},
	} {
		out, err, status := codebase(t, "", test.args...)
		if status != exitOwn || out != "" || !strings.HasPrefix(err, "bailey: ") || !strings.Contains(err, test.want) {
			t.Errorf("codebase %q: status %d, %q, want %q", test.args, status, err, test.want)
		}
	}
}
