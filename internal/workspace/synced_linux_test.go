package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/synced"
)

// TestFilesAreOnTheDiskBeforeTheirNames: of everything that takes effect by a rename.
// An import and a snapshot are on the disk as a whole when they are acknowledged.
func TestFilesAreOnTheDiskBeforeTheirNames(t *testing.T) {
	testenv.Requires(t, testenv.NoRace, testenv.Program("strace"))
	dir := project(t, "a", "dir/b", "c")
	store := t.TempDir() + "/data"
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), crashStore+"="+store, crashProject+"="+dir, crashStep+"="+strconv.Itoa(1<<30))
	trace, err := synced.Run(c)
	must(t, err)
	for _, early := range trace.Early(store, isFleeting(store)) {
		t.Error(early)
	}
	for i, o := range operations {
		switch o.name {
		case "import", "snapshot", "import again", "running snapshot":
			pending, err := trace.Pending(store, strconv.Itoa(i)+"\n")
			must(t, err)
			pending = slices.DeleteFunc(pending, isFleeting(store))
			if len(pending) > 0 {
				t.Errorf("%s is acknowledged while %q are not on the disk", o.name, pending)
			}
		}
	}
}

// isFleeting is what a crash of the machine may take: what is being made, locks, and
// workspaces in which nobody was told that something is kept.
func isFleeting(store string) func(name string) bool {
	return func(name string) bool {
		rest := strings.TrimPrefix(name, store+"/")
		return rest == "tmp" || strings.HasPrefix(rest, "tmp/") || filepath.Base(rest) == "lock" || filepath.Dir(rest) == "workspaces"
	}
}
