package workspace

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// forge tries everything that overlayfs, or a reader of layers, takes for the sign of
// something removed. What is refused is no error.
const forge = `
import os, stat
def attempt(do, *args):
    try: do(*args)
    except OSError: pass
def touch(name): open(name, "w").close()
for name in (".wh.shared", ".wh..wh..opq", "dir/.wh..wh..opq", ".bailey.wh.shared", ".wh..", ".wh...", "dir/.wh.inner"):
    attempt(touch, name)
attempt(os.mknod, "forged", stat.S_IFCHR | 0o600, 0)
attempt(os.mkdir, "new")
for name in ("dir", ".", "new", "shared"):
    for prefix in ("user.overlay.", "trusted.overlay."):
        for mark in ("opaque", "whiteout", "redirect", "metacopy", "origin", "impure"):
            attempt(os.setxattr, name, prefix + mark, b"y")
print(sorted(os.listdir(".")))
`

// inSandbox runs a program in a workspace through the command.
func inSandbox(t *testing.T, s *Store, name string, argv ...string) string {
	t.Helper()
	c := exec.Command(testenv.Binary(t, "bailey"), append([]string{"--quiet", "--overlay=keep:" + name, "--"}, argv...)...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), delta.Variable+"="+s.Dir())
	d, err := s.Store.Open(name, delta.Write)
	must(t, err)
	d.Record.Target = c.Dir
	must(t, d.Save())
	d.Close()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, stderr.String())
	}
	return string(out)
}

func TestForgedSignsHideNothing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("python3"), testenv.NoRace)
	s := newStore(t)
	base := imported(t, s, "base", project(t, "shared", "dir/inner"))
	before := shown(t, s.LayerTree(base.Layers[0]))
	start(t, s, "base", "attacker").Close()
	start(t, s, "base", "neighbour").Close()
	if seen := inSandbox(t, s, "attacker", "python3", "-c", forge); !strings.Contains(seen, ".wh.shared") {
		t.Errorf("the attack made nothing: %s", seen)
	}
	if got := inSandbox(t, s, "neighbour", "sh", "-c", "ls -A; cat shared dir/inner"); got != "dir\nshared\ncontent of sharedcontent of dir/inner" {
		t.Errorf("the neighbour sees %q", got)
	}
	if after := shown(t, s.LayerTree(base.Layers[0])); after != before {
		t.Errorf("the codebase has become\n%s", after)
	}
	want := inSandbox(t, s, "attacker", "sh", "-c", "cat shared dir/inner; ls -A . dir")
	if !strings.HasPrefix(want, "content of sharedcontent of dir/inner") {
		t.Errorf("the attacker hid something from the next command: %s", want)
	}
	if _, err := s.Snapshot("attacker"); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	must(t, s.Export(&layer, "attacker", "", archive.OCI))
	_, err := s.ImportLayer(&layer, "base", ImportOptions{Name: "again"})
	must(t, err)
	start(t, s, "again", "victim").Close()
	if got := inSandbox(t, s, "victim", "sh", "-c", "cat shared dir/inner; ls -A . dir"); got != want {
		t.Errorf("exported and imported it shows\n%swant\n%s", got, want)
	}
}
