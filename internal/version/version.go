// Package version holds the version that every command of Bailey reports.
package version

import "runtime"

// Version is set by the release build with -ldflags=-X.
var Version = "0.1.0-dev"

// Line is what a command prints for --version.
func Line(command string) string {
	return command + " " + Version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version() + ")\n"
}
