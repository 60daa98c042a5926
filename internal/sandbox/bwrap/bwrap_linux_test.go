package bwrap

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The Specs are those that package spec has for its own tests.
func TestArgumentsOfSpecs(t *testing.T) {
	for _, name := range []string{"default-root", "default-user", "host-network", "strict", "submodule"} {
		t.Run(name, func(t *testing.T) {
			s := load(t, name)
			outer, _, err := native.Divide(spec.RuntimeBwrap, s)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, lines(Arguments(s, outer)))
		})
	}
}

func load(t *testing.T, name string) *spec.Spec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "spec", "testdata", name+".golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := new(spec.Spec)
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// lines shows every option with its values on a line.
func lines(args []string) string {
	var b strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
		case strings.HasPrefix(a, "--"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(a)
	}
	return b.String() + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	testenv.Golden(t, name+".golden.txt", got, *update)
}

func TestEveryArgumentListHasItsWalls(t *testing.T) {
	closed := Arguments(&spec.Spec{Network: spec.NetworkNone}, nil)
	for _, want := range []string{"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--unshare-net", "--die-with-parent", "--as-pid-1", "--block-fd"} {
		if !slices.Contains(closed, want) {
			t.Errorf("%s is missing in %q", want, closed)
		}
	}
	if root := Arguments(&spec.Spec{Identity: spec.Identity{Full: true}}, nil); slices.Contains(root, "--unshare-user") {
		t.Error("ids that are mapped already would be mapped again")
	}
	if open := Arguments(&spec.Spec{Network: spec.NetworkHost}, nil); slices.Contains(open, "--unshare-net") {
		t.Error("an open network is no network")
	}
}

func TestWaysAreReadOnlyOnceTheyLeadSomewhere(t *testing.T) {
	list := Arguments(&spec.Spec{}, []spec.Mount{
		{Kind: spec.Bind, Source: "/srv", Target: "/srv"},
		{Kind: spec.Tmpfs, Target: "/srv/secret", Way: true},
		{Kind: spec.Bind, Source: "/srv/secret/pub", Target: "/srv/secret/pub"},
		{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777},
	})
	if got, want := list[len(list)-2:], []string{"--remount-ro", "/srv/secret"}; !slices.Equal(got, want) {
		t.Errorf("the list ends with %q, want %q", got, want)
	}
}

func TestWhatCannotBeHeldIsRefusedByItsKey(t *testing.T) {
	for _, test := range []struct {
		key  string
		spec spec.Spec
	}{
		{"", spec.Spec{Limits: &spec.Limits{Memory: 1 << 20}, Expose: []spec.Exposure{{Port: 80, Inside: 8080}}}},
		{"resources.disk", spec.Spec{Limits: &spec.Limits{Disk: 1 << 20}}},
		{"network.exposePorts", spec.Spec{Expose: []spec.Exposure{{Port: 8080, Inside: 80}}}},
		{"filesystem.denyRead", spec.Spec{Mounts: []spec.Mount{{Kind: spec.Hide, Target: "/dev/pts", Why: "filesystem.denyRead /dev/pts"}}}},
	} {
		t.Run(test.key, func(t *testing.T) {
			err := Refuses(&test.spec)
			var refused *spec.Refused
			switch {
			case test.key == "" && err != nil:
				t.Error(err)
			case test.key != "" && (!errors.As(err, &refused) || refused.Reasons[0].Key != test.key):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestProgramThatDoesNotDoIsSaid(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Program(); err == nil || !strings.Contains(err.Error(), "install") {
		t.Errorf("none: %v", err)
	}
	file := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Program(); got != file || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.Chmod(file, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if _, err := Program(); err == nil || !strings.Contains(err.Error(), "setuid") {
		t.Errorf("setuid: %v", err)
	}
}
