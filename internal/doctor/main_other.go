//go:build !linux

package doctor

import (
	"io"
	"runtime"
)

// ProbeWord is never passed on this system.
const ProbeWord = "doctor-probe"

// Probe has nothing to try.
func Probe([]string, io.Writer) int { return 2 }

// Main says that there is nothing to examine.
func Main(_ []string, _ io.Reader, _, stderr io.Writer) int {
	_, _ = io.WriteString(stderr, "bailey: this version has no runtime for "+runtime.GOOS+", so there is nothing to examine\n")
	return 125
}
