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
	switch {
	case len(parts) == 0:
		return nil
	case !slices.Equal(parts, []string{"network", "gate"}):
	case from.Network == NetworkNone && to.Network == NetworkGate:
		return errors.New(`the sandbox was made with its network closed, so that it has no gate to be told of a grant; ` +
			`"network": {"transparent": true} gives a sandbox a gate whatever is granted`)
	}
	return errors.New("only network rules and path permissions with patterns can change while a sandbox stands, and the policy differs in " + strings.Join(parts, ", "))
}

// Closing returns a Spec whose network is closed for a sandbox that has a gate: it
// keeps that, which lets nothing through. Any other it returns as it is.
func Closing(from, to *Spec) *Spec {
	if from.Network != NetworkGate || to.Network != NetworkNone {
		return to
	}
	closed, gate := *to, *from.Gate
	gate.Config, gate.Unknown = to.GateConfig(), nil
	gate.Config.Sandbox = from.Gate.Config.Sandbox
	closed.Network, closed.Gate = NetworkGate, &gate
	return &closed
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
