// Command bailey-gate is the network gate of a sandbox: it lets granted
// connections out, and nothing else. Whoever starts a sandbox starts it when the
// first connection comes, and hands it the sockets; see package
// internal/gate/config.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `bailey-gate lets granted connections out of a sandbox. bailey starts it when it is needed.

  bailey-gate serve --config FD --events FD --control FD --listen ROLE=FD ...
    [--expose PORT=FD ... --inside FD=FD ...]
                              serve sockets that were inherited
  bailey-gate authority DIR   make the certificate authority of this user in DIR, if
                              there is none, and print the name of its certificate
  bailey-gate explain [--json] --config FD HOST[:PORT]
                              what the rules make of a host
  bailey-gate --version       print the version
  bailey-gate --help          print this text
`

// exitOwn is the exit status for every error of Bailey's own.
const exitOwn = 125

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if err := dispatch(args, stdout); err != nil {
		fmt.Fprintln(stderr, "bailey-gate: "+err.Error())
		return exitOwn
	}
	return 0
}

func dispatch(args []string, stdout io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch verb {
	case "serve":
		return serve(args[1:])
	case "authority":
		return makeAuthority(args[1:], stdout)
	case "explain":
		return explain(args[1:], stdout)
	case "-v", "--version", "version":
		_, err := io.WriteString(stdout, version.Line("bailey-gate"))
		return err
	case "-h", "--help", "help":
		_, err := io.WriteString(stdout, help)
		return err
	}
	return errors.New("it is started by bailey; try: bailey-gate --help")
}
