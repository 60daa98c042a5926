package server

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// watchFiles begins to watch files of a sandbox.
func (s *site) watchFiles(who caller.Caller, r *baileyv1.WatchFilesRequest) *connect.ServerStreamForClient[baileyv1.FileChange] {
	s.t.Helper()
	url, client := s.wire(who)
	ctx, end := context.WithCancel(context.Background())
	stream, err := baileyv1connect.NewFileServiceClient(client, url).WatchFiles(ctx, r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		end()
		_ = stream.Close()
	})
	return stream
}

// watchFromNow is watchFiles of what is not refused, up to the first message.
func (s *site) watchFromNow(r *baileyv1.WatchFilesRequest) *connect.ServerStreamForClient[baileyv1.FileChange] {
	s.t.Helper()
	stream := s.watchFiles(annItself, r)
	untilChange(s.t, stream, "LOST .")
	return stream
}

// untilChange reads changes up to one, and returns all of them as lines.
func untilChange(t testing.TB, stream *connect.ServerStreamForClient[baileyv1.FileChange], want string) string {
	t.Helper()
	var all []string
	for stream.Receive() {
		m := stream.Msg()
		line := strings.TrimPrefix(m.GetKind().String(), "FILE_CHANGE_KIND_") + " " + m.GetPath()
		all = append(all, line)
		if line == want {
			return strings.Join(all, "\n")
		}
	}
	t.Fatalf("no %s: %v, after %q", want, stream.Err(), all)
	return ""
}

func TestChangesOfFilesAreToldInEveryStateOfASandbox(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	stream := s.watchFromNow(&baileyv1.WatchFilesRequest{SandboxId: id, Recursive: true})
	write := func(name string) {
		t.Helper()
		if _, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: id, Path: name, Content: []byte("x"), MakeParents: true}); err != nil {
			t.Fatal(err)
		}
	}
	s.run(id, "mkdir -p a/b && echo x > a/b/c && echo y >> a/b/c && mv a moved")
	untilChange(t, stream, "MADE moved/b/c")
	s.run(id, "rm moved/b/c")
	untilChange(t, stream, "REMOVED moved/b/c")
	write("by-api")
	if got := untilChange(t, stream, "MADE by-api"); strings.Contains(got, ".bailey-") {
		t.Errorf("temporary files are told of: %s", got)
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	untilChange(t, stream, "LOST .")
	write("while/stopped")
	untilChange(t, stream, "MADE while/stopped")
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	untilChange(t, stream, "LOST .")
	s.run(id, "echo again > moved/again")
	untilChange(t, stream, "MADE moved/again")
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

func TestWatchersOfFilesSeeWhatTheSandboxSees(t *testing.T) {
	testenv.Requires(t, testenv.FUSE)
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Policy: `{"workspace": {"rules": [{"pattern": "**/*.secret", "permission": "none"}]}}`})
	s.run(id, "mkdir in && ln -s /tmp out && ln -s in link && echo x > in/x")
	stream := s.watchFromNow(&baileyv1.WatchFilesRequest{SandboxId: id, Recursive: true})
	s.run(id, "echo x > /tmp/elsewhere; echo x > in/a.secret; echo x > link/y; echo y >> in/x; touch end; true")
	got := untilChange(t, stream, "MADE end")
	for _, hidden := range []string{"secret", "elsewhere", "link"} {
		if strings.Contains(got, hidden) {
			t.Errorf("%s is told of: %q", hidden, got)
		}
	}
	for _, seen := range []string{"MADE in/y\n", "CHANGED in/x\n"} {
		if !strings.Contains(got, seen) {
			t.Errorf("%q is not told: %q", seen, got)
		}
	}
}

func TestWatchesOfFilesAreRefused(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.run(id, "ln -s /etc out; echo x > file")
	for name, test := range map[string]struct {
		who  caller.Caller
		r    *baileyv1.WatchFilesRequest
		want connect.Code
	}{
		"another owner":  {caller.Caller{Owner: "bob", Scopes: annItself.Scopes}, &baileyv1.WatchFilesRequest{SandboxId: id}, connect.CodeNotFound},
		"without scopes": {caller.Caller{Owner: "ann"}, &baileyv1.WatchFilesRequest{SandboxId: id}, connect.CodePermissionDenied},
		"a link out":     {annItself, &baileyv1.WatchFilesRequest{SandboxId: id, Path: "out"}, connect.CodeInvalidArgument},
		"above":          {annItself, &baileyv1.WatchFilesRequest{SandboxId: id, Path: "../x"}, connect.CodeInvalidArgument},
		"a file":         {annItself, &baileyv1.WatchFilesRequest{SandboxId: id, Path: "file"}, connect.CodeFailedPrecondition},
		"nothing":        {annItself, &baileyv1.WatchFilesRequest{SandboxId: id, Path: "none"}, connect.CodeNotFound},
	} {
		stream := s.watchFiles(test.who, test.r)
		for stream.Receive() {
		}
		if got := connect.CodeOf(stream.Err()); got != test.want {
			t.Errorf("%s: got %v, want %v", name, stream.Err(), test.want)
		}
	}
}
