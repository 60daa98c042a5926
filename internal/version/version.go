// Package version holds the version that every command of Bailey reports.
package version

import (
	"io"
	"runtime"
)

// Version is set by the release build with -ldflags=-X.
var Version = "0.1.0-dev"

// Line is what a command prints for --version.
func Line(command string) string {
	return command + " " + Version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version() + ")\n"
}

// Placeholder is what a command does whose part of Bailey is not in this version:
// it reports the version or the help, and for anything else says so. It returns
// the exit status: 125, as for every error of Bailey's own, unless one of the
// two was asked for.
func Placeholder(command, part, help string, args []string, stdout, stderr io.Writer) int {
	const exitOwn = 125
	text, out, status := command+": this version has no "+part+" yet; try: "+command+" --help\n", stderr, exitOwn
	if len(args) == 1 {
		switch args[0] {
		case "-v", "--version", "version":
			text, out, status = Line(command), stdout, 0
		case "-h", "--help", "help":
			text, out, status = help, stdout, 0
		}
	}
	if _, err := io.WriteString(out, text); err != nil {
		return exitOwn
	}
	return status
}
