// Command bailey-gate will be the gate: the program that lets granted connections out of a sandbox.
// This version has none, and the command says so.
package main

import (
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `bailey-gate lets granted connections out of a sandbox.
This version has no gate yet.

  bailey-gate --version   print the version
  bailey-gate --help      print this text
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: 125, as for every error of Bailey's own, unless
// the version or the help was asked for.
func run(args []string, stdout, stderr io.Writer) int {
	const exitOwn = 125
	text, out, status := "bailey-gate: this version has no gate yet; try: bailey-gate --help\n", stderr, exitOwn
	if len(args) == 1 {
		switch args[0] {
		case "-v", "--version", "version":
			text, out, status = version.Line("bailey-gate"), stdout, 0
		case "-h", "--help", "help":
			text, out, status = help, stdout, 0
		}
	}
	if _, err := io.WriteString(out, text); err != nil {
		return exitOwn
	}
	return status
}
