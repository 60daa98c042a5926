package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// TestFactsAreThoseOfTheOverlay: what the layers above say counts.
func TestFactsAreThoseOfTheOverlay(t *testing.T) {
	base := t.TempDir()
	layer := func(name string) string { return filepath.Join(base, name) }
	put := func(layer, name, text string) {
		p := filepath.Join(base, layer, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"same", "changed", "gone", "became-link", "dir/x", "dir/y", "opaque/x", "removed/x", "twice/x"} {
		put("source", name, "source")
	}
	put("middle", "changed", "middle")
	put("middle", "twice/x", "middle")
	put("middle", "middle-only", "middle")
	put("upper", "changed", "upper")
	put("upper", "dir/z", "upper")
	put("upper", "opaque/z", "upper")
	for _, name := range []string{"gone", "removed", "middle-only"} {
		if err := unix.Mknod(layer("upper/"+name), unix.S_IFCHR, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(layer("upper/opaque"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", layer("upper/became-link")); err != nil {
		t.Fatal(err)
	}
	f := Overlay(&Facts{}, &spec.Overlay{Source: layer("source"), Lowers: []string{layer("middle"), layer("source")}, Upper: layer("upper")})
	for name, want := range map[string]string{
		"same": "source", "changed": "upper", "dir/x": "source", "dir/z": "upper", "opaque/z": "upper", "twice/x": "middle",
		"gone": "", "removed": "", "removed/x": "", "opaque/x": "", "middle-only": "", "never": "", "same/below": "",
	} {
		p := layer("source/" + name)
		info, err := f.Lstat(p)
		data, _ := f.ReadFile(p)
		if (err == nil) != (want != "") || want != "" && (info.Type != spec.TypeRegular || string(data) != want || !f.Readable(p)) {
			t.Errorf("%s: got %+v, %v, %q, want %q", name, info, err, data, want)
		}
	}
	if info, err := f.Lstat(layer("source/became-link")); err != nil || info.Type != spec.TypeLink {
		t.Errorf("link: %+v, %v", info, err)
	}
	if text, err := f.Readlink(layer("source/became-link")); err != nil || text != "/etc" {
		t.Errorf("link: %q, %v", text, err)
	}
	if names, err := f.ReadDir(layer("source/dir"), 10); err != nil || !slices.Equal(names, []string{"x", "y", "z"}) {
		t.Errorf("names: %q, %v", names, err)
	}
	if info, err := f.Lstat(layer("upper/changed")); err != nil || info.Type != spec.TypeRegular {
		t.Errorf("beside the overlay: %+v, %v", info, err)
	}
}

func TestEmptyOverlayCostsNothing(t *testing.T) {
	base := t.TempDir()
	facts := &Facts{}
	over := &spec.Overlay{Source: base, Lowers: []string{base}, Upper: t.TempDir()}
	if got := Overlay(facts, over); got != spec.Facts(facts) {
		t.Errorf("got %T", got)
	}
}
