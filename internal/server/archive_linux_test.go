package server

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
)

// wire is the server behind HTTP, where everybody is the given caller.
func (s *site) wire(who caller.Caller) (url string, client *http.Client) {
	s.t.Helper()
	mux := http.NewServeMux()
	mux.Handle(baileyv1connect.NewFileServiceHandler(s.Server))
	mux.Handle(baileyv1connect.NewSandboxServiceHandler(s.Server))
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(caller.With(r.Context(), who)))
	}))
	web.EnableHTTP2 = true
	web.StartTLS()
	s.t.Cleanup(web.Close)
	return web.URL, web.Client()
}

func (s *site) filesAs(who caller.Caller) baileyv1connect.FileServiceClient {
	url, client := s.wire(who)
	return baileyv1connect.NewFileServiceClient(client, url)
}

var annItself = caller.Caller{Owner: "ann", Scopes: []caller.Scope{caller.Read, caller.Write}}

// sendArchive uploads an archive in small pieces.
func sendArchive(c baileyv1connect.FileServiceClient, id, path string, data []byte) (*baileyv1.UploadArchiveResponse, error) {
	up, err := c.UploadArchive(context.Background())
	if err != nil {
		return nil, err
	}
	first := &baileyv1.UploadArchiveRequest{SandboxId: id, Path: path}
	for err = up.Send(first); err == nil && len(data) > 0; {
		n := min(len(data), 1000)
		err = up.Send(&baileyv1.UploadArchiveRequest{Archive: &httpbody.HttpBody{Data: data[:n]}})
		data = data[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return up.CloseAndReceive()
}

func fetchArchive(c baileyv1connect.FileServiceClient, id, path string) ([]byte, error) {
	down, err := c.DownloadArchive(context.Background(), &baileyv1.DownloadArchiveRequest{SandboxId: id, Path: path})
	if err != nil {
		return nil, err
	}
	defer down.Close()
	var b bytes.Buffer
	for down.Receive() {
		b.Write(down.Msg().GetData())
	}
	return b.Bytes(), down.Err()
}

// pack makes an archive. A file's content is its name where none is given.
func packed(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Uid, h.Gid = 12345, 12345
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchivesGoInAndOutOfSandboxes(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "mkdir in; echo old > in/a; echo stays > in/stays; chmod 711 in", "")
	c := s.filesAs(annItself)
	data := packed(t, tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700}, tar.Header{Name: "a", Mode: 0o755},
		tar.Header{Name: "d/e/f"}, tar.Header{Name: "\xff\n"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "a"})
	r, err := sendArchive(c, id, "in", data)
	if err != nil || r.GetFileCount() != 6 {
		t.Fatalf("%v, %v", r, err)
	}
	s.says(id, "cat in/a in/stays in/d/e/f in/hard; stat -c %a in in/a; readlink in/l; ls in | wc -l; echo more >> in/a && echo mine", "astays\nd/e/fa711\n755\n/etc/passwd\n7\nmine\n")
	s.says(id, "rm in/hard; mkfifo in/pipe", "")
	got, err := fetchArchive(c, id, "/workspace/in")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for in := tar.NewReader(bytes.NewReader(got)); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if want := "./ a d/ d/e/ d/e/f l pipe stays \xff\n"; strings.Join(names, " ") != want {
		t.Errorf("got %q", names)
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := sendArchive(c, id, "new/place", packed(t, tar.Header{Name: "x"})); err != nil {
		t.Error(err)
	}
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	s.says(id, "cat new/place/x", "x")
	_, err = fetchArchive(c, id, "missing")
	wantReason(t, err, connect.CodeNotFound, "file_not_found")
	_, err = fetchArchive(s.filesAs(caller.Caller{Owner: "bob", Scopes: annItself.Scopes}), id, "")
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
	_, err = sendArchive(s.filesAs(caller.Caller{Owner: "ann", Scopes: []caller.Scope{caller.Read}}), id, "", data)
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("without a scope: %v", err)
	}
	if left, _ := os.ReadDir(s.spool()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Whatever is in an archive, and whatever links a sandbox has planted in its way,
// nothing outside the workspace changes.
func TestArchivesStayInTheTree(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	outside := t.TempDir()
	s.says(id, "ln -s / root; ln -s "+outside+" host; mkdir d", "")
	c := s.filesAs(annItself)
	for name, h := range map[string]tar.Header{
		"parent":          {Name: "../x"},
		"parent in it":    {Name: "d/../../x"},
		"absolute":        {Name: "/x"},
		"planted":         {Name: "host/x"},
		"root":            {Name: "root/tmp/x"},
		"link outside":    {Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"},
		"link by a link":  {Name: "h", Typeflag: tar.TypeLink, Linkname: "root/etc/passwd"},
		"device":          {Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		"pipe":            {Name: "p", Typeflag: tar.TypeFifo},
		"directory":       {Name: "d"},
		"link's in it":    {Name: "host", Typeflag: tar.TypeDir},
		"overlay's sign":  {Name: "o", PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
		"a sparse giant":  {Name: "g", Typeflag: tar.TypeReg, Size: 1 << 60},
		"one in a ghost ": {Name: strings.Repeat("x", 300)},
	} {
		var data []byte
		if h.Size > 0 {
			var b bytes.Buffer
			if err := tar.NewWriter(&b).WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			data = b.Bytes()
		} else {
			data = packed(t, h)
		}
		if r, err := sendArchive(c, id, "", data); err == nil {
			t.Errorf("%s was taken: %v", name, r)
		} else if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{"host", "root/tmp", "../x", "/etc"} {
		if _, err := sendArchive(c, id, path, packed(t, tar.Header{Name: "x"})); err == nil {
			t.Errorf("unpacked in %s", path)
		}
		if _, err := fetchArchive(c, id, path); err == nil {
			t.Errorf("packed %s", path)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside: %v", left)
	}
	whole := packed(t, tar.Header{Name: "half"})
	if _, err := sendArchive(c, id, "", whole[:700]); err == nil {
		t.Error("half an archive was taken")
	}
}

func TestFilesOfACodebaseCanBeChanged(t *testing.T) {
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{"a": "one\n", "gone/x": "x\n"})
	old := s.createFrom(c)
	empty, err := s.CreateCodebase(ann, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{c, empty.GetId()} {
		info, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{CodebaseId: id, Path: "new/file", Content: []byte("n\n"), MakeParents: true})
		if err != nil || info.GetPath() != "new/file" {
			t.Fatalf("%v, %v", info, err)
		}
		s.wantContent(id, "new/file", "n\n")
	}
	if _, err := s.RemoveFile(ann, &baileyv1.RemoveFileRequest{CodebaseId: c, Path: "gone", Recursive: true}); err != nil {
		t.Error(err)
	}
	if _, err := s.MoveFile(ann, &baileyv1.MoveFileRequest{CodebaseId: c, Path: "a", NewPath: "b"}); err != nil {
		t.Error(err)
	}
	if _, err := s.MakeDirectory(ann, &baileyv1.MakeDirectoryRequest{CodebaseId: c, Path: "made", Mode: 0o700}); err != nil {
		t.Error(err)
	}
	s.says(s.createFrom(c), "cat b new/file; ls; stat -c %a made", "one\nn\nb\nmade\nnew\n700\n")
	s.says(old, "cat a gone/x; ls", "one\nx\na\ngone\n")
	now, err := s.GetCodebase(ann, &baileyv1.GetCodebaseRequest{CodebaseId: c})
	if err != nil || now.GetVersion() != 5 {
		t.Errorf("%v, %v", now, err)
	}
	_, err = s.RemoveFile(ann, &baileyv1.RemoveFileRequest{CodebaseId: c, Path: "missing"})
	wantReason(t, err, connect.CodeNotFound, "file_not_found")
	_, err = s.WriteFile(as("bob"), &baileyv1.WriteFileRequest{CodebaseId: c, Path: "x"})
	wantReason(t, err, connect.CodeNotFound, "codebase_not_found")
	s.wantContent(c, "b", "one\n")
	if entries, _ := os.ReadDir(filepath.Join(s.config.Dir, "data/workspaces")); len(entries) > 4 { // two sandboxes, and two views that were read
		t.Errorf("left behind: %v", entries)
	}
}
