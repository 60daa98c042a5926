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

func run(args []string, stdout, stderr io.Writer) int {
	return version.Placeholder("bailey-gate", "gate", help, args, stdout, stderr)
}
