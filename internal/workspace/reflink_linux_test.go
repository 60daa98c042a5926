package workspace

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// sharingDir says where a process in a mount namespace of its own, which takes its
// mounts with it, tries what shares blocks.
const sharingDir = "BAILEY_TEST_SHARING_DIR"

// TestLayersShareBlocks: where the file system can, nothing is written twice.
func TestLayersShareBlocks(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.Btrfs)
	if dir := os.Getenv(sharingDir); dir != "" {
		shareBlocks(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLayersShareBlocks$")
	cmd.Env = append(os.Environ(), sharingDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func shareBlocks(t *testing.T, dir string) {
	image, disk := dir+"/image", dir+"/disk"
	write(t, image, "")
	must(t, os.Truncate(image, 256<<20))
	must(t, os.Mkdir(disk, 0o755))
	for _, args := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	s, err := Open(delta.At(disk + "/data"))
	must(t, err)
	source, content := disk+"/source", make([]byte, 64<<10)
	_, _ = rand.Read(content)
	must(t, os.MkdirAll(source+"/another", 0o755))
	must(t, syscall.Mount("none", source+"/another", "tmpfs", 0, ""))
	write(t, source+"/another/file", "of another file system")
	write(t, source+"/file", string(content))
	c, err := s.ImportDirectory(source, ImportOptions{Name: "c"})
	must(t, err)
	must(t, syscall.Unmount(source+"/another", 0))
	if _, err := os.Stat(s.LayerTree(c.Layers[0]) + "/another/file"); err != nil {
		t.Error(err)
	}
	wantShared(t, "import", s.LayerTree(c.Layers[0])+"/file")

	// What comes as a stream is compared with what is there.
	write(t, source+"/file2", string(content))
	must(t, os.WriteFile(source+"/file", slices.Repeat([]byte{1}, len(content)), 0o644))
	streams := make(map[string]*bytes.Buffer)
	for _, name := range []string{"other", "same"} {
		imported(t, s, name, source)
		streams[name] = new(bytes.Buffer)
		must(t, s.ExportCodebase(streams[name], name, archive.Plain))
		must(t, s.RemoveCodebase(name))
		write(t, source+"/file", string(content))
	}
	for name, stream := range streams {
		made, err := s.ImportArchive(stream, ImportOptions{Name: name})
		must(t, err)
		tree := s.LayerTree(made.Layers[0])
		if name == "same" {
			wantShared(t, "import of an archive", tree+"/file")
		} else if got, err := os.ReadFile(tree + "/file"); err != nil || !bytes.Equal(got, slices.Repeat([]byte{1}, len(content))) {
			t.Errorf("a file of the same size is another: %v", err)
		}
		must(t, s.RemoveCodebase(name))
	}
	must(t, os.Remove(source+"/file2"))

	d, err := s.Start("c", delta.Options{Name: "w", Target: "/w"})
	must(t, err)
	_, _ = rand.Read(content)
	write(t, d.Upper()+"/new", string(content))
	n, err := s.SnapshotRunning("w", &freezer{})
	must(t, err)
	wantShared(t, "snapshot of a running workspace", s.LayerTree(n.Layers[0])+"/new")
	must(t, s.RemoveSnapshot("w", n.ID))

	_, err = change.Apply(d, change.Options{})
	must(t, err)
	wantShared(t, "apply", source+"/new")
	must(t, os.Remove(source+"/new"))
	d.Close()
	for _, name := range []string{"one", "two"} {
		n, err = s.Snapshot("w")
		must(t, err)
		d, err = s.Store.Open("w", delta.Write)
		must(t, err)
		write(t, d.Upper()+"/"+name, name)
		d.Close()
	}
	must(t, s.Squash("w"))
	d, err = s.Store.Open("w", delta.Read)
	must(t, err)
	defer d.Close()
	if merged := d.Lowers(); len(merged) != 2 || merged[0] == s.LayerTree(n.Layers[0]) {
		t.Fatalf("it was not put together: %q", merged)
	}
	wantShared(t, "squash", d.Lowers()[0]+"/new")
}

// wantShared wants that a file has no blocks of its own.
func wantShared(t *testing.T, what, file string) {
	t.Helper()
	out, err := exec.Command("filefrag", "-s", "-v", file).CombinedOutput()
	must(t, err)
	extents := 0
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 0 && strings.HasSuffix(words[0], ":") && strings.Contains(line, "..") {
			extents++
			if !strings.Contains(line, "shared") {
				t.Errorf("%s: blocks of its own: %s", what, line)
			}
		}
	}
	if extents == 0 {
		t.Errorf("%s: %s", what, out)
	}
}
