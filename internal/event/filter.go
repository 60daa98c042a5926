package event

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Filter says which events somebody wants to see. The zero value lets all
// through.
type Filter struct {
	Kinds   []Kind // any of them
	Sandbox string
	Process string
	// Path is a pattern such as /work/** or **/.env. If it does not begin with
	// a slash it may match below any directory.
	Path string
	// Host is a host, "*.suffix" for those below it, or "*" for any: then only
	// events of the network are wanted. An address is a host too.
	Host  string
	Since time.Time
}

// Check reports a pattern that means nothing.
func (f *Filter) Check() error {
	if f.Path != "" && !doublestar.ValidatePattern(f.Path) {
		return fmt.Errorf("%s is not a pattern; for example: '**/.env'", plain.Word(f.Path))
	}
	if rest := strings.TrimPrefix(f.Host, "*."); f.Host != "*" && strings.Contains(rest, "*") {
		return fmt.Errorf("%s is not a pattern for hosts; for example: '*.example.com'", plain.Word(f.Host))
	}
	return nil
}

// Match tells whether an event is wanted.
func (f *Filter) Match(e *Event) bool {
	switch {
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind),
		f.Sandbox != "" && f.Sandbox != e.Sandbox,
		f.Process != "" && f.Process != e.Process,
		e.Time.Before(f.Since):
		return false
	}
	return (f.Path == "" || matchPath(f.Path, e.Path)) && (f.Host == "" || matchHost(f.Host, e.Host) || matchHost(f.Host, e.Address))
}

func matchHost(pattern, host string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return host != "" && len(host) >= len(suffix) && strings.EqualFold(host[len(host)-len(suffix):], suffix)
	}
	return strings.EqualFold(pattern, host)
}

func matchPath(pattern, path string) bool {
	return path != "" && (doublestar.MatchUnvalidated(pattern, path) ||
		!strings.HasPrefix(pattern, "/") && doublestar.MatchUnvalidated("**/"+pattern, strings.TrimPrefix(path, "/")))
}
