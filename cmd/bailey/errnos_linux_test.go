package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestEveryOperationEndsInAnOverlayAsWithout does everything that can be done with a
// name, once in the project itself and once in an overlay, to files of the project.
func TestEveryOperationEndsInAnOverlayAsWithout(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	b := newOverlayBench(t)
	script, err := os.ReadFile("testdata/errnos.py")
	if err != nil {
		t.Fatal(err)
	}
	b.write("../errnos.py", string(script), 0o644)
	program := filepath.Join(b.dir, "..", "errnos.py")
	trees := filepath.Join(b.dir, "trees")
	if err := os.Mkdir(trees, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", b.dir, b.home).Run() })
	prepare := exec.Command("python3", program, "make")
	prepare.Dir = trees
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	try := func(flags ...string) []string {
		got := b.run(slices.Concat([]string{"-q", "--allow-read", program}, flags, []string{"-c", "cd trees && exec python3 " + program + " try"})...)
		if got.status != 0 {
			t.Fatalf("%q: %+v", flags, got)
		}
		return strings.Split(strings.TrimSpace(got.stdout), "\n")
	}
	over := try("--overlay=keep:one")
	plain := try() // last: it changes them
	if len(over) != len(plain) || len(plain) < 800 {
		t.Fatalf("%d cases in the overlay, %d without", len(over), len(plain))
	}
	for i := range plain {
		if over[i] != plain[i] && !isRenamedDirectory(plain[i], over[i]) {
			t.Errorf("in the overlay %q, without %q", over[i], plain[i])
		}
	}
}

// isRenamedDirectory is the one difference: directories of the project are renamed
// as between file systems.
func isRenamedDirectory(plain, over string) bool {
	p, o := strings.Split(plain, "\t"), strings.Split(over, "\t")
	return p[0] == "rename" && slices.Contains([]string{"'empty'", "'full'"}, strings.Fields(p[1])[0]) && o[2] == "EXDEV"
}
