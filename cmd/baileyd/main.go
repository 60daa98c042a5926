// Command baileyd will be the server: the program that keeps sandboxes running and serves them over an API.
// This version has none, and the command says so.
package main

import (
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `baileyd keeps sandboxes running and serves them over an API.
This version has no server yet.

  baileyd --version   print the version
  baileyd --help      print this text
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	return version.Placeholder("baileyd", "server", help, args, stdout, stderr)
}
