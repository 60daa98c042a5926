package spec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// overlayOf is an overlay over a directory, with its changes in another.
func overlayOf(source, data string) *Overlay {
	return &Overlay{Source: source, Lowers: []string{source}, Upper: data + "/upper", Work: data + "/work"}
}

// TestOverlayChangesNoMount: what holds for the project holds in the overlay, by
// the same mounts, rules and protections.
func TestOverlayChangesNoMount(t *testing.T) {
	plain, over := newTrial(), newTrial()
	over.command.Overlay = overlayOf("/home/u/p", "/home/u/data")
	over.policy.Workspace.Mode = new("overlay")
	want, err := Compile(plain.policy, plain.facts, plain.command)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Compile(over.policy, over.facts, over.command)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Mounts, want.Mounts) || !slices.Equal(got.Landlock.Rules, want.Landlock.Rules) || !slices.Equal(got.Warnings, want.Warnings) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got.Overlay != over.command.Overlay || want.Overlay != nil {
		t.Errorf("overlays: %+v, %+v", got.Overlay, want.Overlay)
	}
	var text bytes.Buffer
	if err := Explain(&text, got); err != nil || !strings.Contains(text.String(), "can be written in an overlay, and stays as it is until that is applied\n  /home/u/p ") {
		t.Errorf("explain: %v\n%s", err, text.String())
	}
}

func TestOverlayWarnsOfWhatItDoesNotCover(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*trial)
		want string
	}{
		{"another directory", func(t *trial) { t.fs().AllowWrite = []string{".", "/srv/data"} }, "not part of the overlay, and changed by what the command writes there: /srv/data"},
		{"nothing", func(t *trial) { t.fs().AllowWrite = nil }, "nothing in /home/u/p can be written"},
		{"a file of another group", func(t *trial) {
			t.facts.add("/home/u/p/src/g")
			t.facts.files["/home/u/p/src/g"].GID = 33
		}, `/home/u/p/src/g belongs to user 1000 and group 33, and only 1000 and 1000 exist inside, so that it cannot be changed in the overlay ("value too large for defined data type"), and there may be more of its kind; chgrp -R 1000 /home/u/p/src/g, or`},
		{"a file in a directory of another user", func(t *trial) {
			t.facts.add("/home/u/p/theirs/mine")
			t.facts.files["/home/u/p/theirs"].UID = 0
		}, "/home/u/p/theirs belongs to user 0 and group 1000"},
		{"a directory that all may write", func(t *trial) {
			t.facts.add("/home/u/p/all/")
			t.facts.files["/home/u/p/all"].UID, t.facts.files["/home/u/p/all"].Mode = 0, 0o777
		}, "/home/u/p/all belongs to user 0 and group 1000, and only 1000 and 1000 exist inside"},
		{"a mount", func(t *trial) {
			t.facts.mounts = append(t.facts.mounts, MountPoint{Dev: "8:2", Root: "/", Target: "/home/u/p/mnt", Type: "ext4"})
		}, "/home/u/p/mnt is a mount of its own, and not shown in the overlay"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := newTrial()
			tr.command.Overlay = overlayOf("/home/u/p", "/home/u/data")
			test.edit(tr)
			s, err := Compile(tr.policy, tr.facts, tr.command)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, test.want) }) {
				t.Errorf("warnings %q, want %q", s.Warnings, test.want)
			}
		})
	}
}

// TestOverlayIsSilentAboutWhatNobodyWrites, and before it costs much.
func TestOverlayIsSilentAboutWhatNobodyWrites(t *testing.T) {
	for name, edit := range map[string]func(*trial){
		"cannot be written anyway": func(t *trial) {
			t.facts.add("/home/u/p/theirs/file")
			for _, p := range []string{"/home/u/p/theirs", "/home/u/p/theirs/file"} {
				t.facts.files[p].UID = 0
			}
		},
		"the policy denies it": func(t *trial) {
			t.facts.add("/home/u/p/g")
			t.facts.files["/home/u/p/g"].GID = 33
			t.fs().DenyWrite = []string{"g"}
		},
		"root has all": func(t *trial) {
			t.facts.add("/home/u/p/g")
			t.facts.files["/home/u/p/g"].GID = 33
			t.facts.host.UID = 0
		},
		"too far": func(t *trial) {
			for i := range maxOwners {
				t.facts.add(fmt.Sprintf("/home/u/p/%04d", i))
			}
			t.facts.add("/home/u/p/z")
			t.facts.files["/home/u/p/z"].GID = 33
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial()
			tr.command.Overlay = overlayOf("/home/u/p", "/home/u/data")
			edit(tr)
			s, err := Compile(tr.policy, tr.facts, tr.command)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "belongs to") }) {
				t.Errorf("warnings %q", s.Warnings)
			}
		})
	}
}

func TestProjectIsWhatAnOverlayLiesOver(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/u/p": "/home/u/p", "/home/u/p/src": "/home/u/p", "/srv/data": "/srv/data", "/home/u": "", "/etc": "", "/": "",
	} {
		tr := newTrial()
		tr.facts.add("/home/u/p/src/")
		tr.facts.host.Dir = dir
		if got := Project(tr.facts); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}

