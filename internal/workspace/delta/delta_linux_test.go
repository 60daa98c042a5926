package delta

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func store(t *testing.T) (Store, string) {
	t.Helper()
	project := t.TempDir()
	return At(t.TempDir() + "/data"), project
}

func create(t *testing.T, s Store, o Options) *Delta {
	t.Helper()
	d, err := s.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func on(dir string) []Lower { return []Lower{{Dir: dir}} }

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestPlaceFollowsVariablesAndNeverTheProject(t *testing.T) {
	for _, c := range []struct{ own, xdg, home, want string }{
		{"/srv/data", "/x", "/home/u", "/srv/data"},
		{"", "/x", "/home/u", "/x/bailey"},
		{"", "relative", "/home/u", "/home/u/.local/share/bailey"},
		{"", "", "", ""},
		{"relative", "", "/home/u", ""},
	} {
		t.Setenv(Variable, c.own)
		t.Setenv("XDG_DATA_HOME", c.xdg)
		s, err := Place(c.home)
		if got := s.Dir(); c.want != got && (c.want != "" || err == nil) {
			t.Errorf("Place(%q) with %q, %q: got %q, %v, want %q", c.home, c.own, c.xdg, got, err, c.want)
		}
	}
}

func TestWorkspaceIsHeldByOneWriter(t *testing.T) {
	s, project := store(t)
	d := create(t, s, Options{Name: "one", Stack: on(project), Target: "/work"})
	if _, err := s.Open("one", Read); !errors.Is(err, ErrBusy) {
		t.Errorf("reading while somebody writes: got %v, want %v", err, ErrBusy)
	}
	if err := d.Keep(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	first, err := s.Open("one", Read)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Open("one", Read)
	if err != nil {
		t.Fatalf("two readers: %v", err)
	}
	if _, err := s.Open("one", Write); !errors.Is(err, ErrBusy) {
		t.Errorf("writing while somebody reads: got %v, want %v", err, ErrBusy)
	}
	first.Close()
	second.Close()
	again, err := s.Open("one", Write)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Record.State != Kept || again.Record.Target != "/work" || again.Lowers()[0] != project || again.Live() != project {
		t.Errorf("the record came back as %+v", again.Record)
	}
}

func TestReaderCannotChangeTheRecord(t *testing.T) {
	s, project := store(t)
	create(t, s, Options{Name: "one", Stack: on(project)}).Close()
	d, err := s.Open("one", Read)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Save(); err == nil {
		t.Error("a reader saved the record")
	}
	if err := d.Remove(); err == nil {
		t.Error("a reader removed the workspace")
	}
}

func TestNameThatIsTakenIsRefusedAndLeavesNothing(t *testing.T) {
	s, project := store(t)
	create(t, s, Options{Name: "one", Stack: on(project)})
	if _, err := s.Create(Options{Name: "one", Stack: on(project)}); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want %v", err, ErrExists)
	}
	if left := names(t, s.Dir()+"/tmp"); left != "" {
		t.Errorf("left in tmp: %s", left)
	}
}

func TestGeneratedNamesDiffer(t *testing.T) {
	s, project := store(t)
	seen := map[string]bool{}
	for range 20 {
		d := create(t, s, Options{Stack: on(project)})
		if seen[d.Record.Name] || ValidName(d.Record.Name) != nil {
			t.Errorf("name %q", d.Record.Name)
		}
		seen[d.Record.Name] = true
	}
}

func TestRemovedWorkspaceIsGone(t *testing.T) {
	s, project := store(t)
	d := create(t, s, Options{Name: "one", Stack: on(project)})
	locked := d.Work() + "/work/inner"
	if err := os.MkdirAll(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(locked), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.Dir()+"/tmp") + names(t, s.Dir()+"/workspaces"); left != "" {
		t.Errorf("left: %s", left)
	}
	if _, err := s.Open("one", Read); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want %v", err, ErrNotFound)
	}
}

