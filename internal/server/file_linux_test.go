package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

func (s *site) write(id, path, content string) error {
	_, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: id, Path: path, Content: []byte(content), MakeParents: true})
	return err
}

func (s *site) read(id, path string) (string, error) {
	r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: path})
	return string(r.GetContent()), err
}

func TestFilesAreThoseOfTheSandbox(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	if err := s.write(id, "/workspace/a/b/c.txt", "from outside"); err != nil {
		t.Fatal(err)
	}
	s.says(id, "cat a/b/c.txt; chmod 700 a/b/c.txt; echo inside > d; ln -s d l; mkfifo p", "from outside")
	if got, err := s.read(id, "d"); got != "inside\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.write(id, "a/b/c.txt", "again"); err != nil {
		t.Fatal(err)
	}
	s.says(id, "stat -c %a a/b/c.txt; cat a/b/c.txt; ls -A a/b", "700\nagainc.txt\n")
	part, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "a/b/c.txt", Offset: 1, Length: 3})
	if err != nil || string(part.GetContent()) != "gai" || part.GetSizeBytes() != 5 {
		t.Errorf("%v, %v", part, err)
	}
	list, err := s.ListFiles(ann, &baileyv1.ListFilesRequest{SandboxId: id, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list.GetFiles() {
		got = append(got, f.GetPath()+":"+strings.TrimPrefix(f.GetType().String(), "FILE_TYPE_")+":"+f.GetLinkTarget())
	}
	if want := "a:DIRECTORY: a/b:DIRECTORY: a/b/c.txt:FILE: d:FILE: l:SYMLINK:d p:OTHER:"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
	if _, err := s.MoveFile(ann, &baileyv1.MoveFileRequest{SandboxId: id, Path: "d", NewPath: "a/d"}); err != nil {
		t.Error(err)
	}
	if _, err := s.MakeDirectory(ann, &baileyv1.MakeDirectoryRequest{SandboxId: id, Path: "x/y", Mode: 0o711}); err != nil {
		t.Error(err)
	}
	if _, err := s.RemoveFile(ann, &baileyv1.RemoveFileRequest{SandboxId: id, Path: "a/b", Recursive: true}); err != nil {
		t.Error(err)
	}
	s.says(id, "ls -A . a x; stat -c %a x/y", ".:\na\nl\np\nx\n\na:\nd\n\nx:\ny\n711\n")
}

func TestListsOfFilesHavePages(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "mkdir -p a/x a-b; touch a/x/1 a/y a-b/2 b c", "")
	var got []string
	r := &baileyv1.ListFilesRequest{SandboxId: id, Recursive: true, PageSize: 2}
	for {
		l, err := s.ListFiles(ann, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range l.GetFiles() {
			got = append(got, f.GetPath())
		}
		if r.PageToken = l.GetNextPageToken(); r.GetPageToken() == "" {
			break
		}
	}
	if want := "a a/x a/x/1 a/y a-b a-b/2 b c"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
}

func TestFilesAreFoundByPatterns(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "mkdir -p a/b/c .h; touch a/1.go a/b/2.go a/b/c/3.go a/b/c/3.txt .h/4.go x.go; ln -s / root; ln -s a link", "")
	for _, test := range []struct{ path, pattern, want string }{
		{"", "*.go", "x.go"},
		{"", "**/*.go", ".h/4.go a/1.go a/b/2.go a/b/c/3.go x.go"},
		{"a", "**/*.go", "a/1.go a/b/2.go a/b/c/3.go"},
		{"a/b", "*/3.{go,txt}", "a/b/c/3.go a/b/c/3.txt"},
		{"", "/workspace/a/[0-9].go", "a/1.go"},
		{"", "a/b/2.go", "a/b/2.go"},
		{"", "a/**", "a/1.go a/b a/b/2.go a/b/c a/b/c/3.go a/b/c/3.txt"},
		{"", "r**/passwd", ""}, // links are not followed
		{"", "link/*", "link/1.go link/b"},
		{"", "none/*", ""},
		{"", "x.go/*", ""},
	} {
		var got []string
		r := &baileyv1.GlobFilesRequest{SandboxId: id, Path: test.path, Pattern: test.pattern, PageSize: 2}
		for {
			l, err := s.GlobFiles(ann, r)
			if err != nil {
				t.Fatalf("%+v: %v", test, err)
			}
			for _, f := range l.GetFiles() {
				got = append(got, f.GetPath())
			}
			if r.PageToken = l.GetNextPageToken(); r.GetPageToken() == "" {
				break
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
	for _, pattern := range []string{"", "[", "{a", "../*", "/etc/*"} {
		_, err := s.GlobFiles(ann, &baileyv1.GlobFilesRequest{SandboxId: id, Pattern: pattern})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_pattern")
	}
	_, err := s.GlobFiles(ann, &baileyv1.GlobFilesRequest{SandboxId: id, Pattern: "root/etc/*"})
	wantReason(t, err, connect.CodeInvalidArgument, "outside")
	_, err = s.GlobFiles(ann, &baileyv1.GlobFilesRequest{SandboxId: id, Path: "none", Pattern: "*"})
	wantReason(t, err, connect.CodeNotFound, "file_not_found")
}

// No name, and nothing that the sandbox has planted, leads out of the workspace.
func TestFilesStayInTheTree(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	host := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(host, []byte("host"), 0o666); err != nil {
		t.Fatal(err)
	}
	s.says(id, "ln -s / root; ln -s /etc/passwd abs; ln -s ../etc/passwd rel; ln -s ../../../../../../../../.. up; ln -s "+filepath.Dir(host)+" host; ln -s loop loop; mkfifo fifo; echo s > /tmp/secret; ln -s /tmp/secret tmp; ln -s /proc/self/root magic", "")
	for _, path := range []string{
		"../etc/passwd", "a/../../etc/passwd", "/etc/passwd", "/workspace/../etc/passwd", "/workspacex", "root/etc/passwd", "abs", "rel",
		"up/etc/passwd", "host/host", "loop", "fifo", "tmp", "magic/etc/passwd", "a\x00b", ".", "",
	} {
		if data, err := s.read(id, path); err == nil {
			t.Errorf("%q was read: %.20q", path, data)
		} else if connect.CodeOf(err) == connect.CodeUnknown || connect.CodeOf(err) == connect.CodeInternal {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"../x", "/x", "root/tmp/x", "up/tmp/x", "host/x", "magic/tmp/x", "a/../../x", "."} {
		if err := s.write(id, path, "x"); err == nil {
			t.Errorf("%q was written", path)
		}
		if _, err := s.MakeDirectory(ann, &baileyv1.MakeDirectoryRequest{SandboxId: id, Path: path + "/d"}); err == nil && path != "." {
			t.Errorf("%q was made", path)
		}
		if _, err := s.RemoveFile(ann, &baileyv1.RemoveFileRequest{SandboxId: id, Path: path, Recursive: true}); err == nil {
			t.Errorf("%q was removed", path)
		}
		if _, err := s.MoveFile(ann, &baileyv1.MoveFileRequest{SandboxId: id, Path: "abs", NewPath: path}); err == nil {
			t.Errorf("%q was moved to", path)
		}
	}
	// A link is itself: it is replaced and removed, and not what it leads to.
	if err := s.write(id, "host", "a file now"); err != nil {
		t.Error(err)
	}
	if _, err := s.RemoveFile(ann, &baileyv1.RemoveFileRequest{SandboxId: id, Path: "root", Recursive: true}); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(host); string(data) != "host" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(host)); len(entries) != 1 {
		t.Errorf("in the directory of the host: %v", entries)
	}
}

func TestNamesAreBytes(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for _, name := range []string{"new\nline", "\xff\xfe", "ünï", " ", "-rf", "a*b"} {
		if _, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: id, RawPath: []byte(name), Content: []byte(name)}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, RawPath: []byte(name)})
		if err != nil || string(r.GetContent()) != name {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	s.says(id, "ls -A | wc -l", "7\n") // one has a newline
	l, err := s.ListFiles(ann, &baileyv1.ListFilesRequest{SandboxId: id})
	if err != nil || len(l.GetFiles()) != 6 {
		t.Errorf("%v, %v", l, err)
	}
}

// Two sandboxes on one codebase share what they read, and nothing that they
// write.
func TestSandboxesOfACodebaseAreApart(t *testing.T) {
	s := newSite(t, nil)
	source := t.TempDir()
	if err := os.WriteFile(source+"/shared", []byte("as it was\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	admin := as("ann", "admin")
	c, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{Name: "code"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ImportCodebase(ann, &baileyv1.ImportCodebaseRequest{CodebaseId: c.GetId(), Source: &baileyv1.ImportCodebaseRequest_Directory{Directory: source}})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a directory of the server was imported by a client: %v", err)
	}
	c, err = s.ImportCodebase(admin, &baileyv1.ImportCodebaseRequest{CodebaseId: c.GetId(), Source: &baileyv1.ImportCodebaseRequest_Directory{Directory: source}})
	if err != nil || c.GetVersion() != 1 {
		t.Fatalf("%v, %v", c, err)
	}
	of := &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c.GetId()}}
	one, two := s.create(of), s.create(of)
	s.says(one, "cat shared; echo changed > shared; rm -f gone; echo mine > own; cat shared", "as it was\nchanged\n")
	s.says(two, "cat shared; ls", "as it was\nshared\n")
	if data, _ := os.ReadFile(source + "/shared"); string(data) != "as it was\n" {
		t.Errorf("the source is %q now", data)
	}
	f, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{CodebaseId: c.GetId(), Path: "shared"})
	if err != nil || string(f.GetContent()) != "as it was\n" {
		t.Errorf("%v, %v", f, err)
	}
	_, err = s.DeleteCodebase(ann, &baileyv1.DeleteCodebaseRequest{CodebaseId: c.GetId()})
	wantReason(t, err, connect.CodeFailedPrecondition, "codebase_in_use")
	for _, id := range []string{one, two} {
		if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id, DeleteCodebase: true}); err != nil {
			t.Error(err)
		}
	}
	_, err = s.GetCodebase(ann, &baileyv1.GetCodebaseRequest{CodebaseId: c.GetId()})
	wantReason(t, err, connect.CodeNotFound, "codebase_not_found")
}
