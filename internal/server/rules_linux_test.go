package server

import (
	"testing"

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
