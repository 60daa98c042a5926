package sandbox

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/foreign"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// translator lets a settings file of another tool be named where a policy may.
func translator(o policy.Options) func(*policy.Document) (*policy.Translated, error) {
	if o.Settings == "" {
		return nil
	}
	return foreign.Translator(foreign.Options{Home: o.Home, Dir: o.Dir, ConfigHome: o.ConfigHome})
}

// settle prepares for what other tools mean by their settings: relative paths
// start in the working directory, and directories such as /tmp and ~/.config are
// granted as a whole. Bailey's own directories in there are made first, so that
// they can be protected; for a policy to leave them to the command is an error.
func settle(caller *spec.Host, loaded *policy.Loaded) {
	if loaded.Tool == "" {
		return
	}
	caller.Root = loaded.Root
	for _, own := range caller.OwnDirs {
		for _, entry := range loaded.Policy.Filesystem.AllowWrite {
			dir := strings.TrimSuffix(entry, "/**")
			if rest, ok := strings.CutPrefix(dir, "~"); ok {
				dir = caller.Home + rest
			}
			if filepath.IsAbs(dir) && spec.Covers(filepath.Clean(dir), own) {
				_ = os.MkdirAll(own, 0o700) // what is still missing is refused later, by name
			}
		}
	}
}
