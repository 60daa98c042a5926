package main

import (
	"bytes"
	"encoding/json"
	"os"
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
		got += c.Name + " " + strings.Join(c.Layers, " ") + "\n"
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
	wantCodebase(t, "", "import", "one", t.TempDir())
	wantCodebase(t, "", "start", "one", "work", target)
	d, err := delta.At(data).Open("work", delta.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Record.Target != target || d.Record.State != delta.Kept || d.Live() != "" {
		t.Errorf("the workspace is %+v", d.Record)
	}
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
