package testenv

import (
	"slices"
	"testing"
)

func TestEveryMissingRequirementIsNamed(t *testing.T) {
	got := unmet([]Requirement{Program("no-such-program"), Landlock(0), Landlock(9999)})
	want := []string{"program no-such-program", "landlock 9999"}
	if !slices.Equal(got, want) {
		t.Errorf("unmet: got %q, want %q", got, want)
	}
}

func TestRootAndUnprivilegedExcludeEachOther(t *testing.T) {
	if Root.met() == Unprivileged.met() {
		t.Errorf("root and unprivileged are both %v", Root.met())
	}
}

func TestCountFollowsTheLongVariable(t *testing.T) {
	t.Setenv("BAILEY_LONG", "")
	if got := Count(2, 100); got != 2 {
		t.Errorf("ordinary run: got %d, want 2", got)
	}
	t.Setenv("BAILEY_LONG", "1")
	if got := Count(2, 100); got != 100 {
		t.Errorf("long run: got %d, want 100", got)
	}
}
