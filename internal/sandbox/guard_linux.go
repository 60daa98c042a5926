package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Guard knows what every sandbox in the directory that a workspace on a codebase is
// applied to would be kept from writing there, and why. A command in the workspace
// was kept from what is protected in what it saw, which may be older than the
// directory, or a part of the repository. It is nil for workspaces that lie on the
// directory itself.
func Guard(d *delta.Delta) (func(path string, isDir bool) string, error) {
	dir := d.Source()
	if d.Live() != "" || dir == "" {
		return nil, nil
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there is nothing to guard, and who applies says so
	}
	facts, err := host.New()
	if err != nil {
		return nil, err
	}
	caller := &facts.Caller
	caller.Dir, caller.OwnDirs, caller.DataDir = dir, OwnDirs(caller.Home), DataDir(caller.Home)
	s, err := spec.Compile(policy.Default(), facts, spec.Command{Later: true})
	if err != nil {
		return nil, err
	}
	why, err := s.Unwritable()
	if err != nil {
		return nil, err
	}
	return func(path string, isDir bool) string { return why(filepath.Join(dir, path), isDir) }, nil
}
