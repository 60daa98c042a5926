package spec

import (
	"slices"
	"strings"
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

func TestWhatCannotChangeIsToldWithItsReason(t *testing.T) {
	closed := &Spec{Network: NetworkNone}
	gate := &Spec{Network: NetworkGate, Gate: &Gate{Config: config.Config{Default: config.Deny}}}
	told := &Spec{Network: NetworkGate, Gate: &Gate{Config: config.Config{Default: config.Ask}}}
	open := &Spec{Network: NetworkHost}
	ruled := &Spec{Network: NetworkGate, Gate: gate.Gate, Rules: &Rules{Root: "/w"}}
	other := &Spec{Network: NetworkGate, Gate: &Gate{}, Mounts: []Mount{{Kind: Tmpfs, Target: "/tmp"}}}
	local := func(from, to uint16) *Spec {
		return &Spec{Network: NetworkGate, Gate: &Gate{Local: []config.Ports{{From: from, To: to}}}}
	}
	for name, c := range map[string]struct {
		from, to *Spec
		want     string // empty: it can
	}{
		"fewer ports":      {local(80, 90), Closing(local(80, 90), local(81, 82)), ""},
		"none":             {local(80, 90), Closing(local(80, 90), gate), ""},
		"more ports":       {local(80, 90), Closing(local(80, 90), local(81, 91)), "differs in gate"},
		"rules":            {gate, told, ""},
		"nothing":          {closed, closed, ""},
		"a first grant":    {closed, gate, "made with its network closed"},
		"no grant is left": {gate, Closing(gate, closed), ""},
		"a first rule":     {gate, ruled, "made without path permissions that have a pattern"},
		"no rule is left":  {ruled, gate, "say so by a rule"},
		"open":             {closed, open, "differs in network"},
		"more than that":   {closed, other, "differs in network, gate, mounts"},
	} {
		err := Changeable(c.from, c.to)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestClosedNetworkKeepsTheGateThatASandboxHas(t *testing.T) {
	gate := &Spec{Network: NetworkGate, Gate: &Gate{Config: config.Config{Default: config.Allow, Sandbox: "one"}, Transparent: true}}
	closed := &Spec{Network: NetworkNone}
	got := Closing(gate, closed)
	if err := Changeable(gate, got); err != nil {
		t.Error(err)
	}
	if c := got.Gate.Config; c.Default != config.Deny || len(c.Rules) > 0 || c.Sandbox != "one" {
		t.Errorf("the gate is told %+v", c)
	}
	if closed.Gate != nil || gate.Gate.Config.Default != config.Allow {
		t.Error("the Specs themselves were changed")
	}
	for _, other := range []*Spec{closed, gate} {
		if Closing(closed, other) != other || Closing(other, gate) != gate {
			t.Error("what needs no change is changed")
		}
	}
}

func TestExposedPortsOfASandboxWithAnInletCanChange(t *testing.T) {
	for _, inlet := range []bool{false, true} {
		one, other := &Spec{Inlet: inlet}, &Spec{Inlet: inlet, Expose: []Exposure{{"127.0.0.1", 0, 80}}}
		if err := Changeable(one, other); (err == nil) != inlet {
			t.Errorf("inlet %v: %v", inlet, err)
		}
	}
}
