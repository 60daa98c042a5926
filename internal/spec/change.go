package spec

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// Frame is a sandbox without what can be changed while it stands: the Box
// without what its gate is told, without path permissions that a view holds, and
// without exposed ports where others can be exposed later.
func (s *Spec) Frame() *Spec {
	frame := s.Box()
	frame.Denials = nil
	if frame.Gate != nil {
		gate := *frame.Gate
		gate.Config, gate.Unknown = config.Config{}, nil
		frame.Gate = &gate
	}
	if frame.Inlet {
		frame.Expose = nil
	}
	if frame.Rules != nil {
		frame.Rules = &Rules{Root: frame.Rules.Root}
	}
	return frame
}

// Changeable returns nil if a sandbox can become another while it stands, in which
// only what the gate is told and path permissions that a view holds may differ, and
// otherwise why not.
func Changeable(from, to *Spec) error {
	parts := Differences(from, to)
	const everything = `{"pattern": "**/*", "permission": "write"}`
	switch {
	case len(parts) == 0:
		return nil
	case from.Rules == nil && to.Rules != nil:
		return errors.New("the sandbox was made without path permissions that have a pattern, so that it shows the project itself, and nobody can be told of others; " +
			"with a rule such as " + everything + " from the beginning it can be given any")
	case from.Rules != nil && to.Rules == nil:
		return errors.New("the sandbox has path permissions, and the policy has none; to take all of them back, say so by a rule: " + everything)
	case !slices.Equal(parts, []string{"network", "gate"}):
	case from.Network == NetworkNone && to.Network == NetworkGate:
		return errors.New(`the sandbox was made with its network closed, so that it has no gate to be told of a grant; ` +
			`"network": {"transparent": true} gives a sandbox a gate whatever is granted`)
	}
	return errors.New("only network rules and path permissions with patterns can change while a sandbox stands, and the policy differs in " + strings.Join(parts, ", "))
}

// Closing returns a Spec for a sandbox that has a gate, of which another takes away
// what leads to that: all of it, where the network is closed, or ports at which the
// host's loopback stands. It keeps leading there, and the gate lets nothing through.
// Any other it returns as it is.
func Closing(from, to *Spec) *Spec {
	if from.Network != NetworkGate {
		return to
	}
	kept, gate := *to, *from.Gate
	switch to.Network {
	case NetworkNone:
		gate.Config, gate.Unknown = to.GateConfig(), nil
		gate.Config.Sandbox = from.Gate.Config.Sandbox
	case NetworkGate:
		same := slices.Equal(gate.Local, to.Gate.Local) && slices.Equal(gate.LocalIPv6, to.Gate.LocalIPv6)
		if same || !hold(gate.Local, to.Gate.Local) || !hold(gate.LocalIPv6, to.Gate.LocalIPv6) {
			return to
		}
		gate = *to.Gate
		gate.Local, gate.LocalIPv6 = from.Gate.Local, from.Gate.LocalIPv6
	default:
		return to
	}
	kept.Network, kept.Gate = NetworkGate, &gate
	return &kept
}

// hold says whether all ports of one list are in another.
func hold(list, ports []config.Ports) bool {
	for _, p := range list {
		ports = without(ports, p)
	}
	return len(ports) == 0
}

// Differences names the parts in which the frames of two sandboxes differ, as a
// Spec calls them.
func Differences(a, b *Spec) (names []string) {
	one, other := reflect.ValueOf(*a.Frame()), reflect.ValueOf(*b.Frame())
	for i := range one.NumField() {
		if !reflect.DeepEqual(one.Field(i).Interface(), other.Field(i).Interface()) {
			name, _, _ := strings.Cut(one.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
