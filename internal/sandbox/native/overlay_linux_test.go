package native

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// overlaid gives a Spec layers over the project: names with characters that mean
// something to overlayfs, and as many lower directories as asked for.
func overlaid(t testing.TB, s *spec.Spec, layers int) *spec.Overlay {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	base += `/a:b,c\d e`
	make := func(name string) string {
		dir := base + "/" + name
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	// Nobody may read what overlayfs leaves there.
	t.Cleanup(func() { _ = os.Chmod(base+"/work/work", 0o700) })
	s.Overlay = &spec.Overlay{Source: s.Dir, Upper: make("upper"), Work: make("work")}
	for i := range layers {
		dir := make("layer" + strconv.Itoa(i))
		write(t, dir+"/layer"+strconv.Itoa(i), "")
		s.Overlay.Lowers = append(s.Overlay.Lowers, dir)
	}
	s.Overlay.Lowers = append(s.Overlay.Lowers, s.Dir)
	return s.Overlay
}

func write(t testing.TB, name, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wantText(t testing.TB, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
	}
}

// TestOverlayTakesEveryMountOfTheProject: what is pinned, read-only or private in
// the project is so in the overlay, and nothing leads to the project itself.
func TestOverlayTakesEveryMountOfTheProject(t *testing.T) {
	requireSandbox(t)
	s := shell(t, `
		echo upper > a; echo upper > pinned/f; echo upper > pinned/private/f
		(echo evil > pinned/ro/f) 2>/dev/null || echo held
		mv pinned moved 2>/dev/null || echo stays
		cat a pinned/f pinned/ro/f pinned/private/f; ls`)
	dir := s.Dir
	for _, name := range []string{"a", "pinned/f", "pinned/ro/f", "pinned/private/f"} {
		write(t, dir+"/"+name, "source\n")
	}
	s.Mounts = append(s.Mounts,
		spec.Mount{Kind: spec.Bind, Source: dir + "/pinned", Target: dir + "/pinned", Write: true},
		spec.Mount{Kind: spec.Private, Source: dir + "/pinned/private", Target: dir + "/pinned/private"},
		spec.Mount{Kind: spec.Bind, Source: dir + "/pinned/ro", Target: dir + "/pinned/ro"},
	)
	over := overlaid(t, s, 0)
	want := "held\nstays\nupper\nupper\nsource\nupper\na\npinned\n"
	if got := run(t, s).exit(t, 0).out; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, name := range []string{"a", "pinned/f", "pinned/ro/f", "pinned/private/f"} {
		wantText(t, dir+"/"+name, "source\n")
	}
	wantText(t, over.Upper+"/a", "upper\n")
	wantText(t, over.Upper+"/pinned/f", "upper\n")
	if _, err := os.Lstat(over.Upper + "/pinned/private"); err == nil {
		t.Error("what was private is in the overlay")
	}
}

func TestOverlayOfManyLayers(t *testing.T) {
	requireSandbox(t)
	const layers = 40
	s := shell(t, "ls | wc -l; cat source; rm layer7; ls | wc -l")
	write(t, s.Dir+"/source", "source\n")
	over := overlaid(t, s, layers)
	if got, want := run(t, s).exit(t, 0).out, "41\nsource\n40\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	wantText(t, over.Lowers[7]+"/layer7", "")
	var st unix.Stat_t
	if err := unix.Lstat(over.Upper+"/layer7", &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("no whiteout: %v, %+v", err, st)
	}
}

// TestOverlayFollowsNoLink: a link in the place of a directory of the overlay is
// an error, and nothing runs.
func TestOverlayFollowsNoLink(t *testing.T) {
	requireSandbox(t)
	s := shell(t, "echo ran")
	over := overlaid(t, s, 0)
	elsewhere := t.TempDir()
	if err := os.Remove(over.Upper); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, over.Upper); err != nil {
		t.Fatal(err)
	}
	streams, collect := outputTo(t)
	_, err := Start(s, Options{Streams: streams})
	if out := collect(); err == nil || out != "" || !strings.Contains(err.Error(), "overlay") {
		t.Errorf("error %v, output %q", err, out)
	}
}
