package sandbox

import (
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// overlaid is the machine as a command in an overlay finds it.
func overlaid(f *host.Facts, over *spec.Overlay) spec.Facts {
	if over == nil {
		return f
	}
	return host.Overlay(f, over)
}
