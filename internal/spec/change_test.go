package spec

import (
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

func TestOnlyWhatTheGateIsToldCanChange(t *testing.T) {
	base := Spec{
		Argv: []string{"a"}, Env: []string{"A=1"}, Network: NetworkGate, Mounts: []Mount{{Kind: Tmpfs, Target: "/tmp"}},
		Gate: &Gate{Transparent: true, Config: config.Config{Default: config.Deny}},
	}
	for name, c := range map[string]struct {
		change func(*Spec)
		want   []string
	}{
		"nothing":       {func(*Spec) {}, nil},
		"rules":         {func(s *Spec) { s.Gate = &Gate{Transparent: true, Config: config.Config{Default: config.Ask}} }, nil},
		"the command":   {func(s *Spec) { s.Argv, s.Env = []string{"b"}, nil }, nil},
		"a mount":       {func(s *Spec) { s.Mounts = nil }, []string{"mounts"}},
		"capture":       {func(s *Spec) { s.Gate = &Gate{} }, []string{"gate"}},
		"no network":    {func(s *Spec) { s.Network, s.Gate = NetworkNone, nil }, []string{"network", "gate"}},
		"several parts": {func(s *Spec) { s.Mounts, s.Rlimits = nil, []Rlimit{{Name: "core"}} }, []string{"mounts", "rlimits"}},
	} {
		changed := base
		c.change(&changed)
		if got := Differences(&base, &changed); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if base.Gate.Config.Default != config.Deny {
		t.Error("the Spec itself was changed")
	}
}
