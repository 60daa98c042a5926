//go:build !linux

package sandbox

import (
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// overlaid is the machine as it is: only Linux has overlays.
func overlaid(f *host.Facts, _ *spec.Overlay) spec.Facts { return f }
