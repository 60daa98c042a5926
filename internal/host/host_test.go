package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestParseMounts(t *testing.T) {
	const table = `22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 98:0 /a\040b /mnt\134x\011y rw,noatime master:1 - ext3 /dev/root rw,errors=continue
`
	got, err := ParseMounts(strings.NewReader(table))
	want := []spec.MountPoint{{Dev: "0:21", Root: "/", Target: "/proc", Type: "proc"}, {Dev: "98:0", Root: "/a b", Target: "/mnt\\x\ty", Type: "ext3"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := ParseMounts(strings.NewReader("1 2 3\n")); err == nil {
		t.Error("a short line passed")
	}
}

func TestLiveFacts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("file", "text")
	write("large", strings.Repeat("x", maxFile+1))
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Lstat(filepath.Join(dir, "file"))
	if err != nil || info.Type != spec.TypeRegular || info.Mode != 0o640 || info.UID != os.Getuid() {
		t.Errorf("got %+v, %v", info, err)
	}
	if info, err := f.Lstat(filepath.Join(dir, "link")); err != nil || info.Type != spec.TypeLink {
		t.Errorf("got %+v, %v", info, err)
	}
	if text, err := f.Readlink(filepath.Join(dir, "link")); err != nil || text != "file" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := f.Lstat(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing file has a description")
	}
	names, err := f.ReadDir(dir, 3)
	if err != nil || !slices.Equal(names, []string{"file", "large", "link"}) {
		t.Errorf("got %q, %v", names, err)
	}
	if _, err := f.ReadDir(dir, 2); err == nil {
		t.Error("more names than the limit passed")
	}
	if data, err := f.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "text" {
		t.Errorf("got %q, %v", data, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "large"), filepath.Join(dir, "none")} {
		if _, err := f.ReadFile(bad); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if !f.Readable(dir) {
		t.Error("the own directory is not readable")
	}
	if table, err := f.Mounts(); err != nil || len(table) == 0 {
		t.Errorf("mount table: %v, %v", table, err)
	}
}

// A program of ours that a sandbox could replace would be run without one.
func TestEveryProgramOfOursIsACompanion(t *testing.T) {
	entries, err := os.ReadDir("../../cmd")
	if err != nil {
		t.Fatal(err)
	}
	list := companions("/opt/tools/some-program")
	for _, e := range entries {
		if !slices.Contains(list, "/opt/tools/"+e.Name()) {
			t.Errorf("%s is not among %q", e.Name(), list)
		}
	}
}
