package server

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestPathRulesWithPatternsHold(t *testing.T) {
	testenv.Requires(t, testenv.FUSE)
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{".env": "secret\n", "src/.env": "secret\n", "src/a": "a\n"})
	id := s.create(&baileyv1.CreateSandboxRequest{
		Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c},
		Rules:  []*baileyv1.PathRule{{Pattern: "src/**", Permission: "read"}, {Pattern: "**/.env", Permission: "none"}},
	})
	s.says(id, "ls -A . src; cat .env src/.env 2>/dev/null; echo x 2>/dev/null >src/b; echo y >b; cat b src/a", ".:\nsrc\n\nsrc:\na\ny\na\n")
}

// archived lists the files of a sandbox's archive, without directories.
func (s *site) archived(id string) (string, error) {
	s.t.Helper()
	data, err := fetchArchive(s.filesAs(annItself), id, "")
	var names []string
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		if h.Typeflag != tar.TypeDir {
			names = append(names, h.Name+h.Linkname)
		}
	}
	return strings.Join(names, " "), err
}

func TestArchivesHaveWhatRulesLetBeRead(t *testing.T) {
	testenv.Requires(t, testenv.FUSE)
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{"docs/a.md": "secret\n", "docs/b": "b\n"})
	id := s.create(&baileyv1.CreateSandboxRequest{
		Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c},
		Rules:  []*baileyv1.PathRule{{Pattern: "docs/**/*.md", Permission: "view"}},
	})
	s.says(id, "echo c >c; ln c d", "")
	if got, err := s.archived(id); got != "c dc docs/b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestArchivesHaveNothingThatMountsHide(t *testing.T) {
	s := newSite(t, nil)
	c := s.codebaseOf(map[string]string{"docs/a.md": "secret\n", "docs/b": "b\n", "hidden/c": "c\n"})
	id := s.create(&baileyv1.CreateSandboxRequest{
		Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c},
		Rules:  []*baileyv1.PathRule{{Pattern: "docs/a.md", Permission: "none"}, {Pattern: "hidden", Permission: "none"}},
	})
	// To root, what stands in the place of a hidden file is an empty one.
	if got, err := s.archived(id); strings.TrimPrefix(got, "docs/a.md ") != "docs/b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// What nobody has hidden must not be missing in silence.
func TestArchiveNamesAFileThatItsModeShuts(t *testing.T) {
	testenv.Requires(t, testenv.Unprivileged)
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "echo a >a; chmod 0 a", "")
	_, err := s.archived(id)
	wantReason(t, err, connect.CodePermissionDenied, "file_protected")
	if !strings.Contains(err.Error(), "a: permission denied") {
		t.Error(err)
	}
}