func TestOverlayIsRefusedForWhatStays(t *testing.T) {
	tr := newTrial()
	tr.policy.Workspace = policy.Workspace{Mode: new("overlay")}
	if _, err := Compile(tr.policy, tr.facts, Command{Later: true}); err == nil || !strings.Contains(err.Error(), keyOverlay) {
		t.Errorf("got %v", err)
	}
}

func TestLimitOnFilesPutsAnOverlayIntoMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		used   int64
		later  bool
		beside bool
		want   string
	}{
		{name: "held"},
		{name: "partly used", used: 7 << 20},
		{name: "used up", used: 8<<20 - 1, want: "resources.disk 8M: the workspace one takes 8388607 already, which counts; apply or discard it, or give more"},
		{name: "a sandbox that stays", later: true, want: "resources.disk 8M: in a sandbox that stays, changes are kept on the disk"},
		{name: "something beside it is written", beside: true, want: "resources.disk 8M: /srv is written on the host's disk"},
	} {
		tr := newTrial()
		tr.policy.Resources.Disk = new(policy.Size(8 << 20))
		if c.beside {
			tr.facts.add("/srv/")
			tr.policy.Filesystem.AllowWrite = append(tr.policy.Filesystem.AllowWrite, "/srv")
		}
		over := overlayOf("/home/u/p", "/home/u/data")
		over.Name, over.Used = "one", c.used
		tr.command.Overlay, tr.command.Later = over, c.later
		got, err := Compile(tr.policy, tr.facts, tr.command)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !got.Overlay.HeldInMemory() || over.InMemory || !slices.Equal(got.Overlay.Reads(), []string{"/home/u/data/upper", "/home/u/p"}):
			t.Errorf("%s: got %+v", c.name, got.Overlay)
		}
	}
}

func TestWorkspacesOfOthersAreHidden(t *testing.T) {
	const data = "/home/u/.local/share/bailey"
	tr := newTrial()
	tr.facts.host.DataDir = data
	tr.fs().AllowWrite = []string{".", "~/.local"}
	tr.facts.add("/home/u/.local/")
	s, err := Compile(tr.policy, tr.facts, tr.command)
	if err != nil {
		t.Fatal(err)
	}
	guards := func(r PathRule) bool { return r.Pattern == data && r.Write == Denied && r.Fix == "" }
	if !slices.ContainsFunc(s.Broker.Layers[0], guards) {
		t.Errorf("nothing keeps it from being made: %+v", s.Broker.Layers)
	}
	tr.facts.add(data + "/workspaces/")
	if s, err = Compile(tr.policy, tr.facts, tr.command); err != nil {
		t.Fatal(err)
	}
	if access, m := s.Access(data + "/workspaces"); access != AccessNone || m == nil || m.Kind != Hide {
		t.Errorf("got %v by %+v", access, m)
	}
}

// What is hidden is so whatever is granted in it, and what is beside it is not.
func TestHiddenPathsAreSeenByNobody(t *testing.T) {
	for name, edit := range map[string]func(*trial){
		"granted above it": func(*trial) {},
		"granted by name":  func(t *trial) { t.fs().AllowRead = append(t.fs().AllowRead, "/srv/own", "/srv/own/data") },
		"to be written":    func(t *trial) { t.fs().AllowWrite = append(t.fs().AllowWrite, "/srv/own/data") },
		"beside an image": func(t *trial) {
			t.facts.add("/img/usr/bin/true")
			t.facts.add("/away/own/")
			t.facts.host.Hidden = []string{"/away/own"} // which is nowhere inside
			t.command.Image = &Image{Name: "image", Dir: "/img", Env: []string{"PATH=/usr/bin"}}
		},
	} {
		tr := newTrial()
		for _, p := range []string{"/srv/own/data/", "/srv/own/key", "/srv/key", "/srv/other"} {
			tr.facts.add(p)
		}
		tr.fs().AllowRead = append(tr.fs().AllowRead, "/srv")
		edit(tr)
		tr.facts.host.Hidden, tr.facts.host.Closed = append(tr.facts.host.Hidden, "/srv/own"), []string{"/srv/key", "/srv/gone"}
		s, err := Compile(tr.policy, tr.facts, tr.command)
		if err != nil {
			t.Fatal(err)
		}
		for p, want := range map[string]Access{"/srv/own": AccessNone, "/srv/own/data": AccessNone, "/srv/own/key": AccessNone, "/srv/key": AccessNone, "/srv/other": AccessRead} {
			if got, _ := s.Access(p); got != want {
				t.Errorf("%s: %s is %v, want %v", name, p, got, want)
			}
		}
	}
	tr := newTrial()
	tr.facts.host.Hidden = []string{"/srv/gone"}
	if _, err := Compile(tr.policy, tr.facts, tr.command); err == nil || !strings.Contains(err.Error(), "/srv/gone: does not exist, so that it cannot be hidden") {
		t.Errorf("missing: %v", err)
	}
}