func TestListTellsRunningFromInterrupted(t *testing.T) {
	s, project := store(t)
	create(t, s, Options{Name: "killed", Stack: on(project)}).Close()
	create(t, s, Options{Name: "runs", Stack: on(project)})
	kept := create(t, s, Options{Name: "kept", Stack: on(project)})
	if err := kept.Keep(); err != nil {
		t.Fatal(err)
	}
	kept.Close()
	if err := os.MkdirAll(s.Dir()+"/workspaces/torn", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Dir()+"/workspaces/torn/record", []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, l := range list {
		switch {
		case l.Err != nil:
			got += l.Name + " damaged, "
		case l.Interrupted():
			got += l.Name + " interrupted, "
		case l.InUse:
			got += l.Name + " in use, "
		default:
			got += l.Name + " " + string(l.State) + ", "
		}
	}
	if want := "kept kept, killed interrupted, runs in use, torn damaged, "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestDryRunGoesWithItsOwner(t *testing.T) {
	s, project := store(t)
	d := create(t, s, Options{State: DryRun, Stack: on(project)})
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Upper()); err != nil {
		t.Fatalf("a dry run that goes on was swept: %v", err)
	}
	if list, _ := s.List(); len(list) != 0 {
		t.Errorf("a dry run is listed: %+v", list)
	}
	// As a kill does: the kernel closes what the process had open.
	d.unlock()
	d.scratch.Close()
	d.scratch = nil
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.Dir()+"/tmp"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A sandbox dies a moment after its owner that was killed.
func TestSweepLeavesWhatIsStillWrittenToTheNext(t *testing.T) {
	s, _ := store(t)
	if err := s.Make(); err != nil {
		t.Fatal(err)
	}
	dir := s.Dir() + "/tmp/left"
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for range 50 {
			_ = os.MkdirAll(dir+"/a/b/c", 0o700)
			_ = os.RemoveAll(dir + "/a")
		}
	}()
	for writing := true; writing; {
		select {
		case <-ended:
			writing = false
		default:
		}
		if err := s.Sweep(); err != nil {
			<-ended
			t.Fatal(err)
		}
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.Dir()+"/tmp"); left != "" {
		t.Errorf("left: %s", left)
	}
}

func TestDirectoryThatHoldsTheWorkspacesIsRefused(t *testing.T) {
	home := t.TempDir()
	s := At(home + "/.local/share/bailey")
	for _, dir := range []string{home, "/", s.Dir(), s.Dir() + "/layers"} {
		if _, err := s.Create(Options{Stack: on(dir)}); err == nil {
			t.Errorf("an overlay on %s was made", dir)
		}
	}
}

func TestOpenDirectoryOfOthersIsRefused(t *testing.T) {
	s, project := store(t)
	create(t, s, Options{Stack: on(project)})
	if err := os.Chmod(s.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(Options{Stack: on(project)}); err == nil {
		t.Error("a workspace was made where others can look in")
	}
}

func TestUpperHasTheModeOfWhatItLiesOn(t *testing.T) {
	s, project := store(t)
	if err := unix.Chmod(project, 0o2750); err != nil {
		t.Fatal(err)
	}
	d := create(t, s, Options{Stack: on(project)})
	var st unix.Stat_t
	if err := unix.Stat(d.Upper(), &st); err != nil || st.Mode&0o7777 != 0o2750 {
		t.Errorf("got %o, %v, want 2750", st.Mode&0o7777, err)
	}
}

func TestMissingLayerIsRefused(t *testing.T) {
	s, _ := store(t)
	if _, err := s.Create(Options{Stack: []Lower{{Layer: "gone"}}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// makeLayer makes a layer that waits for its tree.
func makeLayer(t *testing.T, s Store, id string) {
	t.Helper()
	if err := os.Mkdir(s.layer(id), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestSealedDeltaIsTheTopLayer(t *testing.T) {
	s, project := store(t)
	d := create(t, s, Options{Name: "one", Stack: on(project)})
	if err := os.WriteFile(d.Upper()+"/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	makeLayer(t, s, "l1")
	if err := d.Seal("l1"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s.LayerTree("l1")); got != "f" {
		t.Errorf("the layer has %q", got)
	}
	if got := names(t, d.Upper()); got != "" {
		t.Errorf("the delta has %q", got)
	}
	if got := strings.Join(d.Lowers(), " "); got != s.LayerTree("l1")+" "+project {
		t.Errorf("it lies on %s", got)
	}
}

func TestSealThatWasCutShortIsFinishedOrForgotten(t *testing.T) {
	for _, renamed := range []bool{false, true} {
		s, project := store(t)
		d := create(t, s, Options{Name: "one", Stack: on(project)})
		if err := os.WriteFile(d.Upper()+"/f", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		makeLayer(t, s, "l1")
		d.Record.Sealing = "l1"
		if err := d.Save(); err != nil {
			t.Fatal(err)
		}
		if renamed {
			if err := os.Rename(d.Upper(), s.LayerTree("l1")); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
		d, err := s.Open("one", Read)
		if err != nil {
			t.Fatal(err)
		}
		where := d.Upper()
		if renamed {
			where = s.LayerTree("l1")
		} else if left := names(t, s.Dir()+"/layers"); left != "" {
			t.Errorf("a layer that never was is left: %s", left)
		}
		if got := names(t, where); got != "f" || len(d.Lowers()) != map[bool]int{false: 1, true: 2}[renamed] {
			t.Errorf("renamed %v: %q, lowers %q", renamed, got, d.Lowers())
		}
		d.Close()
	}
}
