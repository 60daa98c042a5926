package spec

import (
	"reflect"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// Frame is a sandbox without what can be changed while it stands: the Box
// without what its gate is told.
func (s *Spec) Frame() *Spec {
	frame := s.Box()
	frame.Denials = nil
	if frame.Gate != nil {
		gate := *frame.Gate
		gate.Config, gate.Unknown = config.Config{}, nil
		frame.Gate = &gate
	}
	return frame
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
