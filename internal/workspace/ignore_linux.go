package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// ignored are the files that git would ignore, directories with a slash.
type ignored map[string]bool

// newIgnored asks git. It is asked with a repository of our own, whose settings
// name no program, and only reads the list of tracked files from the project's:
// those are not ignored, whatever rules say.
func (s *Store) newIgnored(dir string) (ignored, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	place, err := s.Scratch("git")
	if err != nil {
		return nil, err
	}
	defer func() { _ = place.Discard() }() // or the next Sweep
	scratch := place.Path()
	if _, err := git(nil, scratch, "init", "--quiet", "--bare", "--template=", scratch); err != nil {
		return nil, err
	}
	own := []string{"GIT_DIR=" + scratch, "GIT_WORK_TREE=" + dir}
	if st, err := os.Lstat(dir + "/.git/index"); err == nil && st.Mode().IsRegular() {
		own = append(own, "GIT_INDEX_FILE="+dir+"/.git/index")
	}
	out, err := git(own, dir, "-c", "core.bare=false", "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
	if err != nil {
		return nil, err
	}
	list := make(ignored)
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			list[name] = true
		}
	}
	return list, nil
}

// git runs git without what the caller's environment may say about repositories.
func git(env []string, dir string, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("to leave out what git ignores takes git: %w", err)
	}
	c := exec.Command(program, args...)
	c.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := runBound(c); err != nil {
		return nil, errors.Join(fmt.Errorf("git: %w", err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return stdout.Bytes(), nil
}

func (i ignored) skip(n *tree.Node) bool {
	if n.IsDir() {
		return i[n.Path+"/"]
	}
	return i[n.Path]
}
