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
	for _, args := range [][]string{
		{},
		{"eat"},
		{"import", "one"},
		{"remove"},
		{"list", "x"},
		{"import", "../x", "/"},
		{"import", "one", "/does/not/exist"},
		{"export", "missing"},
		{"remove", "missing"},
		{"start", "missing", "work"},
		{"push", "missing", "file:///x"},
		{"pull", "one", "nowhere"},
	} {
		if _, err, status := codebase(t, "", args...); status != exitOwn || !strings.HasPrefix(err, "bailey: ") {
			t.Errorf("codebase %q: status %d, %q", args, status, err)
		}
	}
}
